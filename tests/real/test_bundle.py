"""`rewriter diagnose --bundle`: an archive for a bug report, of a wrapper that is compiled here."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
import torch

import programs
from rewriter.cli import main
from test_verify import compiled_cache, plant, wrapper

__all__ = ["compiled_cache", "wrapper"]  # fixtures

pytestmark = pytest.mark.usefixtures("warm_python")


def unpacked(archive: str, folder: Path) -> dict[str, str]:
    """The texts in an archive, and its files in a folder."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
        names = opened.namelist()
    return {x: (folder / x).read_text() for x in names if not x.endswith(".pt")}


def test_a_wrong_launch(wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plant(wrapper, "another operator")
    command = ["diagnose", str(wrapper), "-d", "bad"]
    assert main([*command, "--bundle", "bundle.zip"]) == 1
    texts = unpacked("bundle.zip", tmp_path / "unpacked")
    report = texts["report.md"]
    titles = [x for x in report.splitlines() if x.startswith("### ")]
    assert titles == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    assert "launch #2 cpp_fused_gelu_1" in report
    assert f"PyTorch version: {torch.__version__}" in texts["versions.txt"]
    assert "aten.erf.default" in texts["graph.txt"]
    assert "_rw_reference_2(" in texts["wrapper.replaced.py"]
    assert "_rw_reference_2(" not in texts["wrapper.py"]
    for name, text in texts.items():
        assert str(tmp_path) not in text, name
        assert str(Path.home()) + "/" not in text, name
    # The launch runs alone, on values of its own.
    ran = [sys.executable, "repro/repro.py"]
    programs.run(*ran, cwd=tmp_path / "unpacked")
    recorded = next(Path("bad/values").glob("rank0/run0/000002/before*buf5_cpu.pt"))
    drawn = torch.load(next((tmp_path / "unpacked/repro").glob("given_*.pt")))
    assert drawn.shape == torch.load(recorded).shape
    assert not torch.equal(drawn, torch.load(recorded))
    # With the values it is compared with what it wrote.
    assert main(["diagnose", "bad", "--bundle", "with.zip", "--weights"]) == 1
    unpacked("with.zip", tmp_path / "with")
    given = torch.load(next((tmp_path / "with/repro").glob("given_*.pt")))
    assert torch.equal(given, torch.load(recorded))
    assert "equal bit for bit" in programs.run(*ran, cwd=tmp_path / "with").stdout
    # What is there is not replaced, and nothing is run for it.
    capfd.readouterr()
    assert main([*command, "--overwrite", "--bundle", "x.zip", "--weights", "--text"]) == 2
    assert main(["diagnose", "bad", "--weights"]) == 2
    assert main(["diagnose", "bad", "--bundle", "with.zip"]) == 2
    assert "error[exists]" in capfd.readouterr().err


def test_without_a_finding_it_says_what_is_not_there(
    wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(wrapper), "--bundle", "bundle.zip"]) == 0
    texts = unpacked("bundle.zip", tmp_path / "unpacked")
    assert set(texts) == {"report.md", "graph.txt", "versions.txt", "diagnosis.json"}
    assert "- not there: repro: no finding about a recorded call" in texts["report.md"]
    assert "not in the bundle: wrapper: no finding" in capfd.readouterr().err
