"""Where recorders of these tests dump to, and what they wrote there."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    return tmp_path / "dump"
