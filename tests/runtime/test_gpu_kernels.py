"""The GPU's kernels, compiled for the host: the numbers of the engine, and what is gathered for one
launch."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exact_statistics import adversarial
from layouts import Layouts
from measurements import Measurement, check_close, large
from rewriter.runtime import build
from rewriter.runtime.bundle import SOURCES

pytestmark = pytest.mark.programs  # the compiler: five seconds
CASES = adversarial()
Measure = Callable[[Sequence[torch.Tensor]], list[Measurement]]


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The source of the GPU's kernels, for the host."""
    library = tmp_path_factory.mktemp("emulation") / "emulation.so"
    source = Path(__file__).parent / "engine/emulation.cpp"
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-I", str(SOURCES)]
    command = [build.compiler(), *flags, source, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    functions = ctypes.CDLL(str(library))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for run in (functions.emulate, functions.emulate_quickly):
        run.argtypes = [pointer, pointer, number, number, pointer]
    return functions


# Every third tensor; all in an exhaustive run.
some_of = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])


def emulate(run: Any, tensors: Sequence[torch.Tensor], number: int) -> list[Measurement]:
    layouts = Layouts(tensors)
    room = layouts.room()
    assert run(*layouts.pointers(), len(tensors), number, room) == len(tensors)
    return layouts.decode(room)


def is_taken(emulation: ctypes.CDLL, tensor: torch.Tensor) -> bool:
    """Whether the quick kernel measures this one."""
    layouts = Layouts([tensor])
    return emulation.emulate_quickly(*layouts.pointers(), 1, 0, layouts.room()) != -1


@pytest.fixture(scope="module")
def measure(emulation: ctypes.CDLL) -> Measure:
    """What is measured on the CPU, which `test_engine.py` holds to exact arithmetic."""
    return lambda tensors: emulate(
        lambda *given: emulation.measure_here(*given[:3], given[4]), tensors, 0
    )


@pytest.mark.parametrize(
    ("start", "size", "blocks"),
    [(0, 64, 1), (3, 4, 1), (3, 9, 1), (5, 3, 1), (7, 1, 1), (1, 30, 2), (8, 12001, 2), (6, 20, 1)],
)
def test_the_kernel_of_the_gpu_fills_memory(
    start: int, size: int, blocks: int, emulation: ctypes.CDLL
) -> None:
    """As the host's memory is filled: each byte by its address, and none beside."""
    made = [torch.zeros(start + size + 9, dtype=torch.uint8) for _ in range(2)]
    pointers = [ctypes.c_void_p(one.data_ptr() + start) for one in made]
    word = ctypes.c_uint64(int.from_bytes(b"ABCDEFGH", "little"))
    emulation.emulate_filling(*pointers, ctypes.c_uint64(size), word, blocks)
    assert made[0].data_ptr() % 8 == 0
    expected = (b"ABCDEFGH" * (size // 8 + 3))[start % 8 :][:size]
    for one in made:
        assert bytes(one.tolist()) == bytes(start) + expected + bytes(9)


def test_the_kernel_of_the_gpu_compares_guard_bands(emulation: ctypes.CDLL) -> None:
    """As the engine does on the host: whole bands, and damage of all of it, at both ends."""
    memory = bytearray(b"ABCDEFGH" * 200)
    first = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    pattern = bytes(b"ABCDEFGH"[(x - first) % 8] for x in range(8))
    for at in (30, 31, 640, 833, 1400):
        memory[at] ^= 1
    starts = [(4, 26, True), (30, 2, False), (600, 300, False), (601, 299, True), (1200, 9, False)]
    rows = [
        band(first + start, size, pattern, place, before=before, item=item)
        for place, (start, size, before, item) in enumerate(
            ((*row, item) for item in (1, 4, 16) for row in starts), 1
        )
    ]
    table, size = b"".join(rows), 32 * 4096
    here, there = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    emulation.emulate_comparing(table, len(rows), ctypes.c_uint64(5), there)
    assert emulation.compare_here(table, len(rows), ctypes.c_uint64(5), here) == 9
    assert there.raw[:8] == (5).to_bytes(8, "little")
    assert here.raw[32:] == there.raw[32:]


def band(address: int, size: int, pattern: bytes, place: int, *, before: bool, item: int) -> bytes:
    """A `Band` of cpp/engine/bands.h."""
    word = int.from_bytes(pattern, "little")
    return struct.pack("=QQIHBB", address, word, size, place, before, item)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("start", [0, 2, 5])
def test_damage(before: bool, item: int, start: int, emulation: ctypes.CDLL) -> None:
    """The nearest damage to the buffer, with the element there, after the launch that did it."""
    drawer = random.Random(repr((before, item, start)))
    memory = bytearray(b"ABCDEFGH" * 66)
    first = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    begin = -first % 8 + start
    pattern = bytes(b"ABCDEFGH"[(x - first) % 8] for x in range(8))
    row = band(first + begin, 500, pattern, 1, before=before, item=item)
    nearer = sorted({0, 1, item, drawer.randrange(20, 480)}, reverse=True)
    for damaged, nearest in enumerate(nearer, 1):
        damage = ctypes.create_string_buffer(2 * 32)

        def compare(launch: int, damage: Any = damage) -> int:
            return int(emulation.compare_here(row, 1, ctypes.c_uint64(launch), damage))

        if damaged == 1:
            assert compare(3) == 0
            assert damage.raw == bytes(64)
        memory[begin + (499 - nearest if before else nearest)] ^= 255
        assert [compare(7), compare(9)] == [1, 0]
        launch, distance, count, element = struct.unpack("=QQQ8s", damage.raw[32:])
        assert (launch, distance) == (7, nearest // item)
        # Elements are counted, whichever of their bytes differ from the pattern.
        assert count == len({one // item for one in nearer[:damaged]})
        where = begin + (500 - (distance + 1) * item if before else distance * item)
        assert element[: min(item, 8)] == memory[where : where + min(item, 8)]


STEP = struct.Struct("=Q QQIHBB QQQ")  # MemoryStep: a launch, a band, and what is filled
ROOM = 96  # bytes that steps are about


def memory_steps() -> st.SearchStrategy[list[tuple[int, int, int, int]]]:
    """Steps as `(launch, first byte, bytes, pattern)`; launch 0 fills."""
    step = st.tuples(
        st.integers(0, 3), st.integers(0, ROOM - 1), st.integers(1, 40), st.integers(0, 2)
    )
    return st.lists(step.map(lambda x: (x[0], x[1], min(x[2], ROOM - x[1]), x[3])), max_size=24)


@settings(max_examples=60, deadline=None)
@given(steps=memory_steps())
def test_lines_about_memory_that_wait_do_what_they_do_one_by_one(
    steps: list[tuple[int, int, int, int]], emulation: ctypes.CDLL
) -> None:
    """The kernel goes over the blocks that fill before those that compare, and the last part is not
    the last one that is written: what overlaps has to be done before."""
    both = [ctypes.create_string_buffer(ROOM + 8) for _ in range(2)]
    starts = [-(-ctypes.addressof(one) // 8) * 8 for one in both]
    words = [
        int.from_bytes(bytes([65 + 8 * one + x for x in range(8)]), "little") for one in range(3)
    ]
    packed, tables = b"", []
    for launch, first, size, which in steps:
        rows = [
            band(
                start + first,
                size,
                words[which].to_bytes(8, "little"),
                1 + which,
                before=False,
                item=4,
            )
            for start in starts
        ]
        tables.append(rows[0])
        part = struct.pack("=QQQ", starts[1] + first, size, words[which])
        packed += struct.pack("=Q", launch) + rows[1] + part
    assert len(packed) == STEP.size * len(steps)
    damage = ctypes.create_string_buffer(32 * 4)
    for (launch, first, size, which), table in zip(steps, tables, strict=True):
        if launch:
            emulation.compare_here(table, 1, ctypes.c_uint64(launch), damage)
        else:
            word = words[which].to_bytes(8, "little") * 6
            ctypes.memmove(starts[0] + first, word[first % 8 :], size)
    there = ctypes.create_string_buffer(32 * 4096)
    launches = emulation.emulate_work(packed, len(steps), there)
    here = damage.raw
    assert launches <= len(steps)
    assert ctypes.string_at(starts[1], ROOM) == ctypes.string_at(starts[0], ROOM)
    assert there.raw[32:128] == here[32:]


def test_lines_about_memory_behind_a_launch_take_one_launch_of_the_kernel(
    emulation: ctypes.CDLL,
) -> None:
    memory = ctypes.create_string_buffer(1000)
    start, word = ctypes.addressof(memory), 0
    first = band(start, 64, bytes(8), 1, before=True, item=4)
    rows = [struct.pack("=Q", 7) + first + bytes(24)]
    for at in (100, 300, 500):  # given up, and allocated with a band
        rows.append(struct.pack("=Q", 0) + bytes(24) + struct.pack("=QQQ", start + at, 100, word))
    damage = ctypes.create_string_buffer(32 * 4)
    assert emulation.emulate_work(b"".join(rows), len(rows), damage) == 1
    overlapping = struct.pack("=Q", 0) + bytes(24) + struct.pack("=QQQ", start + 399, 2, word)
    assert emulation.emulate_work(b"".join([*rows, overlapping]), len(rows) + 1, damage) == 2


@some_of
def test_the_kernel_of_the_gpu_agrees_with_the_engine(
    emulation: ctypes.CDLL, step: int, measure: Measure
) -> None:
    tensors = [*CASES.values(), *large()][::step]
    for start in range(0, len(tensors), 16):
        some = tensors[start : start + 16]
        for found, expected in zip(emulate(emulation.emulate, some, 3), measure(some), strict=True):
            check_close(found, expected)


QUICK = (torch.float32, torch.bfloat16, torch.float16)


def quick() -> Iterator[torch.Tensor]:
    """What the quick kernel takes: aligned vectors of the most common dtypes, not empty."""
    for tensor in CASES.values():
        if tensor.dtype in QUICK and tensor.numel():
            yield tensor.contiguous().clone()
    for dtype in QUICK:
        for count in (1, 53, 4097, 40_001):
            values = torch.randn(count) * 3 + 100
            yield values.to(dtype)
            values[:: count // 5 + 1] = torch.tensor(float("nan"))
            values[count // 2] = float("-inf")
            values[-1] = float("inf")
            yield values.to(dtype)
        yield torch.full((50_000,), float("-inf"), dtype=dtype)
        values = torch.randn(3, 5, 37, 24).to(dtype)
        values[2, 3, 30, 20] = float("nan")
        for order in ((0, 2, 1, 3), (2, 1, 0, 3), (1, 0, 2, 3)):
            yield values.permute(order)
        yield values[:, 1:4, ::3]
        yield values[1:, :, :, 8:16]
        yield values[0, 0, :1].expand(300, 24)
    yield torch.randn((1 << 20) + 70_001)


@some_of
def test_the_quick_kernel_agrees_with_the_engine(
    emulation: ctypes.CDLL, step: int, measure: Measure
) -> None:
    tensors = list(quick())[::step]
    for start in range(0, len(tensors), 6):
        some = tensors[start : start + 6]
        found = emulate(emulation.emulate_quickly, some, 0)
        for mine, expected in zip(found, measure(some), strict=True):
            check_close(mine, expected)


def test_parts_that_are_not_there_make_no_row(emulation: ctypes.CDLL) -> None:
    some = [torch.randn(30_000), torch.randn(100), torch.randn(50_000).bfloat16()]
    for late in (1, 2, 3):
        layouts = Layouts(some)
        assert emulation.emulate_quickly(*layouts.pointers(), 3, late, layouts.room()) == 3 - late


@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 8, 24, 40]), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from(QUICK),
    offset=st.integers(0, 9),
    expand=st.booleans(),
)
def test_the_quick_kernel_takes_rows_of_whole_vectors(
    emulation: ctypes.CDLL,
    shape: list[int],
    order: random.Random,
    dtype: torch.dtype,
    offset: int,
    expand: bool,
    measure: Measure,
) -> None:
    """Whatever strides are, and wherever the tensor begins: that rows are whole is enough."""
    dims = list(range(len(shape)))
    order.shuffle(dims)
    values = torch.arange(offset + math.prod(shape)).sin().to(dtype)[offset:]
    tensor = values.view(shape).permute(dims)
    if expand:
        tensor = tensor[..., 0:7:5].unsqueeze(-1).expand(*tensor.shape[:-1], -1, 16)
    if not is_taken(emulation, tensor):
        assert tensor.shape[-1] % (16 // dtype.itemsize)
        return
    (found,) = emulate(emulation.emulate_quickly, [tensor], 0)
    check_close(found, measure([tensor])[0])


def transposed() -> Iterator[torch.Tensor]:
    """Matrices whose columns are contiguous, of units that are whole rows or not, and batches."""
    yield torch.randn(776, 67).half().t()  # whose rows are not of whole groups
    yield torch.randn(2208, 1000).bfloat16().t()  # of tiles
    for dtype in QUICK:
        yield torch.randn(1024, 24).to(dtype).t()  # units of whole rows
        yield torch.randn(800, 67).to(dtype).t()  # of rows and parts of them; the last one is short
        yield torch.randn(16392, 3).to(dtype).t()  # of less than a row
        yield torch.randn(3, 288, 41).to(dtype).mT
        yield torch.randn(2, 96, 3, 37).to(dtype).permute(2, 0, 3, 1)
        yield torch.randn(81 * 64 + 3).to(dtype)[3:].view(64, 81).t()[1:]
        special = torch.randn(544, 45).to(dtype)
        special[::50, 7], special[3, ::9] = float("nan"), float("inf")
        yield special.t()


@some_of
def test_the_quick_kernel_measures_transposed_matrices(
    emulation: ctypes.CDLL, step: int, measure: Measure
) -> None:
    tensors = list(transposed())[::step]
    for start in range(0, len(tensors), 6):
        some = tensors[start : start + 6]
        found = emulate(emulation.emulate_quickly, some, 0)
        for mine, expected in zip(found, measure(some), strict=True):
            check_close(mine, expected)


def test_what_the_quick_kernel_leaves_to_the_other(emulation: ctypes.CDLL) -> None:
    ones = torch.ones(4, 8)
    many = torch.ones(40)
    dims = torch.ones(2, 3, 2, 3, 9).permute(4, 2, 0, 3, 1)
    short = (ones[:, :3], ones[:3].t(), many[1:], dims)
    for tensor in (*short, many.double(), many.int()):
        assert not is_taken(emulation, tensor)


def few() -> Iterator[torch.Tensor]:
    """What fits into a row."""
    for tensor in CASES.values():
        if tensor.numel() * tensor.element_size() <= 96:
            yield tensor.contiguous()
    yield torch.tensor(7, dtype=torch.uint64)
    yield torch.tensor([-(2**63), 2**63 - 1, 5])
    yield torch.randn(0, 5, dtype=torch.bfloat16)
    yield torch.randn(2, 3, dtype=torch.complex128)
    yield torch.arange(97, dtype=torch.uint8)[1:]
    yield torch.tensor([[True], [False]])


def test_few_elements_come_in_their_row(emulation: ctypes.CDLL, measure: Measure) -> None:
    tensors = list(few())
    for start in range(0, len(tensors), 6):
        some = [*tensors[start : start + 6], torch.randn(70_000)]
        found = emulate(emulation.emulate_quickly, some, 0)
        for mine, expected in zip(found, measure(some), strict=True):
            assert mine == expected or check_close(mine, expected) is None


# --- What is gathered for one launch of the quick kernel ------------------------------------------

AT_ONCE, SOON, TOGETHER = range(3)


@dataclass
class Device:
    """The GPU of the emulation."""

    functions: ctypes.CDLL
    kept: list[Layouts] = field(default_factory=list)  # of what is not measured at once

    def measure(self, tensors: Sequence[torch.Tensor], when: int, stream: int = 0) -> int:
        layouts = Layouts(tensors)
        self.kept.append(layouts)
        first = self.functions.device_measure(*layouts.pointers(), len(tensors), stream, when)
        assert isinstance(first, int)
        return first

    def read(
        self, first: int, tensors: Sequence[torch.Tensor], waited: int = 0
    ) -> list[Measurement] | None:
        """None where some did not come."""
        layouts = Layouts(tensors)
        room = layouts.room()
        if self.functions.device_read(first, len(tensors), waited, room) < len(tensors):
            return None
        return layouts.decode(room)

    def launches(self) -> tuple[int, ...]:
        return self._counts()[:2]

    def blocks(self) -> int:
        """Of the last launch of the quick kernel."""
        return self._counts()[2]

    def of_memory(self) -> tuple[int, ...]:
        """Launches that act on memory: behind measuring, and alone."""
        return self._counts()[3:]

    def _counts(self) -> tuple[int, ...]:
        counts = (ctypes.c_int * 5)()
        self.functions.device_launches(counts)
        return tuple(counts)

    def fill(self, tensor: torch.Tensor, stream: int = 0) -> None:
        self.functions.device_fill.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int
        ]  # fmt: skip
        size = tensor.nbytes
        assert self.functions.device_fill(tensor.data_ptr(), size, 0x7FC0 << 48, stream)


@pytest.fixture
def device(emulation: ctypes.CDLL) -> Iterator[Device]:
    pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    emulation.device_measure.argtypes = [pointer, pointer, number, number, number]
    emulation.device_measure.restype = wide
    emulation.device_read.argtypes = [wide, number, ctypes.c_int64, pointer]
    yield Device(emulation)
    emulation.device_break(0)
    emulation.device_merge()


PATIENCE = 10**6  # nanoseconds: Gpu::patience


def test_what_may_wait_is_measured_with_the_next(device: Device, measure: Measure) -> None:
    before = device.launches()
    first, second = [torch.randn(300)], [torch.randn(40, 40), torch.tensor(3)]
    expected = measure(first), measure(second)
    rows = device.measure(first, TOGETHER), device.measure(second, SOON)
    # Whoever comes later does not change what is known of these.
    first[0].fill_(0)
    device.functions.device_merge()
    found = device.read(rows[0], first), device.read(rows[1], second)
    for mine, right in zip(found, expected, strict=True):
        assert mine is not None
        list(map(check_close, mine, right))
    assert device.launches() == (before[0] + 1, before[1])


@pytest.mark.parametrize(
    ("sizes", "launches"),
    [([60, 30], 1), ([60, 45, 10], 2), ([110, 10], 2), ([30, 30, 30, 30, 30], 2)],
)
def test_what_waits_is_no_more_than_caches_hold(
    device: Device, sizes: list[int], launches: int, measure: Measure
) -> None:
    """Sizes are hundredths of a MiB, of which one does not wait in the emulation."""
    before = device.launches()
    several = [[torch.randn(size * (1 << 18) // 100)] for size in sizes]
    rows = [device.measure(some, TOGETHER) for some in several]
    device.functions.device_merge()
    for first, some in zip(rows, several, strict=True):
        found = device.read(first, some)
        assert found is not None
        list(map(check_close, found, measure(some)))
    assert device.launches() == (before[0] + launches, before[1])


def test_a_tensor_that_is_measured_with_others_is_not_quartered(
    device: Device, measure: Measure
) -> None:
    some = [torch.randn(36 << 15).bfloat16()]  # 36 tiles, each of 64 KiB
    found = []
    for when, blocks in ((SOON, 144), (TOGETHER, 36)):
        first = device.measure(some, when)
        device.functions.device_merge()
        assert device.blocks() == blocks
        measured = device.read(first, some)
        assert measured is not None
        found += measured
    (expected,) = measure(some)
    for mine in found:
        check_close(mine, expected)


def test_what_waits_is_measured_for_who_asks_for_it(device: Device) -> None:
    some = [torch.randn(5000)]
    before = device.launches()
    first = device.measure(some, TOGETHER)
    assert device.read(first, some) is None
    assert device.launches() == before
    assert device.read(first, some, PATIENCE) is None  # which has it measured
    assert device.launches() == (before[0] + 1, before[1])
    device.functions.device_merge()
    assert device.read(first, some) is not None


def test_who_waited_for_one_row_has_all_that_were_merged_with_it(
    device: Device, measure: Measure
) -> None:
    """A millisecond for each would leave a recorder far behind the device."""
    many = [[torch.randn(1000)] for _ in range(3)]
    issued = [device.measure(some, SOON) for some in many]
    assert device.read(issued[0], many[0]) is None
    assert device.read(issued[0], many[0], PATIENCE) is None  # which has it merged
    for first, some in zip(issued, many, strict=True):
        found = device.read(first, some)
        assert found is not None
        list(map(check_close, found, measure(some)))
    after = [torch.randn(1000)]
    assert device.read(device.measure(after, SOON), after) is None


def test_memory_is_filled_behind_measuring_by_one_launch(device: Device, measure: Measure) -> None:
    some = [torch.randn(40_000), torch.randn(3, 5), torch.randn(700).half()]
    expected = measure(some)
    before, of_memory = device.launches(), device.of_memory()
    for _ in range(2):  # blocks are counted on from launch to launch
        first = device.measure(some, TOGETHER)
        assert device.functions.device_waits()
        device.fill(some[0])
        assert not device.functions.device_waits()
    device.functions.device_merge()
    assert device.launches() == before
    assert device.of_memory() == (of_memory[0] + 2, of_memory[1])
    assert some[0].view(torch.int64).eq(0x7FC0 << 48).all()
    found = device.read(first, some)
    assert found is not None
    list(map(check_close, found[1:], expected[1:]))  # the other one is what was filled before
    other = [torch.randn(40_000)]
    right = measure(other)
    first = device.measure(other, TOGETHER)
    device.fill(other[0])
    device.functions.device_merge()
    found = device.read(first, other)
    assert found is not None
    check_close(found[0], right[0])


def test_what_waits_on_another_stream_is_measured_before_memory_is_filled(
    device: Device, measure: Measure
) -> None:
    some = [torch.randn(3000)]
    expected = measure(some)
    before, of_memory = device.launches(), device.of_memory()
    first = device.measure(some, TOGETHER, stream=1)
    device.fill(some[0], stream=2)
    device.functions.device_merge()
    found = device.read(first, some)
    assert found is not None
    check_close(found[0], expected[0])
    assert device.launches() == (before[0] + 1, before[1])
    assert device.of_memory() == (of_memory[0], of_memory[1] + 1)


@pytest.mark.parametrize("when", [AT_ONCE, SOON])
def test_another_stream_or_kernel_does_not_wait(device: Device, when: int) -> None:
    waits, other = [torch.randn(500)], [torch.randn(2000).double()]
    before = device.launches()
    first = device.measure(waits, TOGETHER, stream=1)
    device.measure(other, when, stream=2)
    device.functions.device_merge()
    assert device.read(first, waits) is not None
    assert device.launches()[0] == before[0] + 1


def test_more_than_a_launch_takes_are_several(device: Device, measure: Measure) -> None:
    many = [torch.randn(60 + i) for i in range(30)]
    many[17] = torch.randn(4200).double()
    many[20] = torch.tensor([1, 2])
    before = device.launches()
    first = device.measure(many, SOON)
    device.functions.device_merge()
    found = device.read(first, many)
    assert found is not None
    for mine, right in zip(found, measure(many), strict=True):
        assert mine == right or check_close(mine, right) is None
    # Twelve at a time, of which the second dozen has one that the quick kernel does not take.
    assert device.launches() == (before[0] + 2, before[1] + 1)


def test_a_launch_that_fails_takes_no_other_row(device: Device) -> None:
    lost, after = [torch.randn(500)], [torch.randn(700)]
    first = device.measure(lost, TOGETHER)
    device.functions.device_break(1)
    assert not device.measure([torch.randn(100)], SOON)
    device.functions.device_break(0)
    second = device.measure(after, SOON)
    device.functions.device_merge()
    assert device.read(first, lost) is None
    assert device.read(second, after) is not None


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0, 1, 30, 3000, 17_000]), min_size=1, max_size=14),
            st.sampled_from([SOON, TOGETHER, TOGETHER]),
            st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_all_that_is_measured_comes(
    emulation: ctypes.CDLL, steps: list[tuple[list[int], int, int]], measure: Measure
) -> None:
    pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    emulation.device_measure.argtypes = [pointer, pointer, number, number, number]
    emulation.device_measure.restype = wide
    emulation.device_read.argtypes = [wide, number, ctypes.c_int64, pointer]
    device = Device(emulation)
    issued = []
    for sizes, when, stream in steps:
        tensors = [torch.randn(size) for size in sizes]
        issued.append((device.measure(tensors, when, stream), tensors))
    emulation.device_merge()
    for first, tensors in issued:
        found = device.read(first, tensors)
        assert found is not None
        list(map(check_close, found, measure(tensors)))
