"""The GPU's kernels, compiled for the host: the numbers of the engine, and what is gathered for one
launch."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
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
AT_ONCE, SOON, TOGETHER = range(3)  # Gpu::When
PATIENCE = 10**6  # nanoseconds: Gpu::patience
FAILS, LACKS_A_BLOCK = 1, 2  # what may be wrong with a launch of the quick kernel
DAMAGE = 32 * 4096  # bytes of all records of damage
# Every third tensor; all in an exhaustive run.
some_of = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])


@dataclass
class Device:
    """The GPU of the emulation, whose launches run here."""

    functions: ctypes.CDLL
    kept: list[Layouts] = field(default_factory=list)  # of what is not measured at once

    def measure(self, tensors: Sequence[torch.Tensor], when: int, stream: int = 0) -> int:
        layouts = Layouts(tensors)
        self.kept.append(layouts)
        return int(self.functions.device_measure(layouts.all, len(tensors), stream, when))

    def read(
        self, first: int, tensors: Sequence[torch.Tensor], waited: int = 0
    ) -> list[Measurement] | None:
        """None where some did not come."""
        layouts = Layouts(tensors)
        room = layouts.room()
        if self.functions.device_read(first, len(tensors), waited, room) < len(tensors):
            return None
        return layouts.decode(room)

    def check(self, first: int, tensors: Sequence[torch.Tensor], expected: Any = None) -> None:
        """What came of these is what the CPU measures, or what was expected of them."""
        found = self.read(first, tensors)
        assert found is not None
        for mine, right in zip(found, expected or self.on_cpu(tensors), strict=True):
            assert mine == right or check_close(mine, right) is None

    def on_cpu(self, tensors: Sequence[torch.Tensor]) -> list[Measurement]:
        """What is measured on the CPU, which `test_engine.py` holds to exact arithmetic."""
        layouts = Layouts(tensors)
        room = layouts.room()
        count = len(tensors)
        assert self.functions.measure_here(layouts.all, count, room) == count
        return layouts.decode(room)

    def check_all(self, tensors: Sequence[torch.Tensor], when: int, size: int) -> None:
        """Have so many measured at a time, all by one kernel."""
        for start in range(0, len(tensors), size):
            some, before = tensors[start : start + size], self.launches()
            first = self.measure(some, when)
            self.functions.device_merge()
            self.check(first, some)
            assert self.launches()[when == SOON] == before[when == SOON]

    def takes_quickly(self, tensor: torch.Tensor) -> bool:
        """Whether the quick kernel measures this one."""
        before = self.launches()
        first = self.measure([tensor], SOON)
        self.functions.device_merge()
        self.check(first, [tensor])
        return self.launches()[1] == before[1]

    def launches(self) -> tuple[int, ...]:
        """Of the quick kernel, and of the one for all tensors."""
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

    def fill(self, *parts: bytes, stream: int = 0) -> None:
        """Fill parts of memory, each a `Filled` of cpp/engine/bands.h."""
        packed = b"".join(parts)
        assert self.functions.device_act(b"", 0, 0, packed, len(parts), stream, None)

    def compare(self, bands: Sequence[bytes], launch: int) -> bytes:
        """The records of damage."""
        room = ctypes.create_string_buffer(DAMAGE)
        packed = b"".join(bands)
        assert self.functions.device_act(packed, len(bands), launch, b"", 0, 0, room)
        return room.raw


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The source of the GPU's kernels, for the host."""
    library = tmp_path_factory.mktemp("emulation") / "emulation.so"
    source = Path(__file__).parent / "engine/emulation.cpp"
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-I", str(SOURCES)]
    command = [build.compiler(), *flags, source, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    functions = ctypes.CDLL(str(library))
    pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    functions.device_measure.argtypes = [pointer, number, number, number]
    functions.device_measure.restype = wide
    functions.device_read.argtypes = [wide, number, ctypes.c_int64, pointer]
    functions.device_act.argtypes = [pointer, number, wide, pointer, number, number, pointer]
    functions.compare_here.argtypes = [pointer, number, wide, pointer]
    return functions


@pytest.fixture
def device(emulation: ctypes.CDLL) -> Iterator[Device]:
    yield Device(emulation)
    emulation.device_break(0)
    emulation.device_merge()


@pytest.mark.parametrize(
    ("start", "size"), [(0, 64), (3, 4), (3, 9), (5, 3), (7, 1), (1, 30), (8, 12001), (6, 20)]
)
def test_the_kernel_of_the_gpu_fills_memory(start: int, size: int, device: Device) -> None:
    """Each byte by its address, and none beside; in two parts, of which the first ends anywhere."""
    made = torch.zeros(start + size + 9, dtype=torch.uint8)
    assert made.data_ptr() % 8 == 0
    first, word = made.data_ptr() + start, int.from_bytes(b"ABCDEFGH", "little")
    device.fill(filled(first, size // 2, word), filled(first + size // 2, size - size // 2, word))
    expected = (b"ABCDEFGH" * (size // 8 + 3))[start % 8 :][:size]
    assert bytes(made.tolist()) == bytes(start) + expected + bytes(9)


def test_the_kernel_of_the_gpu_compares_guard_bands(device: Device) -> None:
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
    here, there = ctypes.create_string_buffer(DAMAGE), device.compare(rows, 5)
    assert device.functions.compare_here(b"".join(rows), len(rows), 5, here) == 9
    assert there[:8] == (5).to_bytes(8, "little")
    assert here.raw[32:] == there[32:]


def filled(address: int, size: int, word: int) -> bytes:
    return struct.pack("=QQQ", address, size, word)


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
            return int(emulation.compare_here(row, 1, launch, damage))

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
        word = words[which].to_bytes(8, "little")
        here, there = (
            band(start + first, size, word, 1 + which, before=False, item=4) for start in starts
        )
        tables.append(here)
        part = filled(starts[1] + first, size, words[which])
        packed += struct.pack("=Q", launch) + there + part
    assert len(packed) == STEP.size * len(steps)
    damage = ctypes.create_string_buffer(32 * 4)
    for (launch, first, size, which), table in zip(steps, tables, strict=True):
        if launch:
            emulation.compare_here(table, 1, launch, damage)
        else:
            word = words[which].to_bytes(8, "little") * 6
            ctypes.memmove(starts[0] + first, word[first % 8 :], size)
    found = ctypes.create_string_buffer(DAMAGE)
    assert emulation.device_work(packed, len(steps), found) <= len(steps)
    assert ctypes.string_at(starts[1], ROOM) == ctypes.string_at(starts[0], ROOM)
    assert found.raw[32:128] == damage.raw[32:]


def test_lines_about_memory_behind_a_launch_take_one_launch_of_the_kernel(
    emulation: ctypes.CDLL,
) -> None:
    memory, damage = ctypes.create_string_buffer(1000), ctypes.create_string_buffer(DAMAGE)
    start = ctypes.addressof(memory)
    first = band(start, 64, bytes(8), 1, before=True, item=4)
    rows = [struct.pack("=Q", 7) + first + bytes(24)]
    # What was given up and allocated with a band; then what overlaps with it.
    for at, size in ((100, 100), (300, 100), (500, 100), (399, 2)):
        rows.append(struct.pack("=Q", 0) + bytes(24) + filled(start + at, size, 0))
    for count, jobs in ((4, 1), (5, 2)):
        assert emulation.device_work(b"".join(rows[:count]), count, damage) == jobs


@some_of
def test_the_kernel_of_the_gpu_agrees_with_the_engine(device: Device, step: int) -> None:
    device.check_all([*CASES.values(), *large()][::step], AT_ONCE, 16)


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


@some_of
@pytest.mark.parametrize("tensors", [quick, transposed])
def test_the_quick_kernel_agrees_with_the_engine(device: Device, tensors: Any, step: int) -> None:
    device.check_all(list(tensors())[::step], SOON, 6)


def test_few_elements_come_in_their_row(device: Device) -> None:
    device.check_all([*few(), torch.randn(70_000)], SOON, 7)


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
) -> None:
    """Whatever strides are, and wherever the tensor begins: that rows are whole is enough."""
    dims = list(range(len(shape)))
    order.shuffle(dims)
    values = torch.arange(offset + math.prod(shape)).sin().to(dtype)[offset:]
    tensor = values.view(shape).permute(dims)
    if expand:
        tensor = tensor[..., 0:7:5].unsqueeze(-1).expand(*tensor.shape[:-1], -1, 16)
    is_taken = Device(emulation).takes_quickly(tensor)
    assert is_taken or tensor.shape[-1] % (16 // dtype.itemsize)


def test_what_the_quick_kernel_leaves_to_the_other(device: Device) -> None:
    ones = torch.ones(4, 8)
    many = torch.ones(40)
    dims = torch.ones(2, 3, 2, 3, 9).permute(4, 2, 0, 3, 1)
    short = (ones[:, :3], ones[:3].t(), many[1:], dims)
    for tensor in (*short, many.double(), many.int()):
        assert not device.takes_quickly(tensor)


def test_parts_that_are_not_there_make_no_row(device: Device) -> None:
    lacks, has = [torch.randn(30_000)], [torch.randn(50_000).bfloat16()]
    device.functions.device_break(LACKS_A_BLOCK)
    first = device.measure([*lacks, *has], SOON)
    assert device.read(first + 1, has, PATIENCE) is None  # which has both merged
    assert device.read(first, lacks, PATIENCE) is None
    device.check(first + 1, has)


# --- What is gathered for one launch of the quick kernel ------------------------------------------


def test_what_may_wait_is_measured_with_the_next(device: Device) -> None:
    before = device.launches()
    first, second = [torch.randn(300)], [torch.randn(40, 40), torch.tensor(3)]
    expected = device.on_cpu(first)
    rows = device.measure(first, TOGETHER), device.measure(second, SOON)
    # Whoever comes later does not change what is known of these.
    first[0].fill_(0)
    device.functions.device_merge()
    device.check(rows[0], first, expected)
    device.check(rows[1], second)
    assert device.launches() == (before[0] + 1, before[1])


@pytest.mark.parametrize(
    ("sizes", "launches"),
    [([60, 30], 1), ([60, 45, 10], 2), ([110, 10], 2), ([30, 30, 30, 30, 30], 2)],
)
def test_what_waits_is_no_more_than_caches_hold(
    device: Device, sizes: list[int], launches: int
) -> None:
    """Sizes are hundredths of a MiB, of which one does not wait in the emulation."""
    before = device.launches()
    several = [[torch.randn(size * (1 << 18) // 100)] for size in sizes]
    rows = [device.measure(some, TOGETHER) for some in several]
    device.functions.device_merge()
    for first, some in zip(rows, several, strict=True):
        device.check(first, some)
    assert device.launches() == (before[0] + launches, before[1])


def test_a_tensor_that_is_measured_with_others_is_not_quartered(device: Device) -> None:
    some = [torch.randn(36 << 15).bfloat16()]  # 36 tiles, each of 64 KiB
    for when, blocks in ((SOON, 144), (TOGETHER, 36)):
        first = device.measure(some, when)
        device.functions.device_merge()
        assert device.blocks() == blocks
        device.check(first, some)


def test_what_waits_is_measured_for_who_asks_for_it(device: Device) -> None:
    some = [torch.randn(5000)]
    before = device.launches()
    first = device.measure(some, TOGETHER)
    assert device.read(first, some) is None
    assert device.launches() == before
    assert device.read(first, some, PATIENCE) is None  # which has it measured
    assert device.launches() == (before[0] + 1, before[1])
    device.functions.device_merge()
    device.check(first, some)


def test_who_waited_for_one_row_has_all_that_were_merged_with_it(device: Device) -> None:
    """A millisecond for each would leave a recorder far behind the device."""
    many = [[torch.randn(1000)] for _ in range(3)]
    issued = [device.measure(some, SOON) for some in many]
    assert device.read(issued[0], many[0]) is None
    assert device.read(issued[0], many[0], PATIENCE) is None  # which has it merged
    for first, some in zip(issued, many, strict=True):
        device.check(first, some)
    after = [torch.randn(1000)]
    assert device.read(device.measure(after, SOON), after) is None


def fill_all(device: Device, tensor: torch.Tensor, stream: int = 0) -> None:
    device.fill(filled(tensor.data_ptr(), tensor.nbytes, 0x7FC0 << 48), stream=stream)


def test_memory_is_filled_behind_measuring_by_one_launch(device: Device) -> None:
    before, of_memory = device.launches(), device.of_memory()
    for turn in range(2):  # blocks are counted on from launch to launch
        some = [torch.randn(40_000), torch.randn(3, 5), torch.randn(700).half()]
        expected = device.on_cpu(some)
        first = device.measure(some, TOGETHER)
        assert device.functions.device_waits()
        fill_all(device, some[0])
        assert not device.functions.device_waits()
        device.functions.device_merge()
        assert device.launches() == before
        assert device.of_memory() == (of_memory[0] + turn + 1, of_memory[1])
        assert some[0].view(torch.int64).eq(0x7FC0 << 48).all()
        device.check(first, some, expected)


def test_what_waits_on_another_stream_is_measured_before_memory_is_filled(device: Device) -> None:
    some = [torch.randn(3000)]
    expected = device.on_cpu(some)
    before, of_memory = device.launches(), device.of_memory()
    first = device.measure(some, TOGETHER, stream=1)
    fill_all(device, some[0], stream=2)
    device.functions.device_merge()
    device.check(first, some, expected)
    assert device.launches() == (before[0] + 1, before[1])
    assert device.of_memory() == (of_memory[0], of_memory[1] + 1)


@pytest.mark.parametrize("when", [AT_ONCE, SOON])
def test_another_stream_or_kernel_does_not_wait(device: Device, when: int) -> None:
    waits, other = [torch.randn(500)], [torch.randn(2000).double()]
    before = device.launches()
    first = device.measure(waits, TOGETHER, stream=1)
    device.measure(other, when, stream=2)
    device.functions.device_merge()
    device.check(first, waits)
    assert device.launches()[0] == before[0] + 1


def test_more_than_a_launch_takes_are_several(device: Device) -> None:
    many = [torch.randn(60 + i) for i in range(30)]
    many[17] = torch.randn(4200).double()
    many[20] = torch.tensor([1, 2])
    before = device.launches()
    first = device.measure(many, SOON)
    device.functions.device_merge()
    device.check(first, many)
    # Twelve at a time, of which the second dozen has one that the quick kernel does not take.
    assert device.launches() == (before[0] + 2, before[1] + 1)


def test_a_launch_that_fails_takes_no_other_row(device: Device) -> None:
    lost, after = [torch.randn(500)], [torch.randn(700)]
    first = device.measure(lost, TOGETHER)
    device.functions.device_break(FAILS)
    assert not device.measure([torch.randn(100)], SOON)
    device.functions.device_break(0)
    second = device.measure(after, SOON)
    device.functions.device_merge()
    assert device.read(first, lost) is None
    device.check(second, after)


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
    emulation: ctypes.CDLL, steps: list[tuple[list[int], int, int]]
) -> None:
    device = Device(emulation)
    issued = []
    for sizes, when, stream in steps:
        tensors = [torch.randn(size) for size in sizes]
        issued.append((device.measure(tensors, when, stream), tensors))
    emulation.device_merge()
    for first, tensors in issued:
        device.check(first, tensors)
