"""Histograms of saved tensors, against torch's own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from rewriter.errors import RewriterError
from rewriter.reporting import histogram as module
from rewriter.reporting.histogram import BINS, histogram
from rewriter.reporting.types import Bins, Reading, Statistics

NAN, INF = math.nan, math.inf


def of(folder: Path, tensor: torch.Tensor, low: float, high: float) -> Bins | None:
    torch.save(tensor, folder / "x.pt")
    statistics = Statistics(tensor.numel(), low, high, 0.0, 1.0, 0, 0)
    return histogram(folder, reading(statistics))


def reading(statistics: Statistics | None, file: str = "x.pt") -> Reading:
    return Reading("after", "x", "", "out", "f32", (1,), statistics=statistics, file=file)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_counts_are_those_of_torch(
    tmp_path: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 1000)  # several parts
    values = (torch.randn(100, 77, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
    found = of(tmp_path, values.T, values.min().item(), values.max().item())
    assert found is not None
    assert list(found.counts) == torch.histc(values.double(), BINS).long().tolist()
    assert found.left_out == 0


def test_what_is_not_finite_is_counted_apart(tmp_path: Path) -> None:
    found = of(tmp_path, torch.tensor([NAN, INF, -INF, 0.0, 1.0, 1.0]), 0.0, 1.0)
    assert found is not None
    assert (found.counts[0], found.counts[-1], sum(found.counts), found.left_out) == (1, 2, 3, 3)


def test_complex_tensors_by_magnitude_and_the_whole_range_of_float64(tmp_path: Path) -> None:
    found = of(tmp_path, torch.tensor([3 + 4j, 0j]), 0.0, 5.0)
    assert found is not None
    assert (found.counts[0], found.counts[-1]) == (1, 1)
    largest = torch.finfo(torch.float64).max
    found = of(
        tmp_path, torch.tensor([-largest, 0, largest], dtype=torch.float64), -largest, largest
    )
    assert found is not None
    assert sum(found.counts) == 3


def test_no_histogram_where_there_is_nothing_to_see(tmp_path: Path) -> None:
    assert of(tmp_path, torch.ones(3), 1.0, 1.0) is None
    assert histogram(tmp_path, reading(None)) is None
    known = Statistics(1, 0.0, 1.0, 0.0, 1.0, 0, 0)
    assert histogram(tmp_path, reading(known, "gone.pt")) is None


def test_a_name_in_a_dump_leads_nowhere_else(tmp_path: Path) -> None:
    run = tmp_path / "run0"
    run.mkdir()
    known = Statistics(2, 0.0, 1.0, 0.0, 1.0, 0, 0)
    torch.save(torch.tensor([0.0, 1.0]), tmp_path / "x.pt")
    assert histogram(tmp_path, reading(known)) is not None
    assert histogram(run, reading(known, "../x.pt")) is None
    assert histogram(run, reading(known, str(tmp_path / "x.pt"))) is None


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"PK not a tensor")
    with pytest.raises(RewriterError) as caught:
        histogram(tmp_path, reading(Statistics(2, 0.0, 1.0, 0.0, 1.0, 0, 0)))
    assert caught.value.slug == "corrupt-dump"
    assert "x.pt" in caught.value.message
