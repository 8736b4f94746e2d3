from __future__ import annotations

import pytest

from rewriter.comparison.artifacts.kernels import Kernels, pair, read
from rewriter.locate.types import KernelSource


def kernels(**sources: str) -> Kernels:
    return read(KernelSource(name, text) for name, text in sources.items())


@pytest.mark.parametrize(
    ("a", "b", "pairs", "only_a", "only_b"),
    [
        # One of two equal sources is launched, and the other one is called otherwise in B.
        ({"m_1": "x = 1"}, {"r_5": "x = 1"}, [("m_1", "r_5")], [], []),
        ({"old_1": "y = 1"}, {"new_2": "z = 1"}, [], ["old_1"], ["new_2"]),
        ({"k_0": "x = 1"}, {"k_0": "x = 2"}, [], [], []),
    ],
    ids=["equal sources", "on one side alone", "a changed source under one name"],
)
def test_pairs(
    a: dict[str, str],
    b: dict[str, str],
    pairs: list[tuple[str, str]],
    only_a: list[str],
    only_b: list[str],
) -> None:
    sides = (kernels(**{"k_0": "x = 1", **side}) for side in (a, b))
    assert pair(*sides, [("k_0", "k_0")]) == ([("k_0", "k_0"), *pairs], only_a, only_b)
