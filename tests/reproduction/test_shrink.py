"""Smaller sizes and values, by a question that is a plain function."""

from __future__ import annotations

import time

import torch

from rewriter.core.strides import is_dense
from rewriter.reproduction.minimise.minimise import in_words
from rewriter.reproduction.minimise.shrink import Holds, Shrinker


def shrinker(values: dict[str, torch.Tensor], holds: Holds, **sizes: int) -> Shrinker:
    return Shrinker(values, sizes, holds, time.monotonic() + 60, frozenset({"out"}))


def test_one_element_is_left_where_one_matters() -> None:
    torch.manual_seed(0)
    given = torch.randn(6, 8).t()
    wrong = shrinker({"x": given}, lambda values, sizes: float(values["x"][3, 2]) != 0)
    wrong.simplify()
    left = wrong.values["x"]
    assert left.nonzero().tolist() == [[3, 2]]
    assert left.stride() == given.stride()
    assert in_words(left) == f"[8, 6], zero but for [3, 2]: {left[3, 2].item():.6g}"


def test_what_holds_for_zeros_is_zero() -> None:
    wrong = shrinker({"x": torch.randn(4, 4), "out": torch.zeros(4)}, lambda values, sizes: True)
    wrong.simplify()
    assert in_words(wrong.values["x"]) == "[4, 4], all zero"
    assert wrong.trials == 1


def test_values_that_are_needed_stay() -> None:
    given = torch.randn(4, 4)
    wrong = shrinker({"x": given}, lambda values, sizes: torch.equal(values["x"], given))
    wrong.simplify()
    assert torch.equal(wrong.values["x"], given)


def test_dimensions_of_one_size_shrink_together_with_the_number() -> None:
    values = {"x": torch.randn(6, 4), "y": torch.randn(4, 6), "out": torch.zeros(6)}

    def holds(values: dict[str, torch.Tensor], sizes: dict[str, int]) -> bool:
        fits = values["x"].shape[0] == values["y"].shape[1] == sizes["s0"] == len(values["out"])
        return fits and sizes["s0"] >= 3 and values["x"].shape[1] == 4

    wrong = shrinker(values, holds, s0=6)
    wrong.shapes({6: "s0"})
    assert wrong.sizes == {"s0": 3}
    assert [tuple(x.shape) for x in wrong.values.values()] == [(3, 4), (4, 3), (3,)]
    assert all(is_dense(x.shape, x.stride()) for x in wrong.values.values())


def test_it_ends_in_time() -> None:
    late = Shrinker({"x": torch.randn(64)}, {}, lambda values, sizes: False, 0.0, frozenset())
    late.simplify()
    assert (late.stopped, late.trials) == (True, 0)


def test_overlapping_memory_is_left_alone() -> None:
    given = torch.randn(4).expand(3, 4)
    wrong = shrinker({"x": given}, lambda values, sizes: True)
    wrong.simplify()
    assert wrong.trials == 0
    assert not is_dense(given.shape, given.stride())
