"""Calls of one form are read once: what is filled in is what a parse of each would tell."""

from __future__ import annotations

import pytest

from rewriter.locate.python import grammar as grammars
from rewriter.locate.python.call import CallReader, _arguments
from rewriter.locate.python.written_form import form_of

# What must be left as it is comes first.
FORMS = {
    "f(a, b)": (),
    "buf1(2.5, 1e5, 0x1f, 1_0, 07j)": (),
    "f(buf1.x, buf2[i], out0=None, buf3 .y, buf4 (a))": (),
    "f('buf1', \"2\")": (),
    "f(x.y1)": (),
    r"f('a\'', buf1)": (),
    "f('''a''', buf1)": (),
    "f(\nbuf1)": (),
    "f(größe1)": (),
    "f(70770000017707)": (),
    "f(buf1, buf1, 12, -3)": ("buf1", "buf1", "12", "3"),
    "f(buf0, x=s1, y=(8, s2))": ("buf0", "s1", "8", "s2"),
    "f('it', buf1)": ("buf1",),
    "f(123456789012345678, 1234567890123456789)": ("123456789012345678",),
}


@pytest.mark.parametrize("text", FORMS)
def test_variables_and_numbers_are_replaced(text: str) -> None:
    form = form_of(text)
    assert form.values == FORMS[text]
    assert form.template(form.text).fill(form.values) == text
    assert (form.text == text) is not bool(form.values)


def test_a_text_that_looks_like_a_form_is_none() -> None:
    reader = CallReader(grammars.load())
    texts = ["f(buf1, 2)", form_of("f(buf1, 2)").text, "f(ø1ø, 7077000001770)", "f(buf3, 4)"]
    for _ in range(2):
        for text in texts:
            read = [value.expr for argument in reader.read(text) for value in argument.values]
            assert f"f({', '.join(read)})" == text
            assert reader.unparse(text) == text


CALLS = (
    "k0.run(buf0, buf1, 8192, 64, stream=stream0)",
    "extern_kernels.mm(reinterpret_tensor(buf6, (32, 64), (64, 1), 0), arg1_1, out=buf10)",
    "f([buf1, buf2, (buf3, 4)], -1, not s0, buf4 if s1 else buf5, *buf6, **buf7)",
    "f((buf1), ((2)), (buf1 + 3) * s0, s1 < s2 < 4, buf1[0], buf1[s0], buf1[0][1])",
    "f(c_void_p(buf1.data_ptr()), buf1.item(), (buf1).view(2, 3), buf2.view(buf3))",
    "f(lambda x1: x1, [x1 for x1 in y2], (x1 := 3))",
    "f(10**6, 2.5, 1e-05, 'cuda:0', None, True, inf, 3j, b'1')",
    "f(reinterpret_tensor( buf1 , (2,3),(3,  1),0 ), aten.view.dtype(buf2, torch.int8))",
)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_read_as_if_it_were_the_first(text: str) -> None:
    grammar = grammars.load()
    reader = CallReader(grammar)
    other = text.replace("1", "7").replace("0", "5")
    for one in (other, text, other):
        assert reader.read(one) == _arguments(one, grammar)
