"""Values that were recorded where they were made, compared as launches view them."""

from __future__ import annotations

import pytest

from dumps import value
from rewriter.comparison.dumps.pairing import with_views
from rewriter.dump.rows import TensorRow, read

TRANSPOSED = "reinterpret_tensor(, (4, 4), (1, 4), 0)"


def row(name: str, stride: tuple[int, ...] = (4, 1)) -> TensorRow:
    facts = {"phase": "before", "fingerprint": "ab", "file": "x.pt"}
    return read(value(name, mean=0.5, shape=[4, 4], stride=stride, numel=16, **facts), TensorRow)


@pytest.mark.parametrize(
    ("a", "b", "stride", "compared"),
    [
        ("", "", (4, 1), "elements"),
        ("reinterpret_tensor(, (2, 8), (8, 1), 0)", "", (4, 1), "elements"),
        (TRANSPOSED, TRANSPOSED, (4, 1), "elements"),
        (TRANSPOSED, TRANSPOSED, (1, 4), "statistics"),
        (TRANSPOSED, "", (4, 1), "statistics"),
        ("", TRANSPOSED, (4, 1), "statistics"),
        ("wrapped(, s0)", "", (4, 1), "statistics"),
        ("reinterpret_tensor(, (2, 4), (4, 1), 0)", "", (4, 1), "nothing"),
        ("", "reinterpret_tensor(, (4, 4), (4, 1), 16)", (4, 1), "nothing"),
        ("reinterpret_tensor(, (4, 4), (0, 1), 0)", "", (4, 1), "nothing"),
    ],
)
def test_elements_are_compared_in_the_order_that_they_are_read_in(
    a: str, b: str, stride: tuple[int, ...], compared: str
) -> None:
    ours, theirs = row("x"), row("y", stride)
    views = [{name: view} if view else {} for name, view in (("x", a), ("y", b))]
    pairs = list(with_views([(ours, theirs)], *views))
    if compared == "nothing":
        assert pairs == []
    elif compared == "elements":
        assert pairs == [(ours, theirs)]
    else:
        ((one, other),) = pairs
        for known in (one, other):
            assert isinstance(known, TensorRow)
            assert (known.shape, known.file, known.digest) == ((16,), "", "")
            assert known.is_measured
            assert known.mean == 0.5
