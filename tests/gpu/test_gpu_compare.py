"""Dumps of recorded CUDA wrappers, plain and with a fault at a known launch, compared on a GPU."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import torch

import rewriter
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.tolerance import Tolerances

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, which runs them"
    ),
]

RECORDED = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11"
_STORED = re.compile(r"(tl\.store\(\w*out_ptr\d+ \+ .*?, )(tmp\d+)(, )")


def dump(source: Path, folder: Path, probe: str) -> Path:
    ran = rewriter.run(source, rewriter.select(probe), dump=folder, quiet=True)
    assert not ran.crashed, ran.ended.message  # NaN, which one fault makes, are exit code 1
    return folder


def planted(path: Path, folder: Path, factor: str) -> tuple[Path, int]:
    """The wrapper with what one Triton kernel stores multiplied, and the index of its launch.

    It is the second of the kernels that are launched once, so that something comes before it.
    """
    launches = rewriter.open(path).launches
    often = Counter(launch.kernel for launch in launches)
    chosen = [x for x in launches if x.kind == "triton" and often[x.kernel] == 1][1]
    text = path.read_text()
    start = text.index(f"def {chosen.kernel}(")
    found = _STORED.search(text, start)
    assert found is not None
    changed = f"{found[1]}{found[2]} * {factor}{found[3]}"
    folder.mkdir()
    wrong = folder / path.name
    wrong.write_text(text[: found.start()] + changed + text[found.end() :])
    return wrong, chosen.index


# With random weights, `gpt` has logits of a thousand: attention makes much of a rounding error.
TOLERANCES = {"mlp": None, "gpt": Tolerances(rtol=1e-5, atol=1e-2)}


@pytest.mark.parametrize("model", TOLERANCES)
def test_two_runs_are_equal(model: str, tmp_path: Path) -> None:
    """Kernels are tuned in each process, and tiles change rounding."""
    path = RECORDED / model / "python/output_code.py"
    dumps = (dump(path, tmp_path / name, "save") for name in "ab")
    comparison = rewriter.compare(*dumps, tolerances=TOLERANCES[model])
    assert comparison.equal, describe.verdict(comparison)
    assert not comparison.unmatched
    assert len(comparison.launches) > len(rewriter.open(path).launches)


# By hashes the first other tile is a difference, and `gpt` has kernels that choose one.
@pytest.mark.parametrize(
    ("model", "probe"),
    [("mlp", "save"), ("mlp", "print"), ("mlp", "hash"), ("gpt", "save"), ("gpt", "print")],
)
@pytest.mark.parametrize("factor", ["1.25", "float('nan')"], ids=["a constant", "NaN"])
def test_the_fault_is_found(model: str, factor: str, probe: str, tmp_path: Path) -> None:
    path = RECORDED / model / "python/output_code.py"
    wrong, index = planted(path, tmp_path / "wrong", factor)
    dumps = (
        dump(source, tmp_path / f"{source.parent.name}.dump", probe) for source in (wrong, path)
    )
    comparison = rewriter.compare(*dumps, tolerances=TOLERANCES[model])
    assert comparison.culprits[0].place.launch == index
    state = "numeric" if factor == "1.25" else "non-finite"
    assert comparison.culprits[0].state == state
