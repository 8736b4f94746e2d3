"""The measuring engine on a GPU: the numbers of exact arithmetic, streams, graphs, size, memory.

pytest -m gpu tests/gpu/test_gpu_engine.py
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import pytest
import torch

from exact_statistics import adversarial, contents
from fingerprints import of_bytes
from measurements import check_close, check_measurement, measure
from rewriter.runtime import attach
from tables import options, row

pytestmark = pytest.mark.gpu

CASES = adversarial()


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
    check_measurement(measure([to_device(CASES[name])])[0], CASES[name])


def test_many_tensors_at_once_are_as_one_by_one() -> None:
    there = [to_device(tensor) for tensor in CASES.values()]
    found = [measured["fingerprint"] for measured in measure(there)]
    assert found == [of_bytes(contents(tensor)) for tensor in CASES.values()]


@pytest.mark.parametrize("count", [1 << 18, (1 << 24) + 12345, 5 * 10**7 + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64])
def test_large_tensors_agree_with_the_cpu(count: int, dtype: torch.dtype) -> None:
    tensor = (torch.randn(count) * 20 + 3).to(dtype)
    (found,), (expected,) = measure([tensor.cuda()]), measure([tensor])
    check_close(found, expected)


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
    expected = measure(tensors)
    there = [to_device(tensor) for tensor in tensors]
    alone = [one for tensor in there for one in measure([tensor])]
    for found in (alone, measure(there)):
        for one, other in zip(found, expected, strict=True):
            check_close(one, other)


def test_more_than_2_to_31_elements() -> None:
    count = (1 << 31) + 100003
    tensor = torch.zeros(count, dtype=torch.int8, device="cuda")
    tensor[-1], tensor[1 << 31] = 1, -3
    (found,) = measure([tensor])
    assert (found["numel"], found["min"], found["max"]) == (count, -3, 1)
    assert found["mean"] == pytest.approx(-2 / count, rel=1e-9)
    assert found["std"] == pytest.approx(math.sqrt((10 - 4 / count) / (count - 1)), rel=1e-12)
    (expanded,) = measure([tensor[-1:].expand(count)])
    assert (expanded["mean"], expanded["std"]) == (1.0, 0.0)
    assert expanded == measure([torch.ones_like(tensor)])[0]


def test_streams_measure_what_they_wrote() -> None:
    streams = [torch.cuda.Stream() for _ in range(6)]
    tensors = [torch.zeros(1 << 22, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for turn in range(1, 5):
        for number, (stream, tensor) in enumerate(zip(streams, tensors, strict=True)):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                tensor.fill_(100 * turn + number)
                (found,) = measure([tensor])
                assert found["mean"] == 100 * turn + number


def test_the_ring_wraps_around() -> None:
    tensors = [torch.full((100,), i, device="cuda") for i in range(40)]
    for _ in range(260):  # 10,400 rows
        found = measure(tensors)
        assert [measured["mean"] for measured in found] == list(range(40))


def test_results_are_the_same_each_time() -> None:
    tensor = torch.randn(3_000_001, device="cuda")
    assert len({repr(measure([tensor])) for _ in range(20)}) == 1


def test_memory_stays_below_64_mib() -> None:
    program = """
import torch
torch.zeros(1, device="cuda").sum().item()
before = torch.cuda.mem_get_info()[0]
from measurements import measure
measure([torch.zeros(8, device="cuda")])
print(before - torch.cuda.mem_get_info()[0])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) <= 64 << 20, run.stdout


def test_many_small_ones_cost_little() -> None:
    tensor = torch.ones(1024, device="cuda")
    recorder = attach(options("nan"), [row(kind="triton", after=[["out", "x"]])])
    seconds = []
    for _ in range(200):
        start = time.perf_counter()
        recorder.begin()
        recorder.after(0, tensor)
        recorder.end()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 500e-6  # the device may have others to serve
