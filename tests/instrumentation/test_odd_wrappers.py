"""Wrappers that were edited, or made by hand: instrumented right, or refused with a place."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts import get
from rewriter.cli import main

PYTHON = get("cpu-torch2.13/complex_numbers").data
CPP = get("cpu-torch2.13/complex_numbers cpp_wrapper").data
AOTI = get("cpu-torch2.13/complex_numbers aoti").data
NAMES = {"python": "output_code.py", "cpp_wrapper": "output_code.py", "aoti": "wrapper.cpp"}
DATA = {"python": PYTHON, "cpp_wrapper": CPP, "aoti": AOTI}
Change = Callable[[bytes], bytes]


def _instrument(tmp_path: Path, kind: str, data: bytes) -> tuple[int, Path, Path]:
    path = tmp_path / NAMES[kind]
    path.write_bytes(data)
    result = tmp_path / f"result{path.suffix}"
    argv = ["instrument", str(path), "--probe", "names,print,inputs", "--when", "both"]
    return main([*argv, "-o", str(result)]), path, result


def _first(data: bytes, *marks: bytes) -> bytes:
    """The first of some texts that is in a wrapper."""
    return next(mark for mark in marks if mark in data)


# --- Refused, with the place --------------------------------------------------------------------


def _in_docstring(data: bytes) -> bytes:
    """Before the string of the wrapper there is its beginning, in another string."""
    return (
        b'"""\ncpp_wrapper_src = (\nr'
        + b"''' an example\n\"\"\"\n"
        + data.replace(b"cpp_wrapper_src", b"other_src")
    )


def _argument(grown: bytes) -> Change:
    """The first kernel is given something else, too."""

    def change(data: bytes) -> bytes:
        at = data.index(
            b"(", data.index(b"\n    def call(" if b"class Runner" in data else b"\ndef call(")
        )
        at = data.index(b"aten.", at) if b"aten." in data[at:] else at
        at = data.index(b"(", at) + 1
        return data[:at] + grown + b", " + data[at:]

    return change


REFUSED: dict[str, tuple[str, Change, str]] = {
    "two strings": (
        "cpp_wrapper",
        lambda data: data + b"\ncpp_wrapper_src = r'''x'''\n",
        "more than once",
    ),
    "in a docstring": ("cpp_wrapper", _in_docstring, "is bound to nothing"),
    "strings in a row": (
        "cpp_wrapper",
        lambda data: data.replace(b"cpp_wrapper_src = (", b"cpp_wrapper_src = ('' ", 1),
        "triple quotes",
    ),
    "a carriage return": (
        "aoti",
        lambda data: data.replace(b";\n", b";\r//\n", 1),
        "carriage return",
    ),
    "a cut": (
        "aoti",
        lambda data: data[: data.index(b"} // AOTInductorModel::run_impl")],
        "run_impl never ends",
    ),
    "no line to begin with": (
        "cpp_wrapper",
        lambda data: data.replace(b'r"""\n#include', b'r"""int x; #include', 1),
        "a probe needs a line of its own",
    ),
    "minus signs": ("python", _argument(b"-" * 500 + b"1"), "nested too deeply"),
    "attributes": ("python", _argument(b"a" + b".a" * 1500), "nested too deeply"),
    "a sum": ("python", _argument(b"+".join([b"1"] * 900)), "nested too deeply"),
    "calls": ("python", _argument(b"f" + b"()" * 20_000), "nested too deeply"),
    "parentheses": ("python", _argument(b"(" * 300 + b"1" + b")" * 300), "nested too deeply"),
    "else if": (
        "python",
        lambda data: data + b"if x: pass\n" + b"elif x: pass\n" * 900,
        "nested too deeply",
    ),
    "many conditions": ("python", _argument(b" and ".join([b"1"] * 3_000)), "nested too deeply"),
    "minus signs in C++": (
        "aoti",
        lambda data: _at_start(data, b"    int odd = " + b"- " * 1_000 + b"1;\n"),
        "nested more than 200 deep",
    ),
    "else if in C++": (
        "cpp_wrapper",
        lambda data: _at_start(data, b"    if (1) {}" + b" else if (1) {}" * 500 + b"\n"),
        "nested more than 200 deep",
    ),
}  # fmt: skip


def _at_start(data: bytes, text: bytes) -> bytes:
    """A line at the beginning of the entry, in C++."""
    name = _first(data, b"void AOTInductorModel::run_impl(", b"void inductor_entry_impl(")
    at = data.index(b"{\n", data.index(b")", data.index(name))) + 2
    return data[:at] + text + data[at:]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_place(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, change, says = REFUSED[name]
    code, path, result = _instrument(tmp_path, kind, change(DATA[kind]))
    errors = capsys.readouterr().err
    assert code == 2, errors
    assert str(path) in errors
    assert says in errors
    assert not result.exists()
    assert main(["list", str(path)]) == (0 if "a line of its own" in says else 2)
    assert "Traceback" not in capsys.readouterr().err


# --- Instrumented -------------------------------------------------------------------------------


def _before_line(mark: bytes, text: bytes) -> Change:
    """Text before the first line with a mark; `@` is its indentation, a zero byte an `@`."""

    def change(data: bytes) -> bytes:
        at = data.index(mark)
        start = data.rfind(b"\n", 0, at) + 1
        return data[:start] + text.replace(b"@", data[start:at]) + data[start:]

    return change


TAKEN: dict[str, tuple[str, Change]] = {
    "a backslash above the entry": ("python", _before_line(b"def call(", b"@\\\n")),
    "a backslash above the first class": ("python", _before_line(b"class Runner", b"\\\n\\\n")),
    "a decorated function at the start": (
        "python",
        _before_line(b"arg0_1, = args", b"@\x00staticmethod\n@def odd():\n@    pass\n"),
    ),
    "a comment in the middle of an argument": (
        "python",
        lambda data: data.replace(b"(128, 256), (256, 1)", b"(128, # x\n 256), (256, 1)", 1),
    ),
    "many conditions": ("python", _argument(b" and ".join([b"1"] * 200))),
    "a long number": ("python", _argument(b"0x" + b"f" * 5_000)),
    "sizes that are no numbers": (
        "python",
        lambda data: data.replace(b"(4, 16), (16, 1), 'in", b"('', 1.5), (None, []), 'in", 1),
    ),
    "marks in a comment": (
        "python",
        lambda data: b"# x  # rewriter:00000000 begin\n" + data + b"# x  # rewriter:00000000 end\n",
    ),
    "an open brace elsewhere": ("aoti", lambda data: data + b"\nnamespace odd {\n"),
    "a string that does not end elsewhere": ("aoti", lambda data: data + b"\n// \"\nchar c = '\n"),
    "a comment that goes on behind the includes": (
        "aoti",
        lambda data: data.replace(b".h>\n", b".h> /* on\n and on */\n", 1),
    ),
    "a brace in a macro": ("aoti", lambda data: b"#define ODD {\n" + data),
    "another string that looks like it": (
        "cpp_wrapper",
        lambda data: data + b"\nx = '''\ncpp_wrapper_src = (r' ' '\n'''\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_instrumented_and_restored(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, change = TAKEN[name]
    data = change(DATA[kind]).replace(b"\x00", b"@")
    code, path, result = _instrument(tmp_path, kind, data)
    assert code == 0, capsys.readouterr().err
    if path.suffix == ".py":
        ast.parse(result.read_bytes())
    assert b".begin(" in result.read_bytes() or b"Call _rw" in result.read_bytes()
    assert main(["strip", str(result), "-o", str(tmp_path / "back")]) == 0
    assert (tmp_path / "back").read_bytes() == data


def test_lines_that_a_backslash_joins_are_read_as_one(tmp_path: Path) -> None:
    """The argument of a launch is written again on one line, without the backslashes."""
    data = get("cpu-torch2.13/mlp aoti").data
    _, _, result = _instrument(tmp_path, "aoti", data)
    plain = result.read_bytes()
    result.unlink()
    spliced = b"(up_weight,\\\n 2, \\\r\n\\\n int_array_2,"
    changed = data.replace(b"(up_weight, 2, int_array_2,", spliced)
    assert changed != data
    code, _, result = _instrument(tmp_path, "aoti", changed)
    assert code == 0
    before = re.compile(rb"_rw\.before\(.*up_weight.*\);")
    assert before.findall(result.read_bytes()) == before.findall(plain)


def test_checks_of_more_dimensions_than_an_assertion_are_of_another_tensor() -> None:
    from rewriter.locate.cpp.inputs import _merged
    from rewriter.locate.types import InputSpec

    checked = InputSpec("x", "tensor", size=("?:1..9", "?:2..", "4"), open=True)
    asserted = InputSpec("x", "tensor", size=("s0", "8"), stride=("8", "1"))
    assert _merged(checked, asserted).size == ("s0", "8")
    assert _merged(checked, InputSpec("x", "tensor", size=("s0", "8", "4"), stride=())).size == (
        "s0:1..9", "8:2..", "4",
    )  # fmt: skip


# --- Names --------------------------------------------------------------------------------------

LOG = (
    Path(__file__).parents[2] / "fixtures/traces/log-python/dedicated_log_torch_trace_5s1j0qac.log"
)


@pytest.mark.parametrize("field", ["rank", "frame_id", "frame_compile_id", "attempt"])
@pytest.mark.parametrize("value", ["9" * 300, "1" * 4_000, "-7"])
def test_a_number_of_a_log_that_no_file_can_be_named_by(
    field: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed(line: str) -> str:
        if "inductor_output_code" not in line or line.startswith("\t"):
            return line
        there = re.sub(rf'"{field}": \d+', f'"{field}": {value}', line)
        return there if there != line else line.replace("{", f'{{"{field}": {value}, ', 1)

    lines = list(map(changed, LOG.read_text().split("\n")))
    path = tmp_path / "trace.log"
    path.write_text("\n".join(lines))
    assert main(["list", str(path)]) == 0
    assert main(["instrument", str(path), "-o", str(tmp_path / "out")]) == 0
    assert "OSError" not in capsys.readouterr().err


@pytest.mark.parametrize("form", DATA)
def test_a_name_that_is_no_utf_8(form: str, tmp_path: Path) -> None:
    ending = "wrapper.cpp" if form == "aoti" else "py"
    path = tmp_path / f"model\udcff.{ending}"
    path.write_bytes(DATA[form])
    probed = path.with_name(f"{path.stem}.instrumented{path.suffix}")
    assert main(["instrument", str(path)]) == 0
    name = b"model\\udcff" if form == "python" else b'"model\\377.'
    assert name in probed.read_bytes()
    assert main(["strip", str(probed), "-o", str(tmp_path / "plain")]) == 0
    assert (tmp_path / "plain").read_bytes() == DATA[form]
