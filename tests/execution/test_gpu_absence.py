"""Whether a program can use a GPU, by devices and by the torch that its Python would import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rewriter.execution import gpu


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    return tmp_path / "dev"


@pytest.fixture
def torch_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The version.py of a torch that every Python here finds first."""
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return tmp_path / "site" / "torch" / "version.py"


def test_without_a_device(tmp_path: Path) -> None:
    assert gpu.why_none(["sh"], devices=tmp_path) == "there is no GPU here"


@pytest.mark.parametrize(
    ("version", "can"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", False),
        ("cuda = '12.8'\nhip = None\n", True),
        ("cuda = None\nhip: Optional[str] = '6.4'\n", True),
        ("debug = False\n", True),
        ("cuda = (\n", True),
    ],
    ids=["cpu", "cuda", "hip", "silent", "damaged"],
)
def test_by_its_torch(version: str, can: bool, devices: Path, torch_of: Path) -> None:
    torch_of.write_text(version)
    said = gpu.why_none([sys.executable, "train.py"], devices=devices)
    assert (not said) == can
    script = devices.parent / "launch"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    assert gpu.why_none([str(script)], devices=devices) == said


def test_where_it_cannot_be_told(devices: Path, torch_of: Path) -> None:
    torch_of.write_text("cuda = None\n")
    assert gpu.why_none(["sh", "-c", "python train.py"], devices=devices) == ""
