"""Insertions go where they say, and come out again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rewriter.artifact.types import Wrapper
from rewriter.core import edit, markers
from rewriter.core.edit import Insertion
from rewriter.core.errors import FAILED, RewriterError
from rewriter.instrumentation import verify


def test_insertions_keep_their_order() -> None:
    insertions = [Insertion(4, b"B", "b"), Insertion(0, b"A", "a"), Insertion(4, b"C", "c")]
    assert edit.apply(b"1234", insertions) == b"A1234BC"
    assert edit.apply(b"", []) == b""


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_insertion_outside_the_file_names_its_author(offset: int) -> None:
    with pytest.raises(ValueError, match="#3 before k"):
        edit.apply(b"1234", [Insertion(offset, b"x", "#3 before k")])


def test_a_plain_file_comes_back_as_it_is() -> None:
    data = b"x = 1\r\ny = '''\n# rewriter:12345678\n'''\rz = 2"
    assert edit.strip(data) == (data, [1, 2, 3, 4, 5], True)


# --- Blocks -------------------------------------------------------------------------------------

BEGIN, END = b"// rewriter:0123abcd begin\n", b"// rewriter:0123abcd end\n"
LINE = b"_rw.before(0);  // rewriter:0123abcd\n"
REMOVED = {
    "nothing": (b"a\nb\n", b"a\nb\n", [1, 2]),
    "a line of another tag": (b"a  // rewriter:ffffffff\n", b"a  // rewriter:ffffffff\n", [1]),
    "a mark within a line": (b"// rewriter:0123abcd b\n", b"// rewriter:0123abcd b\n", [1]),
    "a line": (b"a\n" + LINE + b"b\n", b"a\nb\n", [1, 3]),
    "a block": (b"a\n" + BEGIN + b"x\n\ny\n" + END + b"b\n", b"a\nb\n", [1, 7]),
    "a block and lines": (BEGIN + b"x\n" + END + b"a\n" + LINE + b"b\n", b"a\nb\n", [4, 6]),
    "a block at the end": (b"a\n" + BEGIN + b"x\n" + END.rstrip(), b"a\n", [1]),
    # Nobody knows how far it went, so what stood in it stays.
    "a block without its end": (b"a\n" + BEGIN + b"x\ny\n" + LINE, b"a\nx\ny\n", [1, 3, 4]),
    "a block without its begin": (b"a\nx\n" + END + b"b\n", b"a\nx\nb\n", [1, 2, 4]),
    "an end before the begin": (END + b"a\n" + BEGIN + b"b\n", b"a\nb\n", [2, 4]),
    "CRLF": (b"a\r\n" + LINE[:-1] + b"\r\nb\r\n", b"a\r\nb\r\n", [1, 3]),
    "CR": (b"a\r" + BEGIN[:-1] + b"\rx\r" + END[:-1] + b"\rb\r", b"a\rb\r", [1, 5]),
    "a newline that was added": (b"a\n" + LINE[:-1] + b" +newline", b"a", [1]),
}  # fmt: skip


@pytest.mark.parametrize(("data", "left", "numbers"), REMOVED.values(), ids=REMOVED)
def test_what_is_taken_out(data: bytes, left: bytes, numbers: list[int]) -> None:
    assert markers.remove(data, "0123abcd") == (left, numbers)


# --- Verification -------------------------------------------------------------------------------

PYTHON = b"import torch._inductor\n\n\ndef call(args):\n    return args\n"
CPP = b"""\
#include <vector>
void AOTInductorModel::run_impl(int x) {
    auto arg0_1 = std::move(inputs[0]);
    aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL);
    aoti_torch_cpu_bernoulli__Tensor(arg0_1, arg0_1, NULL);
}
"""


def with_lines(data: bytes, number: int, line: str) -> tuple[Wrapper, bytes]:
    """A wrapper, and what it is with a header and one more marked line."""
    language = "python" if data is PYTHON else "cpp"
    comment = "#" if language == "python" else "//"
    path = Path("wrapper.py" if language == "python" else "wrapper.cpp")
    mark = markers.Mark(markers.draw_tag(data), comment)
    header = markers.header_line("0", ("print",), hashlib.sha256(data).hexdigest())
    lines = data.splitlines(keepends=True)
    lines.insert(number, mark.line(line, b"\n"))
    instrumented = mark.line(f"{comment} {header}", b"\n") + b"".join(lines)
    return Wrapper(path.name, data, language, path), instrumented


@pytest.mark.parametrize(
    ("data", "number", "line", "says"),
    [
        (PYTHON, 4, "    )", "does not parse: line 6"),
        (PYTHON, 4, "  x = 1", "does not parse"),
        (CPP, 3, "    f(", "does not parse"),
        (CPP, 3, "    aoti_torch_cpu_bernoulli__float(arg0_1, 0.5, NULL);", "other launches"),
    ],
)
def test_verification_refuses(data: bytes, number: int, line: str, says: str) -> None:
    with pytest.raises(RewriterError, match=says) as caught:
        verify.verify(*with_lines(data, number, line))
    assert caught.value.code == FAILED
    assert caught.value.slug == "verification-failed"
    assert "Nothing was written" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "line"), [(PYTHON, "    _rw.before(0)"), (CPP, "    _rw.before(0, arg0_1);")]
)
def test_verification_lets_probes_pass(data: bytes, line: str) -> None:
    verify.verify(*with_lines(data, 4, line))


@pytest.mark.parametrize("data", [PYTHON, CPP])
def test_verification_refuses_what_does_not_come_back(data: bytes) -> None:
    wrapper, instrumented = with_lines(data, 4, "    f();" if data is CPP else "    f()")
    for changed in (
        instrumented.replace(b"args", b"argv").replace(b"0.5", b"0.6"),
        instrumented.replace(b"sha256 ", b"sha256 0")[:-1],
        b"x = 1\n",
    ):
        with pytest.raises(RewriterError, match="would not restore") as caught:
            verify.verify(wrapper, changed)
        assert caught.value.code == FAILED
