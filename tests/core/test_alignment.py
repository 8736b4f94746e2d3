"""What stands for what in two sequences."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.core.align import Pair, align, matches
from rewriter.locate.names import canonical, launch_keys
from rewriter.locate.vocabulary import vocabulary

letters = st.lists(st.sampled_from("abcd"), max_size=12)


def longest(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of a longest common subsequence, by the textbook."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(before[j + 1], row[j]))
    return row[-1]


@settings(deadline=None)
@given(letters, letters)
def test_matches_are_a_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    found = matches(a, b)
    assert all(a[i] == b[j] for i, j in found)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(found))
    assert len(found) == longest(a, b)


def test_beyond_the_limit_of_edits_matches_are_still_sound() -> None:
    draw = random.Random(1)
    a = [draw.randrange(20) for _ in range(2500)]
    b = [draw.randrange(20) for _ in range(2500)]
    found = matches(a, b)
    assert all(a[i] == b[j] for i, j in found)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(found))
    assert len(found) > 700


@given(letters, letters)
def test_every_position_comes_up_once(a: list[str], b: list[str]) -> None:
    pairs = align([(x, x < "c") for x in a], [(x, x < "c") for x in b])
    assert sorted(pair.a for pair in pairs if pair.a is not None) == list(range(len(a)))
    assert sorted(pair.b for pair in pairs if pair.b is not None) == list(range(len(b)))
    for pair in pairs:
        if pair.a is not None and pair.b is not None:
            assert (a[pair.a] == b[pair.b]) >= (pair.level == 0)


def test_a_looser_key_fills_the_gaps_between_stricter_matches() -> None:
    a = [("a1", "a"), ("x1", "x"), ("b1", "b")]
    b = [("a1", "a"), ("x2", "x"), ("b1", "b")]
    assert align(a, b) == [Pair(0, 0, 0), Pair(1, 1, 1), Pair(2, 2, 0)]


def test_what_stands_elsewhere_has_moved() -> None:
    a, b = [(x,) for x in "abcd"], [(x,) for x in "bcda"]
    assert align(a, b) == [Pair(0, 3, 0, True), Pair(1, 0, 0), Pair(2, 1, 0), Pair(3, 2, 0)]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("extern_kernels.mm", "extern_kernels.addmm", False),
        ("triton_poi_fused_gelu_0", "triton_poi_fused_relu_0", False),
        ("triton_poi_fused_0", "triton_poi_fused_3", True),
        ("triton_poi_fused_gelu_0", "triton_poi_fused_gelu_3", True),
        ("extern_kernels.addmm", "aoti_torch_cuda_addmm_out", True),
        ("torch.ops.aten.topk.default", "aoti_torch_cpu_topk", True),
    ],
)
def test_canonical_names(a: str, b: str, same: bool) -> None:
    assert (canonical(a) == canonical(b)) == same


@pytest.mark.parametrize("device", vocabulary().devices)
def test_a_kernel_has_one_name_on_every_device(device: str) -> None:
    assert canonical(f"aoti_torch_{device}_addmm_out") == canonical("extern_kernels.addmm")
    assert canonical(f"aoti_torch_{device}_topk") == canonical("torch.ops.aten.topk.default")
    assert canonical(f"aoti_torch_{device}_topk") != canonical("aoti_torch_cpu_sort")


def test_a_kernel_is_known_by_its_source_where_there_is_one() -> None:
    one = launch_keys("triton_poi_fused_0", "triton", (), ["add"], ["aten.add"], "source")
    other = launch_keys("triton_poi_fused_7", "triton", (), ["add"], ["aten.add"], "source")
    changed = launch_keys("triton_poi_fused_0", "triton", (), ["add"], ["aten.add"], "another")
    assert one[0] == other[0]
    assert one[0] != changed[0]
    assert one[1] == changed[1]
