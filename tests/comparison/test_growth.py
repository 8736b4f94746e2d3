from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import dumps
from dumps import launch, value
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.types import Comparison


def dumped(folder: Path, results: list[torch.Tensor], dtype: str = "float32") -> Path:
    """A chain of launches with these results, saved."""
    rows = []
    before = value("x", file="x.pt", dtype=dtype)
    for index in range(len(results)):
        name = f"buf{index}.pt"
        written = value(f"buf{index}", "out", file=name, dtype=dtype)
        rows.append(launch(index, f"kernel_{'abcdef'[index]}", [before], [written]))
        before = {**written, "role": "in"}
    made = dumps.write(folder, rows)
    torch.save(torch.ones(4, 8).to(results[0].dtype), made / "rank0/run0/x.pt")
    for index, result in enumerate(results):
        torch.save(result, made / f"rank0/run0/buf{index}.pt")
    return made


def compared(tmp_path: Path, errors: list[float]) -> Comparison:
    """Runs whose results differ by these relative errors."""
    torch.manual_seed(0)
    right = [100 * torch.randn(4, 8) for _ in errors]  # absolute tolerances are small beside it
    sign = torch.where(torch.arange(32).view(4, 8) % 2 == 0, 1.0, -1.0)
    wrong = [
        (tensor.double() * (1 + error * sign)).float()
        for tensor, error in zip(right, errors, strict=True)
    ]
    return compare(dumped(tmp_path / "a", wrong), dumped(tmp_path / "b", right))


@pytest.mark.parametrize(
    ("errors", "culprits"),
    [
        ([0, 9e-7, 9e-7], []),  # within tolerance
        ([0, 0, 1e-2], [2]),
        ([0, 9e-7, math.nan], [2]),
        ([0, 1e-5, 2e-5], [1]),  # outside the tolerance at once
        ([0, 9e-7, 1e-4], [2]),  # a hundredfold: not what it was given
        ([0, 9e-7, 4e-6], [1]),  # the first is within tolerance, and has most of the error
        ([6e-8, 6e-8, 1e-4], [2]),  # rounding is no beginning
        ([9e-7, 9e-7, 3e-6], [0]),
    ],
)
def test_the_launch_that_multiplied_the_error_most(
    errors: list[float], culprits: list[int], tmp_path: Path
) -> None:
    comparison = compared(tmp_path, errors)
    assert [launch.place.launch for launch in comparison.culprits] == culprits
    assert comparison.equal == (not culprits)


def test_what_only_carries_an_error_is_downstream(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [0, 9e-7, 4e-6])
    first, second = comparison.launches[1:]
    assert (first.state, first.blame) == ("equal", "culprit")
    assert "outside the tolerance it is at #2 kernel_c" in first.reasons[-1]
    assert (second.state, second.blame) == ("numeric", "downstream")
    assert [str(place) for place in second.producers] == ["#1 kernel_b"]
