from __future__ import annotations

from rewriter.comparison.artifacts.kernels import Kernels, pair, read
from rewriter.locate.types import KernelSource


def kernels(**sources: str) -> Kernels:
    return read(KernelSource(name, text) for name, text in sources.items())


def test_equal_sources_are_never_removed_and_added() -> None:
    """One of two is launched, and the other one is called otherwise in B."""
    a, b = kernels(k_0="x = 1", m_1="x = 1"), kernels(k_0="x = 1", r_5="x = 1")
    assert pair(a, b, [("k_0", "k_0")]) == ([("k_0", "k_0"), ("m_1", "r_5")], [], [])


def test_a_changed_source_under_one_name_is_a_pair() -> None:
    a, b = kernels(k_0="x = 1"), kernels(k_0="x = 2")
    assert pair(a, b, [("k_0", "k_0")]) == ([("k_0", "k_0")], [], [])


def test_what_one_side_alone_defines() -> None:
    a, b = kernels(k_0="x = 1", old_1="y = 1"), kernels(k_0="x = 1", new_2="z = 1")
    assert pair(a, b, [("k_0", "k_0")]) == ([("k_0", "k_0")], ["old_1"], ["new_2"])
