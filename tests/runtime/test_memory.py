"""Guard bands and what memory is filled with, without a wrapper."""

from __future__ import annotations

import ctypes
import random
import weakref

import pytest
import torch

from rewriter.runtime.engine_library import EngineLibrary, load
from rewriter.runtime.memory import patterns
from rewriter.runtime.memory.bands import Bands, band, bands
from rewriter.runtime.memory.guarded import fill, flat, guarded, is_shared

DTYPES = [
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
]
NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
SIZE = 512


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
@pytest.mark.parametrize("probe", patterns.PROBES)
def test_fills(probe: str, dtype: torch.dtype) -> None:
    """NaN and finite, even and odd; no two probes share a pattern, where a type has several."""
    name = str(dtype).removeprefix("torch.")
    first, second = (
        torch.frombuffer(bytearray(patterns.pattern(probe, number, name) * 2), dtype=dtype)
        for number in patterns.FILLS
    )
    if not dtype.is_floating_point and not dtype.is_complex:
        assert first.tolist()[0] % 2 == 0
        assert second.tolist()[0] % 2 == 1
        return
    numbers = [
        torch.view_as_real(x).double() if dtype.is_complex else x.double() for x in (first, second)
    ]
    assert bool(numbers[0].isnan().all())
    assert bool(numbers[1].isfinite().all())
    assert bool((numbers[1] != 0).all())
    if (
        dtype.itemsize <= 4 and name != "float8_e8m0fnu"
    ):  # what a kernel keeps of some it has of others
        assert {float(x) for x in numbers[1].flatten().sign()} == {-1.0, 1.0}
    if dtype.itemsize > 1:
        others = [patterns.pattern(x, number, name) for x in patterns.PROBES for number in (0, 1)]
        assert len(set(others)) == len(others)


@pytest.mark.parametrize(
    ("text", "fills"),
    [
        ("", (0, 0, 0)),
        ("0", (0, 0, 0)),
        ("1", (1, 1, 1)),
        ("bounds=1", (1, 0, 0)),
        ("poison=1, stale=1", (0, 1, 1)),
        ("1,poison=0", (1, 0, 1)),
        ("off", (0, 0, 0)),
    ],
)
def test_fills_by_probe(text: str, fills: tuple[int, ...]) -> None:
    assert tuple(patterns.parse_fills(text).values()) == fills


@pytest.mark.parametrize("text", ["2", "print=1", "bounds", "bounds=x", "=1", "-1"])
def test_fills_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="REWRITER_FILL is"):
        patterns.parse_fills(text)


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
@pytest.mark.parametrize(
    ("size", "stride"), [((5, 3), (4, 1)), ((7,), (1,)), ((), ()), ((2, 1, 3), (3, 9, 1))]
)
def test_a_guarded_buffer_is_like_the_one_it_replaces(
    dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    made = torch.empty_strided(size, stride, dtype=dtype)
    edge, inside = b"ABCDEFGH", b"12345678"
    result, memory = guarded(made, SIZE, edge, inside)
    assert (result.shape, result.stride(), result.dtype) == (made.shape, made.stride(), dtype)
    assert result.storage_offset() == 0
    assert not result._is_view()
    assert result.untyped_storage().nbytes() == made.untyped_storage().nbytes() == memory.nbytes
    assert result.data_ptr() % 512 == 0
    around = ctypes.string_at(memory.address - SIZE, memory.nbytes + 2 * SIZE)
    word = inside * (memory.nbytes // 8 + 1)
    assert around[:SIZE] == edge * (SIZE // 8)
    assert around[SIZE : SIZE + memory.nbytes] == word[: memory.nbytes]
    rest = (edge * (SIZE // 4))[memory.nbytes % 8 :]
    assert around[SIZE + memory.nbytes :] == rest[:SIZE]


def test_memory_goes_with_the_last_tensor_that_has_it() -> None:
    result, memory = guarded(torch.empty(4), SIZE, b"ABCDEFGH", None)
    whole = weakref.ref(memory.owner())  # type: ignore[arg-type]
    view = result[1:]
    del result
    assert whole() is not None
    del view
    assert whole() is None
    assert memory.owner() is None


def test_memory_that_another_tensor_has() -> None:
    alone = torch.empty(4)
    assert not is_shared(alone)
    view = alone[1:]
    assert is_shared(alone)
    assert is_shared(view)
    other = torch.empty(0).set_(alone.untyped_storage())
    del view
    assert is_shared(alone)
    del other
    assert not is_shared(alone)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 65])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_fill(size: int, offset: int) -> None:
    memory = torch.zeros(offset + size + 3, dtype=torch.uint8)
    fill(memory[offset : offset + size], b"ABCDEFGH")
    expected = (b"ABCDEFGH" * 9)[:size]
    assert bytes(memory.tolist()) == bytes(offset) + expected + bytes(3)


def test_flat_has_all_bytes_of_a_memory() -> None:
    tensor = torch.empty_strided((3, 2), (4, 1), dtype=torch.float16)
    assert flat(tensor).numel() == 20


def _bands() -> Bands:
    if not isinstance(load(), EngineLibrary):
        pytest.skip("no compiler")
    known = bands(-1)
    assert isinstance(known, Bands)
    return known


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("start", [0, 2, 5])
def test_damage(before: bool, item: int, start: int) -> None:
    """The nearest damage to the buffer, with the element there, after the launch that did it."""
    known, drawer = _bands(), random.Random(repr((before, item, start)))
    memory = bytearray(b"ABCDEFGH" * 66)
    first = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    begin = -first % 8 + start
    pattern = bytes(b"ABCDEFGH"[(x - first) % 8] for x in range(8))
    nearer = sorted({0, 1, item, drawer.randrange(20, 480)}, reverse=True)
    for damaged, nearest in enumerate(nearer, 1):
        places = known.take()
        assert places
        row = band(first + begin, 500, pattern, places[0], before=before, item=item)
        if damaged == 1:
            assert known.compare(row, 3, 0) == 0
            assert known.read(places[0]) is None
        memory[begin + (499 - nearest if before else nearest)] ^= 255
        assert known.compare(row, 7, 0) == 1
        assert known.compare(row, 9, 0) == 0
        damage = known.read(places[0])
        assert damage is not None
        element = nearest // item
        # Elements are counted, whichever of their bytes differ from the pattern.
        found = len({one // item for one in nearer[:damaged]})
        assert (damage.launch, damage.distance, damage.count) == (7, element, found)
        where = begin + (500 - (element + 1) * item if before else element * item)
        assert damage.element[: min(item, 8)] == memory[where : where + min(item, 8)]
        for place in places:
            known.give(place)
        assert known.read(places[0]) is None
