"""Lines of one form are read once: what is filled in is what a parse of each would tell."""

from __future__ import annotations

import libcst as cst
import pytest

from rewriter.locate.python import grammar as grammars
from rewriter.locate.python.call import read_arguments
from rewriter.locate.python.forms import Template, form_of, on_one_line, string_value
from rewriter.locate.python.lines import lines
from rewriter.locate.python.module import read
from rewriter.locate.python.statements import Statement, calls

# What must be left as it is comes first.
FORMS = {
    "f(a, b)": (),
    "f(2.5, 1e5, 0x1f, 1_0, 3j)": (),
    "f(out0=None)": (),
    "f(123456789012345678901)": (),
    "f(buf1.x, buf2[i], buf3 .y, buf4 (a))": ("buf1", "buf2", "buf3", "buf4"),
    "f(torch.float32)": ("float32",),
    "f('buf1', \"2\")": ("'buf1'", '"2"'),
    r"f('a\'', buf1)": (r"'a\''", "buf1"),
    "f('''a''', r'b', buf1)": ("'''a'''", "'b'", "buf1"),
    "f(buf1, buf1, 12, -3)": ("buf1", "buf1", "12", "3"),
    "f(buf0, x=s1, y=(8, s2))": ("buf0", "s1", "8", "s2"),
    "buf1 = p3; del p3  # p3": ("buf1", "p3", "p3", "# p3"),
    "f(p3=1, p4==1)": ("p3", "1", "p4", "1"),
    "f(größe1, 'ö')": ("e1", "'ö'"),
    "f'{x1}'": ("'{x1}'",),
}


def of(text: str) -> tuple[str, list[str]]:
    read_line = form_of(text.encode().decode("latin-1"))
    assert read_line is not None
    return read_line[0].text, read_line[1]


@pytest.mark.parametrize("text", FORMS)
def test_names_numbers_strings_and_comments_are_replaced(text: str) -> None:
    form, values = of(text)
    assert tuple(values) == FORMS[text]
    assert Template(form).fill(values) == text


@pytest.mark.parametrize(
    "texts",
    [
        ("f(a)", "f(b)"),
        ("f(buf1)", "f(1)"),
        ("f('1')", "f(1)"),
        ("x = 1", "x = 1  # 1"),
        ("f(buf1, 2)", "f(buf1 2)"),
    ],
)
def test_lines_that_are_read_differently_have_different_forms(texts: tuple[str, str]) -> None:
    assert of(texts[0])[0] != of(texts[1])[0]


@pytest.mark.parametrize(
    "text", ["f(", "f(]", "x = 'a", "x = '''a", "x = 1 + \\", "'''a' b", 'x = """a', "{'a': ("]
)
def test_what_goes_on_in_the_next_line_has_no_form(text: str) -> None:
    assert form_of(text) is None


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


def _arguments(text: str) -> list[tuple[str, bool, list[tuple[str, str, str]]]]:
    (statement,) = read(text).each(read(text).body)
    assert isinstance(statement, Statement)
    call = calls(statement.node)[0]
    return [
        (
            one.keyword,
            one.is_number,
            [
                (value.expr.fill(statement.values), value.base.fill(statement.values), value.kind)
                for value in one.values
            ],
        )
        for one in read_arguments(call, grammars.load())
    ]


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_read_as_if_it_were_the_first(text: str) -> None:
    """Other names and numbers give the same, with these in it."""
    other = text.replace("1", "7").replace("0", "5")
    found, expected = _arguments(other), repr(_arguments(text))
    assert repr(found) == expected.replace("1", "7").replace("0", "5")
    written = [value for *_, values in _arguments(text) for value, _, _ in values]
    bare = text.replace("(2)", "2").replace("(buf1)", "buf1")
    assert all(one in bare or one in text for one in written)


def test_a_text_that_looks_like_a_form_is_none() -> None:
    for text in ("f(buf1, 2)", "f(p0, 1)", "f(p1, 0)", "f('1', '0')", "f(buf3, 4)"):
        written = [one for *_, values in _arguments(text) for one, _, _ in values]
        assert f"f({', '.join(written)})" == text


LITERALS = (
    *("'a'", '"a"', "''", '""', "'''a'''", "r'a\\n'", "'a\\n'", "'''a\nb'''", "R'''\\\\'''"),
    *("'it\\'s'", '"it\'s"', "'''it's'''", "b'a'", "u'a'", "rb'\\a'", "'\\x41'", "'a' 'b'"),
    *("'''a''' '''b'''", "'\"'", "''''a'''"),
)


@pytest.mark.parametrize("literal", LITERALS)
def test_the_value_of_a_string(literal: str) -> None:
    node = cst.parse_expression(literal)
    assert isinstance(node, (cst.SimpleString, cst.ConcatenatedString))
    assert string_value(literal) == node.evaluated_value


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("f(1, 2)", "f(1, 2)"),
        ("f(\n    1,  # one\n    2)", "f( 1, 2)"),
        ("f(1, \\\n  2)", "f(1, 2)"),
        ("f('''a\nb''', 1,\n2)", "f('a\\nb', 1, 2)"),
        ("f(r'''a\\d\r\nb''')", "f('a\\\\d\\nb')"),
    ],
)
def test_code_on_one_line(code: str, line: str) -> None:
    assert " ".join(on_one_line(code).split()) == line


def test_lines_have_the_offsets_and_numbers_of_the_file() -> None:
    text = "\xef\xbb\xbfa = 1\r\n\n  # (\nif b:\r    c = '''\n(''' \\\n  + d\n\te = (\n 1)\nf"
    found = [(one.number, one.last, text[one.body : one.end]) for one in lines(text)]
    assert found == [
        (1, 1, "a = 1\r\n"),
        (4, 4, "if b:\r"),
        (5, 7, "c = '''\n(''' \\\n  + d\n"),
        (8, 9, "e = (\n 1)\n"),
        (10, 10, "f"),
    ]
    assert next(lines(text)).start == 3
