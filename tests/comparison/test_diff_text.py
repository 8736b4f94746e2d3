"""`rewriter diff` of what is no code: line ends, blank lines, control characters."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path

import pytest

import rewriter
from artifacts import get
from rewriter.cli import main
from rewriter.core.errors import DIFFERS

MLP = "cuda-torch2.11/mlp"


@pytest.mark.parametrize("name", [MLP, "cpu-torch2.13/mlp aoti"])
@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda data: data.replace(b"\n", b"\r\n"), "it ends in '\\n' in A, in '\\r\\n' in B"),
        (lambda data: data.rstrip(b"\n"), "it ends in '\\n' in A, in '' in B"),
        (lambda data: codecs.BOM_UTF8 + data, "in line 1, one has a byte order mark"),
    ],
    ids=["CRLF", "end", "BOM"],
)
def test_line_ends_are_said_once(
    name: str, change: Callable[[bytes], bytes], note: str, tmp_path: Path
) -> None:
    fixture = get(name)
    path = tmp_path / fixture.path.name
    data = fixture.data.rstrip(b"\n") + b"\n"
    (tmp_path / "a").mkdir()
    plain = tmp_path / "a" / fixture.path.name
    plain.write_bytes(data)
    path.write_bytes(change(data))
    found = rewriter.diff(plain, path)
    assert found.verdict == "different"
    (wrapper,) = found.wrappers
    (said,) = wrapper.notes
    assert said.endswith(note)
    assert (wrapper.launches, wrapper.kernels, wrapper.lines, wrapper.names) == ((), (), (), ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.replace(b"tmp0 = ", b"tmp0  = "), "\x1b[36m  ~ source of "),
        (
            lambda data: b"\n\n" + data,
            "different: 0 of 5 launches, 2 other lines\n  other lines: -0 +2\n    2 blank lines\n",
        ),
        (
            lambda data: "# red \x1b[31m, turned \u202e\n".encode() + data,
            "    + 1: # red \\x1b[31m, turned \\u202e\n",
        ),
    ],
    ids=["a kernel is coloured", "blank lines are named", "control characters are escaped"],
)
def test_what_is_said_of_lines(
    change: Callable[[bytes], bytes],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "output_code.py"
    path.write_bytes(change(get(MLP).data))
    if "\x1b" in said:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["diff", str(get(MLP).path), str(path)]) == DIFFERS
    out = capsys.readouterr().out
    assert out == said if said.startswith("different") else said in out
