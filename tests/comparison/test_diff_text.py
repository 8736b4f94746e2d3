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


def test_a_kernel_that_differs_is_coloured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "output_code.py"
    path.write_bytes(get(MLP).data.replace(b"tmp0 = ", b"tmp0  = "))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["diff", str(get(MLP).path), str(path)]) == DIFFERS
    assert "\x1b[36m  ~ source of " in capsys.readouterr().out


def test_blank_lines_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "output_code.py"
    path.write_bytes(b"\n\n" + get(MLP).data)
    assert main(["diff", str(get(MLP).path), str(path)]) == DIFFERS
    assert capsys.readouterr().out.splitlines() == [
        "different: 0 of 5 launches, 2 other lines",
        "  other lines: -0 +2",
        "    2 blank lines",
    ]


def test_control_characters_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "output_code.py"
    path.write_bytes("# red \x1b[31m, turned \u202e\n".encode() + get(MLP).data)
    assert main(["diff", str(get(MLP).path), str(path)]) == DIFFERS
    out = capsys.readouterr().out
    assert "    + 1: # red \\x1b[31m, turned \\u202e\n" in out
