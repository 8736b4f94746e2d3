"""Histograms and tiles of saved tensors, against torch's own."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from msgspec import structs

from report_dumps import row as value
from report_dumps import write_dump
from rewriter.comparison.dumps.compare import compare
from rewriter.core.errors import RewriterError
from rewriter.dump.rows import Statistic, TensorRow
from rewriter.report import histogram as module
from rewriter.report.compared import report as compared_report
from rewriter.report.histogram import BINS, error_tiles, histogram, tiles
from rewriter.report.page import page
from rewriter.report.types import Bins

NAN, INF = math.nan, math.inf
KNOWN = (0.0, 1.0)


def of(folder: Path, tensor: torch.Tensor, low: float, high: float) -> Bins | None:
    torch.save(tensor, folder / "x.pt")
    found = histogram(folder, row((low, high), dtype=tensor.dtype, shape=tuple(tensor.shape)))
    assert not isinstance(found, str), found
    return found


def saved(folder: Path, tensor: torch.Tensor) -> TensorRow:
    torch.save(tensor, folder / "x.pt")
    return row((0.0, 1.0), dtype=tensor.dtype, shape=tuple(tensor.shape))


def row(
    extremes: tuple[Statistic, Statistic] | None,
    file: str = "x.pt",
    *,
    dtype: torch.dtype = torch.float32,
    shape: tuple[int, ...] = (2,),
) -> TensorRow:
    name = str(dtype).removeprefix("torch.")
    made = TensorRow(phase="after", arg="x", role="out", dtype=name, shape=shape, file=file)
    if extremes is None:
        return made
    return structs.replace(made, numel=math.prod(shape), min=extremes[0], max=extremes[1])


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
    assert histogram(tmp_path, row(None)) is None
    assert histogram(tmp_path, row(KNOWN, "gone.pt")) is None


@pytest.mark.parametrize("high", ["inf", "nan", None, 10**400], ids=["inf", "nan", "none", "huge"])
def test_no_histogram_to_where_no_number_is(tmp_path: Path, high: Statistic) -> None:
    torch.save(torch.tensor([0.0, 1.0]), tmp_path / "x.pt")
    assert histogram(tmp_path, row((0.0, high))) is None


def test_a_name_in_a_dump_leads_nowhere_else(tmp_path: Path) -> None:
    run = tmp_path / "run0"
    run.mkdir()
    torch.save(torch.tensor([0.0, 1.0]), tmp_path / "x.pt")
    assert histogram(tmp_path, row(KNOWN)) is not None
    assert histogram(run, row(KNOWN, "../x.pt")) is None
    assert histogram(run, row(KNOWN, str(tmp_path / "x.pt"))) is None
    assert histogram(run, row(KNOWN, "x" * 5000)) is None


def test_strides_with_gaps_are_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 10)
    values = torch.arange(4 * 6 * 10, dtype=torch.float32).reshape(4, 6, 10)[:, 1:4, ::3]
    found = of(tmp_path, values.transpose(0, 2), values.min().item(), values.max().item())
    assert found is not None
    assert list(found.counts) == torch.histc(values, BINS).long().tolist()


ELSE = {
    "more elements": (torch.zeros(1).expand(10**11), (2,), "f32[100000000000], not f32[2]"),
    "far more": (torch.zeros(1).expand(2, 10**11), (2, 10**11), "repeats elements"),
    "another type": (torch.zeros(2, dtype=torch.int8), (2,), "holds i8[2], not f32[2]"),
    "no elements": (torch.empty(2, device="meta"), (2,), "on meta"),
    "sparse": (torch.eye(2).to_sparse(), (2, 2), "layout torch.sparse_coo"),
}


@pytest.mark.parametrize(("tensor", "shape", "why"), ELSE.values(), ids=ELSE.keys())
def test_what_was_not_recorded_is_not_read(
    tmp_path: Path, tensor: torch.Tensor, shape: tuple[int, ...], why: str
) -> None:
    torch.save(tensor, tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 10_000
    found = histogram(tmp_path, row(KNOWN, shape=shape))
    assert isinstance(found, str)
    assert why in found


class Untrusted:
    """Its file names a function, which is not called."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exit, ("",)


@pytest.mark.parametrize("content", [Untrusted(), [torch.ones(2)], b"PK not a tensor"], ids=type)
def test_a_file_that_is_no_tensor_is_an_error(tmp_path: Path, content: object) -> None:
    if isinstance(content, bytes):
        (tmp_path / "x.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "x.pt")
    with pytest.raises(RewriterError, match=r"x\.pt cannot be read") as caught:
        histogram(tmp_path, row(KNOWN))
    assert caught.value.slug == "corrupt-dump"
    assert "weights_only" not in str(caught.value)


def test_tiles_are_means_and_know_the_first_wrong_element(tmp_path: Path) -> None:
    values = torch.arange(6 * 130, dtype=torch.float32).reshape(2, 3, 130)
    values[1, 0, 129], values[0, 2, 5], values[1, 2, :] = torch.nan, torch.inf, -torch.inf
    found = tiles(tmp_path, saved(tmp_path, values))
    assert found is not None
    assert (found.rows, found.columns) == (6, 64)
    rows = values.reshape(6, 130)
    parts = [rows[:, (torch.arange(130) * 64 // 130) == at] for at in range(64)]
    for number, mean in enumerate(found.means):
        part = parts[number % 64][number // 64]
        finite = part[part.isfinite()]
        assert mean == (pytest.approx(finite.mean().item()) if finite.numel() else None)
        assert (number in found.wrong) == (finite.numel() < part.numel())
    assert found.first == (1, 0, 129)  # NaN, though an infinity comes before it
    assert found.tile == 3 * 64 + 63


@pytest.mark.parametrize(
    ("shape", "grid"), [((), (1, 1)), ((5,), (1, 5)), ((200, 3), (64, 3)), ((70, 2, 1), (64, 1))]
)
def test_tiles_of_any_shape(shape: tuple[int, ...], grid: tuple[int, int], tmp_path: Path) -> None:
    values = torch.full(shape, 2.0)
    found = tiles(tmp_path, saved(tmp_path, values))
    assert found is not None
    assert (found.rows, found.columns) == grid
    assert found.means == (2.0,) * (grid[0] * grid[1])
    assert (found.wrong, found.first, found.tile) == ((), None, None)
    values.reshape(-1)[-1] = torch.inf
    found = tiles(tmp_path, saved(tmp_path, values))
    assert found is not None
    assert found.first == tuple(size - 1 for size in shape)
    assert found.wrong == (found.tile,) == (grid[0] * grid[1] - 1,)


def test_what_is_no_tensor_of_the_dump_has_no_tiles(tmp_path: Path) -> None:
    row = saved(tmp_path, torch.zeros(0, 3))
    assert tiles(tmp_path, row) is None
    row = saved(tmp_path, torch.zeros(4))
    (tmp_path / "x.pt").write_bytes(b"no tensor")
    assert tiles(tmp_path, row) is None


def test_tiles_of_an_error_know_the_first_element_beyond_the_tolerance(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    expected = torch.full((2, 3, 4), 2.0)
    expected[0, 0] = torch.tensor([NAN, INF, -INF, 2.0])
    got = expected.clone()
    got[0, 1, 1], got[0, 2, 3], got[1, 0, 0] = 2.001, 2.5, NAN
    rows = saved(a, got), saved(b, expected)
    found = error_tiles((a, rows[0]), (b, rows[1]), 0.0, 1e-3)
    assert found is not None
    assert (found.rows, found.columns) == (6, 4)
    assert found.first == (0, 2, 3)
    assert found.tile == 2 * 4 + 3
    assert found.wrong == (2 * 4 + 3, 3 * 4)
    wanted = [0.0] * 24
    wanted[5], wanted[11] = pytest.approx(0.001, rel=1e-3), 0.5
    assert list(found.means) == [*wanted[:12], None, *wanted[13:]]
    assert error_tiles((a, rows[0]), (b, saved(b, expected[0])), 0.0, 1e-3) is None


def test_the_culprit_of_a_comparison_has_the_tiles_of_its_error(tmp_path: Path) -> None:
    dumps = [tmp_path / "a.dump", tmp_path / "b.dump"]
    for number, dump in enumerate(dumps):
        values = torch.zeros(8, 32)
        values[3, 4] = number
        write_dump(dump, [value(0, "after", "buf0", file="x.pt", max=float(number))])
        torch.save(values, dump / "rank0/run0/x.pt")
    shared = re.findall(r'id="run-0">(.*?)</script>', page(compared_report(compare(*dumps))))[0]
    (launch,) = json.loads(shared)
    (tiled,) = [reading for reading in launch[2] if len(reading) == 7]
    assert tiled[6][3:] == [[3 * 32 + 4], [3, 4], 3 * 32 + 4]
