"""Where packages are written: nothing there is lost, and what cannot be is known first."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from artifacts import ARTIFACTS
from rewriter.artifact.package.model import open_package
from rewriter.cli import main
from rewriter.instrumentation.rebuild import build, machine

PACKAGE = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"
SOURCES = ["instrument", str(PACKAGE), "--no-rebuild", "--overwrite", "-o"]


def test_a_directory_of_somebody_else_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.tex").write_text("important")
    assert main([*SOURCES, str(tmp_path / "precious")]) == 2
    assert "error[exists]" in capsys.readouterr().err
    assert (tmp_path / "precious/thesis.tex").read_text() == "important"


def test_a_directory_of_ours_is_overwritten(tmp_path: Path) -> None:
    assert main([*SOURCES, str(tmp_path / "sources")]) == 0
    (tmp_path / "sources/build.sh").unlink()
    assert main([*SOURCES, str(tmp_path / "sources")]) == 0
    assert (tmp_path / "sources/build.sh").is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["sources"]


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop"])
def test_what_is_no_file_is_not_replaced(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And it is known before anything is built."""
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("something was built"))
    output = tmp_path / "output.pt2"
    if kind == "fifo":
        os.mkfifo(output)
    elif kind == "directory":
        output.mkdir()
    else:
        output.symlink_to(output)
    before = output.lstat()
    assert main(["instrument", str(PACKAGE), "-o", str(output), "--overwrite"]) == 2
    assert "error[unwritable]" in capsys.readouterr().err
    assert stat.S_IFMT(output.lstat().st_mode) == stat.S_IFMT(before.st_mode)


def test_a_backup_of_something_else_is_known_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(PACKAGE, tmp_path / "model.pt2")
    (tmp_path / "model.pt2.orig").write_text("something else")
    assert main(["instrument", str(tmp_path / "model.pt2"), "--in-place"]) == 2
    assert "error[exists]" in capsys.readouterr().err
    assert (tmp_path / "model.pt2").read_bytes() == PACKAGE.read_bytes()


def test_the_directory_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*SOURCES, str(tmp_path / "sources")]) == 0
    monkeypatch.chdir(tmp_path / "sources")
    assert main(["list", "."]) == 0
    assert main(["doctor", "."]) == 1
    assert main(["strip", ".", "-o", str(tmp_path / "back.pt2")]) == 0
    assert (tmp_path / "back.pt2").read_bytes() == PACKAGE.read_bytes()
    assert main(["strip", "."]) == 0
    assert (tmp_path / "sources.pt2").read_bytes() == PACKAGE.read_bytes()


def test_a_directory_is_restored_beside_itself(tmp_path: Path) -> None:
    """Without -o, under the name that it had."""
    with zipfile.ZipFile(PACKAGE) as file:
        file.extractall(tmp_path / "unpacked")
    (tmp_path / "unpacked").rename(tmp_path / "model.instrumented")
    (wrapper,) = (tmp_path / "model.instrumented").rglob("*.wrapper.cpp")
    plain = wrapper.read_bytes()
    assert main(["instrument", str(wrapper), "-o", str(wrapper), "--overwrite"]) == 0
    assert main(["strip", str(tmp_path / "model.instrumented")]) == 0
    (restored,) = (tmp_path / "model").rglob("*.wrapper.cpp")
    assert restored.read_bytes() == plain


def test_a_compiler_is_found_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compiler").write_text("#!/bin/sh\n")
    (tmp_path / "compiler").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./compiler")
    assert machine.compiler() == str(tmp_path / "compiler")
    # Who names one does not want another.
    monkeypatch.setenv("CXX", "./nothing")
    assert machine.compiler("g++") == ""


def test_options_that_would_do_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--route", "link"], ["--no-check"], ["--import", "x"], ["--in-place"]):
        assert main(["instrument", str(PACKAGE), "--no-rebuild", *options]) == 2
        assert "error[idle-options]" in capsys.readouterr().err
    wrapper = ARTIFACTS / "cpu-torch2.13/mlp/aoti/wrapper.cpp"
    for options in (["--route", "link"], ["--no-rebuild"], ["--model", "x"]):
        assert main(["instrument", str(wrapper), *options, "-o", str(tmp_path / "x.cpp")]) == 2
        assert "error[idle-options]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_original_library_has_a_name_that_is_free() -> None:
    (model,) = open_package(PACKAGE).models
    assert model.library is not None
    assert model.original_library not in model.members
    assert len(model.original_library.encode()) == len(model.library.encode())
