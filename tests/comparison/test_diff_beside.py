"""`rewriter diff` of what lies beside wrappers: kernels, operators, other files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rewriter
from artifacts import ARTIFACTS
from rewriter.cli import main
from rewriter.comparison.artifacts import files
from rewriter.core.errors import DIFFERS, OK

AOTI = ARTIFACTS / "cpu-torch2.13" / "customop" / "aoti"
PYTHON = ARTIFACTS / "cuda-torch2.11" / "mlp" / "python"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return Path(shutil.copytree(AOTI, tmp_path / "other"))


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize("name", ["", "wrapper.cpp"], ids=["folder", "file"])
@pytest.mark.parametrize("probed", [False, True])
def test_a_kernel_beside_a_wrapper_counts(name: str, probed: bool, other: Path) -> None:
    if probed:
        path = other / "wrapper.cpp"
        path.write_bytes(rewriter.instrument(path, rewriter.select("names")).source)
    same = rewriter.diff(AOTI / name, other / name)
    assert same.verdict == ("instrumented" if probed else "identical")
    assert same.notes == (() if name else (files.OTHERS,))
    replace(other / "kernel.cpp", b"static_cast<int64_t>(0L)", b"static_cast<int64_t>(1L)")
    found = rewriter.diff(AOTI / name, other / name)
    assert found.verdict == "different"
    (kernel,) = found.wrappers[0].kernels
    assert (kernel.removed, kernel.added, kernel.apart) == (1, 1, True)


@pytest.mark.parametrize("name", ["", "wrapper.cpp"], ids=["folder", "file"])
def test_operators_count(name: str, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace(other / "wrapper.json", b"::bump", b"::other")
    assert main(["diff", "--json", str(AOTI / name), str(other / name)]) == DIFFERS
    content = json.loads(capsys.readouterr().out)
    assert "the operators differ in wrapper.json" in content["notes"]
    changes = [change["changes"] for change in content["wrappers"][0]["launches"]]
    assert ["kernel"] in changes
    assert main(["diff", str(AOTI / name), str(other / name)]) == DIFFERS
    assert "note: the operators differ in wrapper.json" in capsys.readouterr().out


def test_a_wrapper_that_was_copied_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Path(shutil.copy(AOTI / "wrapper.cpp", tmp_path))
    assert main(["diff", str(AOTI / "wrapper.cpp"), str(alone)]) == OK
    out = capsys.readouterr().out
    assert out.startswith("identical: ")
    assert "note: kernel.cpp is beside A alone: its kernels are not compared" in out
    assert "note: wrapper.json is beside A alone: its operators are taken for those of both" in out
    found = rewriter.diff(alone, AOTI)
    assert found.verdict == "identical"
    assert files.OTHERS in found.notes


def test_other_files_of_directories_are_not_compared(tmp_path: Path) -> None:
    a, b = (Path(shutil.copytree(PYTHON, tmp_path / side)) for side in "ab")
    (b / "model.pt2").write_bytes(b"PK model")
    assert rewriter.diff(a, b).verdict == "identical"
    assert main(["instrument", "--in-place", str(b / "output_code.py")]) == OK
    assert (b / "output_code.py.orig").is_file()
    found = rewriter.diff(a, b)
    assert (found.verdict, found.notes) == ("instrumented", (files.OTHERS,))
