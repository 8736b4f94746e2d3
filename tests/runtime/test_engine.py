"""What the recorder measures on the CPU: statistics as of exact arithmetic, and fingerprints."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exact_statistics import adversarial
from measurements import check_measurement, large, measure
from rewriter.runtime.tensors import fingerprint

CASES = adversarial()


# --- Statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_measurements_agree_with_exact_arithmetic(name: str) -> None:
    check_measurement(measure([CASES[name]])[0], CASES[name])


def test_large_tensors_agree_with_exact_arithmetic() -> None:
    tensors = large()
    for found, tensor in zip(measure(tensors), tensors, strict=True):
        check_measurement(found, tensor)


def test_the_number_of_threads_does_not_matter() -> None:
    tensors = [torch.randn(700_000), torch.randn(1200, 1200).t()]
    threads = torch.get_num_threads()
    try:
        found = []
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            found.append(measure(tensors))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_dtypes_without_numbers_have_a_fingerprint() -> None:
    data = torch.arange(100, dtype=torch.uint8)
    packed = data.view(torch.float4_e2m1fn_x2) if hasattr(torch, "float4_e2m1fn_x2") else None
    for tensor in filter(lambda tensor: tensor is not None, [packed, data.view(torch.bits8)]):
        assert measure([tensor]) == [{"fingerprint": fingerprint(data)}]


# --- Fingerprints ---------------------------------------------------------------------------------

BYTES = st.binary(min_size=1, max_size=70)


def tensor_of(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@settings(max_examples=40, deadline=None)
@given(data=BYTES, place=st.integers(0, 10**6), repeat=st.sampled_from([1, 300, 5000]))
def test_each_bit_changes_the_fingerprint(data: bytes, place: int, repeat: int) -> None:
    whole = bytearray(data * repeat)
    before = fingerprint(tensor_of(whole))
    bit = place % (8 * len(whole))
    whole[bit // 8] ^= 1 << bit % 8
    assert fingerprint(tensor_of(whole)) != before


@settings(max_examples=40, deadline=None)
@given(data=BYTES, number=st.integers(1, 200_000), more=st.integers(1, 70_000))
def test_zeros_count_where_they_are(data: bytes, number: int, more: int) -> None:
    zeros = bytes(number)
    assert fingerprint(tensor_of(zeros)) != fingerprint(tensor_of(zeros + bytes(more)))
    if any(data):
        moved = fingerprint(tensor_of(bytes(more) + data + zeros))
        assert moved != fingerprint(tensor_of(data + bytes(more) + zeros))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(2, 20_000), seed=st.integers(0, 99), first=st.integers(0), last=st.integers(0)
)
def test_elements_that_change_places_change_the_fingerprint(
    count: int, seed: int, first: int, last: int
) -> None:
    values = torch.arange(count) * 7919 + seed
    swapped = values.clone()
    a, b = first % count, last % count
    swapped[a], swapped[b] = values[b], values[a]
    assert (fingerprint(swapped) == fingerprint(values)) == (a == b)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from([torch.int8, torch.float16, torch.float32, torch.complex128]),
    expand=st.booleans(),
)
def test_strides_do_not_matter(
    shape: list[int], order: random.Random, dtype: torch.dtype, expand: bool
) -> None:
    tensor = torch.arange(math.prod(shape)).view(shape).to(dtype)
    dims = list(range(len(shape)))
    order.shuffle(dims)
    view = tensor.permute(dims)[..., ::2]
    if expand:
        view = view.unsqueeze(1).expand(*view.shape[:1], 3, *view.shape[1:])
    copy = view.contiguous().clone()
    assert measure([view]) == measure([copy])


@pytest.mark.parametrize("shape", [(1500, 333), (9, 70_000), (70_000, 9), (40, 64, 81), (8, 8)])
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.float16, torch.float32, torch.int64, torch.complex128]
)
def test_transposed_matrices_are_measured_as_their_copies(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    whole = torch.randn(shape).mul(100).to(dtype).mT
    for view in (whole, whole[..., 1:, 3:], whole[..., ::2, :], whole[..., ::2]):
        assert measure([view]) == measure([view.contiguous()])


def test_the_fingerprint_of_version_1_stays() -> None:
    assert fingerprint(torch.zeros(0)) == FIRST["nothing"]
    assert fingerprint(torch.arange(100_000, dtype=torch.int32)) == FIRST["numbers"]


FIRST = {
    "nothing": "00000000000000000000000000000000",
    "numbers": "d5845daa05a515664bafab0675f01b58",
}
