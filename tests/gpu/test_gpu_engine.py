"""The measuring engine on a GPU: the numbers of exact arithmetic, streams, graphs, size, memory.

pytest -m gpu tests/gpu/test_gpu_engine.py
"""

from __future__ import annotations

import ctypes
import math
import time

import pytest
import torch

from exact_statistics import adversarial, check, contents, decode
from rewriter.runtime import engine

pytestmark = pytest.mark.gpu

CASES = adversarial()


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    assert engine.start(0) == ""


def check_there(tensor: torch.Tensor, there: torch.Tensor) -> None:
    (found,) = engine.measure([there])
    (expected,) = engine.measure([tensor])
    assert found.statistics is not None
    check(found.statistics, decode(contents(tensor), tensor.dtype), tensor.dtype)
    assert found.fingerprint == expected.fingerprint


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    """On the device, with the same strides, offset and bits."""
    size = tensor.untyped_storage().nbytes()
    data = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (size,), (1,))
    there = torch.empty(0, dtype=tensor.dtype, device="cuda").set_(
        data.cuda().untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
    there = there.conj() if tensor.is_conj() else there
    return torch._neg_view(there) if tensor.is_neg() else there


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_exact_arithmetic(name: str) -> None:
    check_there(CASES[name], to_device(CASES[name]))


def test_many_tensors_at_once_are_as_one_by_one() -> None:
    there = [to_device(tensor) for tensor in CASES.values()]
    assert [m.fingerprint for m in engine.measure(there)] == [
        m.fingerprint for m in engine.measure(list(CASES.values()))
    ]


@pytest.mark.parametrize("count", [1 << 18, (1 << 24) + 12345, 5 * 10**7 + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64])
def test_large_tensors_agree_with_the_cpu(count: int, dtype: torch.dtype) -> None:
    tensor = (torch.randn(count) * 20 + 3).to(dtype)
    (found,), (expected,) = engine.measure([tensor.cuda()]), engine.measure([tensor])
    check_close(found, expected)


def check_close(found: engine.Measurement, expected: engine.Measurement) -> None:
    assert found.fingerprint == expected.fingerprint
    a, b = found.statistics, expected.statistics
    assert a is not None
    assert b is not None
    assert (a.numel, a.minimum, a.maximum, a.nan, a.inf) == (
        b.numel,
        b.minimum,
        b.maximum,
        b.nan,
        b.inf,
    )
    assert a.mean is not None
    assert b.mean is not None
    assert a.std is not None
    assert b.std is not None
    assert math.isclose(a.mean, b.mean, rel_tol=1e-12, abs_tol=1e-13 * b.std)
    assert math.isclose(a.std, b.std, rel_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1024, 1024), (1024, 3072), (4096, 1024), (1000, 2200), (5, 40_000)]
)
def test_transposed_matrices_agree_with_the_cpu(
    rows: int, columns: int, dtype: torch.dtype
) -> None:
    """Alone, in a batch, with what is not finite, and from an element on that is not aligned."""
    stored = torch.randn(columns, rows).to(dtype) * 3 + 1
    special = stored.clone()
    special[:: columns // 7, rows // 2], special[columns // 3, 0] = math.nan, -math.inf
    pair = torch.stack([stored, special])
    shifted = torch.cat([torch.zeros(3, dtype=dtype), stored.view(-1)])[3:]
    tensors = [stored.t(), special.t(), pair.mT, shifted.view(columns, rows).t()]
    expected = engine.measure(tensors)
    there = [to_device(tensor) for tensor in tensors]
    alone = [one for tensor in there for one in measure_later([tensor])]
    for found in (alone, measure_later(there), engine.measure(there)):
        for one, other in zip(found, expected, strict=True):
            check_close(one, other)


def measure_later(there: list[torch.Tensor]) -> list[engine.Measurement]:
    """As wrappers have it done: by the quick kernel for what it takes."""
    ((device, group),) = engine._groups(there).items()
    functions = engine._library().functions
    stream = torch._C._cuda_getCurrentRawStream(device)
    count = len(there)
    room = ctypes.create_string_buffer(engine.MEASURED.size * count)
    first = functions.inductor_rewriter_gpu_issue(device, *group.pointers(), count, stream, False)
    assert first
    assert functions.inductor_rewriter_gpu_fetch(device, first, count, stream, room) is None
    rows = zip(group.layouts, engine.MEASURED.iter_unpack(room.raw), strict=True)
    return [engine.decode(row, layout.dtype, layout.numel) for layout, row in rows]


def test_more_than_2_to_31_elements() -> None:
    count = (1 << 31) + 100003
    tensor = torch.zeros(count, dtype=torch.int8, device="cuda")
    tensor[-1], tensor[1 << 31] = 1, -3
    (found,) = engine.measure([tensor])
    assert found.statistics is not None
    assert (found.statistics.numel, found.statistics.minimum, found.statistics.maximum) == (
        count,
        -3,
        1,
    )
    assert found.statistics.mean == pytest.approx(-2 / count, rel=1e-9)
    expected = math.sqrt((10 - 4 / count) / (count - 1))
    assert found.statistics.std == pytest.approx(expected, rel=1e-12)
    (expanded,) = engine.measure([tensor[-1:].expand(count)])
    assert expanded.statistics is not None
    assert (expanded.statistics.mean, expanded.statistics.std) == (1.0, 0.0)
    assert expanded.fingerprint == engine.measure([torch.ones_like(tensor)])[0].fingerprint


def test_streams_measure_what_they_wrote() -> None:
    streams = [torch.cuda.Stream() for _ in range(6)]
    tensors = [torch.zeros(1 << 22, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for turn in range(1, 5):
        for number, (stream, tensor) in enumerate(zip(streams, tensors, strict=True)):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                tensor.fill_(100 * turn + number)
                (found,) = engine.measure([tensor])
                assert found.statistics is not None
                assert found.statistics.mean == 100 * turn + number


def test_the_ring_wraps_around() -> None:
    tensors = [torch.full((100,), i, device="cuda") for i in range(40)]
    for _ in range(260):  # 10,400 rows
        found = engine.measure(tensors)
        assert [m.statistics.mean for m in found if m.statistics] == list(range(40))


def test_a_captured_graph_measures_each_replay() -> None:
    source = torch.ones(10_000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = source * 2
        captured = engine.capture([doubled, source])
    assert captured is not None
    assert captured.read() == (0, [])
    for turn in range(1, 4):
        source.fill_(turn)
        graph.replay()
        torch.cuda.synchronize()
        replays, (first, second) = captured.read()
        assert replays == turn
        assert first.statistics is not None
        assert second.statistics is not None
        assert (first.statistics.mean, second.statistics.mean) == (2 * turn, turn)
        assert first.fingerprint == engine.measure([doubled])[0].fingerprint


def test_results_are_the_same_each_time() -> None:
    tensor = torch.randn(3_000_001, device="cuda")
    assert len({repr(engine.measure([tensor])) for _ in range(20)}) == 1


def test_memory_stays_below_64_mib() -> None:
    program = """
import torch
torch.zeros(1, device="cuda").sum().item()
before = torch.cuda.mem_get_info()[0]
from rewriter.runtime import engine
assert engine.start(0) == "", engine.start(0)
engine.measure([torch.zeros(8, device="cuda")])
print(before - torch.cuda.mem_get_info()[0])
"""
    import subprocess
    import sys

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) <= 64 << 20, run.stdout


def test_many_small_ones_cost_little() -> None:
    tensor = torch.ones(1024, device="cuda")
    engine.measure([tensor])
    seconds = []
    for _ in range(200):
        start = time.perf_counter()
        engine.measure([tensor])
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 500e-6  # the device may have others to serve
