"""Programs with known answers (`fixtures/cases/`): what is right is not accused, and what is wrong
is named, in one command as a user types it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import programs
from compilations import Compilations

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
exhaustive = pytest.mark.exhaustive
pytestmark = pytest.mark.usefixtures("warm_python")

# The launch that updates the input `state`, moved behind the second product and given its result.
_UPDATE = """\
        assert_size_stride(arg1_1, (16, 16), (16, 1), 'input')
        cpp_fused_add_copy__0(arg1_1, buf0, arg1_1)
        del arg1_1
"""
_PRODUCT = "        extern_kernels.mm(buf0, arg0_1, out=buf1)\n"
_MOVED = [(_UPDATE, ""), (_PRODUCT, _PRODUCT + _UPDATE.replace("buf0", "buf1"))]
_REGION = "buf3 = reinterpret_tensor(buf9, (1, 64), (64, 1), 192)  # alias"
_APART = [(_REGION, "buf3 = empty_strided_cpu((1, 64), (64, 1), torch.float32)")]
_TRIPLED = [("static_cast<float>(2.0)", "static_cast<float>(3.0)")]
Edits = Sequence[tuple[str, str]]


@pytest.fixture(scope="session")
def cached(compilations: Compilations, warm_executable: str) -> Callable[[str], Path]:
    """The cache that a program leaves, by its name. Each is run once."""

    def get(name: str) -> Path:
        program = CASES / name

        def run(folder: Path) -> str:
            programs.run(warm_executable, program, TORCHINDUCTOR_CACHE_DIR=folder / "cache")
            return str(folder / "cache")

        text = program.read_text()
        return Path(compilations.value_with_files(run, "case", program.stem, text=text))

    return get


def _ask(
    command: str, program: str, folder: Path, *options: str, cache: Path | None, edits: Edits = ()
) -> tuple[int, dict[str, Any]]:
    """The exit code and the document. The program finds what is in a cache, with these edits made
    in a wrapper, or an empty one."""
    place: dict[str, Any] = {"cwd": folder, "TORCHINDUCTOR_CACHE_DIR": folder / "cache"}
    run = [sys.executable, CASES / program]
    if cache:
        shutil.copytree(cache, folder / "cache")
    if edits:
        wrappers = (folder / "cache").rglob("*.py")
        (wrapper,) = (x for x in wrappers if all(old in x.read_text() for old, _ in edits))
        text = wrapper.read_text()
        for old, new in edits:
            text = text.replace(old, new)
        wrapper.write_text(text)
    ended = programs.rewriter(command, "--json", *options, "--", *run, code=None, **place)
    assert ended.stdout.strip(), ended.stderr
    return ended.returncode, json.loads(ended.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("program", "launches", "own"),
    [
        pytest.param("operator_fills.py", 2, 1, marks=exhaustive),
        ("operators_of_a_user.py", 10, 3),
        ("operators_of_an_engine.py", 5, 2),
    ],
)
def test_what_is_right_is_not_accused(
    program: str, launches: int, own: int, tmp_path: Path, cached: Callable[[str], Path]
) -> None:
    code, found = _ask("diagnose", program, tmp_path, cache=cached(program))
    assert (code, found["findings"]) == (0, [])
    assert (found["checked"], found["launches"], found["by_arguments"]) == (launches, launches, own)
    assert found["headline"].endswith(f"all launches were checked, {own} by what they are given")
    assert found["next"] == ""


@pytest.mark.parametrize(
    ("command", "program", "edits", "kind", "words"),
    [
        ("diagnose", "operators_of_an_engine.py", _TRIPLED, "wrong", "launch #0 cpp_fused"),
        ("diagnose", "input_updated.py", _MOVED, "wrong", "does not leave in arg1_1 the add"),
        pytest.param(
            "diagnose", "source_is_target.py", [], "aliased", "as src, which it reads, and as dst",
            marks=exhaustive,
        ),
        pytest.param(
            "diagnose", "gradient_region.py", _APART, "outputs",
            "elements 192 to 255 of 256 are written by no launch", marks=exhaustive,
        ),
        pytest.param(
            "diagnose", "half_overflow.py", [], "nan", "launch #1 extern_kernels.mm",
            marks=exhaustive,
        ),
        pytest.param(
            "sanitize", "not_the_same_twice.py", [], "varies", "writes other values in each run",
            marks=exhaustive,
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    command: str,
    program: str,
    edits: Edits,
    kind: str,
    words: str,
    tmp_path: Path,
    cached: Callable[[str], Path],
) -> None:
    code, found = _ask(command, program, tmp_path, cache=cached(program), edits=edits)
    assert code == 1
    assert found["finding"]["kind"] == kind
    assert words in found["headline"]


@pytest.mark.parametrize(
    ("program", "step", "kinds", "words"),
    [
        ("stale_graph.py", "tracing", ["eager"], "is 1, in plain Python 4: 6 of 6 elements differ"),
        pytest.param(
            "output_dtype.py", "inductor", ["outputs", "eager"],
            "output[1] has dtype int64, in plain Python int8", marks=exhaustive,
        ),
    ],
)  # fmt: skip
def test_what_plain_python_does_otherwise(
    program: str, step: str, kinds: list[str], words: str, tmp_path: Path
) -> None:
    """The step that is at fault is named: tracing or Inductor. Nothing was compiled before."""
    code, found = _ask("diagnose", program, tmp_path, "--against", "eager", cache=None)
    assert code == 1
    assert [one["kind"] for one in found["findings"]] == kinds
    assert found["findings"][-1]["step"] == step
    assert words in found["findings"][-1]["headline"]
    assert any("once more" in note for note in found["notes"])


@exhaustive
@pytest.mark.parametrize(
    "program", ["operator_fills.py", "operators_of_a_user.py", "gradient_region.py"]
)
def test_what_is_right_is_what_plain_python_does(program: str, tmp_path: Path) -> None:
    code, found = _ask("diagnose", program, tmp_path, "--against", "eager", cache=None)
    assert (code, found["findings"]) == (0, [])
    assert any(x.startswith("a difference from plain Python: ") for x in found["ruled_out"])
