"""What went into one element of a result."""

from __future__ import annotations

import pytest
import torch

from rewriter.diagnosis.element import _Given, _product
from rewriter.dump.rows import TensorRow


def _given(name: str, value: torch.Tensor) -> _Given:
    row = TensorRow(phase="before", arg=name, role="in", dtype="float32", shape=tuple(value.shape))
    return _Given(name, row, value, None)


@pytest.mark.parametrize("sizes", [[(8,), (8,)], [(8,), ()], [(), ()]])
def test_a_result_of_one_dimension_is_no_product_of_matrices(sizes: list[tuple[int, ...]]) -> None:
    """Kernels that are named after a product may compute what follows it alone."""
    given = [_given(f"x{place}", torch.ones(size)) for place, size in enumerate(sizes)]
    found = list(_product((3,), (8,), given))
    assert [x.name for x in found] == ["x0", "x1"]


def test_the_row_and_the_column_of_a_product() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    found = list(_product((1, 2), (2, 4), [_given("a", a), _given("b", b)]))
    assert [x.name for x in found] == ["a", "b"]
