"""A pair of `torch.compiler.precompile` that `instrument` wrote: torch loads it, and it computes
the same. Made and run by the installed torch, where that has it (2.15)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import programs
from rewriter.cli import main

pytestmark = pytest.mark.skipif(
    not hasattr(torch.compiler, "precompile"), reason="needs torch.compiler.precompile"
)

_LOAD = """
import sys, torch
from precompile_pair import model_and_input
model, example = model_and_input()
with torch.no_grad():
    loaded = torch.compiler.precompile.load(sys.argv[1], sys.argv[2])
    torch.save(loaded(model, example), sys.argv[3])
"""


def run(code: Path, cache: Path) -> tuple[torch.Tensor | None, programs.Done]:
    """What the pair computes in a process of its own."""
    fixtures, result = Path(__file__).parents[2] / "fixtures", code.with_suffix(".pt")
    line = [sys.executable, "-c", _LOAD, code, cache, result]
    ran = programs.run(*line, code=None, cwd=fixtures)
    return torch.load(result) if ran.returncode == 0 else None, ran


def test_a_pair_runs_with_probes_and_comes_back(tmp_path: Path) -> None:
    from precompile_pair import make

    expected = make(tmp_path)
    code, cache = tmp_path / "m.py", tmp_path / "m.cache"
    before = code.read_bytes(), cache.read_bytes()
    assert main(["instrument", str(code), "--probe", "print"]) == 0
    probed = tmp_path / "m.instrumented.py"

    # What used to be: the code alone has probes.
    result, ran = run(probed, cache)
    assert result is None
    assert "cache does not match python_code" in ran.stderr

    result, ran = run(probed, tmp_path / "m.instrumented.cache")
    assert result is not None, ran.stderr
    assert torch.equal(result, expected)
    assert "could not" not in ran.stderr  # torch took the kernels, too
    lines = [line.split()[2:4] for line in ran.stdout.splitlines()]
    shown = [number for number, *when in lines if when == ["after"]]
    assert shown == ["#0", "#1", "#1", "#1", "#2"]

    assert main(["strip", str(probed), "-o", str(tmp_path / "back.py")]) == 0
    assert ((tmp_path / "back.py").read_bytes(), (tmp_path / "back.cache").read_bytes()) == before

    assert main(["instrument", str(code), "--in-place", "--probe", "names"]) == 0
    result, ran = run(code, cache)
    assert result is not None, ran.stderr
    assert torch.equal(result, expected)
    assert main(["strip", str(code), "--in-place"]) == 0
    assert (code.read_bytes(), cache.read_bytes()) == before
