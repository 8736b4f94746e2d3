"""Statistics of tensors, against references that do not use torch's arithmetic."""

import contextlib
import math
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exact_statistics import (
    COMPLEX,
    DTYPES,
    FLOAT8_DTYPES,
    INF,
    NAN,
    check,
    contents,
    data_of,
    decode,
    encode,
    float8,
    name_of,
)
from measurements import Measurement, measure
from sampling import sampled


def stats(tensor: torch.Tensor) -> Measurement:
    (result,) = measure([tensor])
    return result


# --- Values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_dtype_on_arbitrary_bits(dtype: torch.dtype, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12), label="count")
    size = count * dtype.itemsize
    raw = data.draw(st.binary(min_size=size, max_size=size), label="bits")
    if dtype == torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    tensor = encode(raw, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = stats(tensor)
    check(found, decode(raw, dtype), dtype)
    assert contents(tensor) == raw


@pytest.mark.parametrize("dtype", FLOAT8_DTYPES, ids=name_of)
def test_every_float8_pattern(dtype: torch.dtype) -> None:
    for byte in range(256):
        check(stats(encode(bytes([byte]), dtype)), [float8(byte, dtype)], dtype)
    check(stats(encode(bytes(range(256)), dtype)), [float8(b, dtype) for b in range(256)], dtype)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_other_values_do_not_depend_on_non_finite_ones(values: list[float]) -> None:
    """All-finite values may take a shorter way; it must lead to the same place."""
    found = stats(torch.tensor([*values, NAN, INF], dtype=torch.float32))
    check(found, [*values, NAN, INF], torch.float32)


# --- Layouts ------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    # From a contiguous (4, 6, 5) tensor.
    "contiguous": lambda t: t,
    "zero dimensions": lambda t: t[1, 2, 3],
    "empty": lambda t: t[:0],
    "empty inside": lambda t: t[:, :0].mT,
    "transposed": lambda t: t.mT,
    "permuted": lambda t: t.permute(1, 2, 0),
    "sliced": lambda t: t[1:, ::2, 1:4],
    "one column": lambda t: t[:, 3, :1],
    "expanded": lambda t: t[:, :1].expand(4, 9, 5),
    "expanded scalar": lambda t: t[2, 2, 2].expand(3, 4),
    "expanded and permuted": lambda t: t[:, None, ::2, ::3].expand(4, 7, 3, 2).permute(2, 1, 0, 3),
    "overlapping": lambda t: t.as_strided((7, 6, 5), (1, 3, 3), 4),
    "windows": lambda t: t.reshape(-1).unfold(0, 11, 4),
    "channels last": lambda t: t[None].contiguous(memory_format=torch.channels_last),
    "many units": lambda t: t[None, :, None, :, None, :],
}


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(
    ("layout", "dtype"), sampled(list(LAYOUTS), DTYPES, id=lambda one: str(one).split(".")[-1])
)
def test_layouts(layout: str, dtype: torch.dtype) -> None:
    # As integers of the same size: not every dtype can be copied for the reference.
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(dtype.itemsize)
    raw = data_of(dtype, 120)
    base = encode(raw, dtype)
    if bits is None:  # complex128: the same view of element numbers
        numbers = LAYOUTS[layout](torch.arange(120).view(4, 6, 5)).reshape(-1).tolist()
        expected = b"".join(raw[16 * number : 16 * number + 16] for number in numbers)
    else:
        expected = contents(LAYOUTS[layout](encode(raw, bits).view(4, 6, 5)))
    tensor = LAYOUTS[layout](base.view(4, 6, 5))
    check(stats(tensor), decode(expected, dtype), dtype)
    assert contents(base) == raw


@pytest.mark.parametrize("dtype", [*COMPLEX], ids=name_of)
def test_conjugate_and_negative_views(dtype: torch.dtype) -> None:
    raw = struct.pack("4e", 1.0, -2.0, 3.0, 5.0)
    parts = torch.frombuffer(bytearray(raw), dtype=torch.float16).to(COMPLEX[dtype])
    tensor = torch.view_as_complex(parts.view(2, 2))
    magnitudes = [math.hypot(1, 2), math.hypot(3, 5)]
    assert tensor.conj().is_conj()
    check(stats(tensor.conj()), magnitudes, dtype)
    check(stats(tensor.conj()[::2]), magnitudes[:1], dtype)
    negative = tensor.conj().imag
    assert negative.is_neg()
    check(stats(negative), [2.0, -5.0], negative.dtype)
    check(stats(torch._neg_view(tensor)), magnitudes, dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float64], ids=name_of)
def test_negative_views_of_reals(dtype: torch.dtype) -> None:
    tensor = torch._neg_view(torch.tensor([[1, 2, 3], [4, 5, 7]], dtype=dtype).mT)
    number = float if dtype.is_floating_point else int
    check(stats(tensor), [number(value) for value in (-1, -2, -3, -4, -5, -7)], dtype)
    assert tensor.is_neg()


# --- What cannot be measured --------------------------------------------------------------------


def unmeasurable() -> dict[str, Callable[[], torch.Tensor]]:
    def fake() -> torch.Tensor:
        from torch._subclasses.fake_tensor import FakeTensorMode

        return FakeTensorMode().from_tensor(torch.ones(3))

    def freed() -> torch.Tensor:
        tensor = torch.ones(1000)
        tensor.untyped_storage().resize_(0)
        return tensor

    def nested(layout: torch.layout) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)

    cases: dict[str, Callable[[], torch.Tensor]] = {
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "coo": lambda: torch.eye(3).to_sparse(),
        "csr": lambda: torch.eye(3).to_sparse_csr(),
        "meta": lambda: torch.ones(3, device="meta"),
        "fake": fake,
        "freed": freed,
        "nested": lambda: nested(torch.strided),
        "jagged": lambda: nested(torch.jagged),
    }
    for name in ("uint1", "uint4", "uint7", "int2", "int4", "bits8", "float4_e2m1fn_x2"):
        dtype = getattr(torch, name, None)
        if dtype is not None:
            cases[name] = lambda dtype=dtype: torch.empty(4, dtype=dtype)  # type: ignore[misc]
    return cases


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", unmeasurable())
def test_what_cannot_be_measured_gives_none(case: str) -> None:
    (found,) = measure([unmeasurable()[case]()])
    assert found.keys() <= {"fingerprint"}


# --- The model around it ------------------------------------------------------------------------


@contextlib.contextmanager
def switched(switch: Callable[[Any], object], to: Any, back: Any) -> Iterator[None]:
    switch(to)
    try:
        yield
    finally:
        switch(back)


SURROUNDINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: switched(torch.set_default_device, "meta", None),
    "device context": lambda: torch.device("meta"),
    "half by default": lambda: switched(torch.set_default_dtype, torch.float16, torch.float32),
    "double by default": lambda: switched(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": lambda: switched(torch.use_deterministic_algorithms, True, False),
}


def state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.empty(0).device,  # the default one
        torch.are_deterministic_algorithms_enabled(),
        bytes(torch.get_rng_state().tolist()),
    )


@pytest.mark.parametrize(
    ("name", "dtype"), sampled(list(SURROUNDINGS), DTYPES, id=lambda one: str(one).split(".")[-1])
)
def test_surroundings_neither_matter_nor_change(name: str, dtype: torch.dtype) -> None:
    raw = data_of(dtype, 50)
    tensor = encode(raw, dtype)
    expected = stats(tensor)
    with SURROUNDINGS[name]():
        before = state()
        assert stats(tensor) == expected
        assert state() == before
    assert contents(tensor) == raw


def test_tensors_that_require_grad() -> None:
    leaf = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    for tensor in (leaf, leaf.mT, leaf * 1, leaf.expand(4, 2, 3)):
        version = tensor._version
        check(stats(tensor), tensor.reshape(-1).tolist(), torch.float32)
        assert tensor._version == version
    (leaf * 2).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None


def test_inference_tensors() -> None:
    with torch.inference_mode():
        tensor = torch.arange(6.0).view(2, 3)
        inside = stats(tensor)
    assert tensor.is_inference()
    for view in (tensor, tensor.mT, tensor[:, 1:]):
        check(stats(view), view.reshape(-1).tolist(), torch.float32)
    assert inside == stats(tensor)


def test_overridden_functions_are_not_called() -> None:
    class Counting(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    tensor = torch.arange(6.0).as_subclass(Counting)
    Counting.calls = 0
    found = stats(tensor)
    assert Counting.calls == 0
    assert found == stats(torch.arange(6.0))
