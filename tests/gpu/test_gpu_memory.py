"""Buffers with guard bands on a GPU: who has which, stores outside of them, and CUDA graphs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tables
from rewriter.runtime import attach

pytestmark = pytest.mark.gpu

OPTIONS = tables.options(
    *("bounds", "poison", "stale"),
    memory=[{"event": event, "buffer": f"buf{event}"} for event in range(64)],
)
TABLE = [tables.row(index, f"k{index}", kind="triton") for index in range(64)]
SIZE = 1 << 20  # elements of float32, a quarter of what is kept from others


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    torch.zeros(1, device="cuda")
    made = attach(OPTIONS, TABLE)
    yield made
    made.close()


def buffer(recorder: Any, event: int, size: int = SIZE) -> torch.Tensor:
    made = torch._C._dynamo.guards._empty_strided_cuda((size,), (1,), torch.float32)
    result: torch.Tensor = recorder.allocated(event, made)
    return result


class _Memory:
    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (1,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 2
        }  # fmt: skip


def store(tensor: torch.Tensor, element: int, value: float) -> None:
    """Write to an element of a tensor, wherever it is."""
    place = torch.as_tensor(_Memory(tensor.data_ptr() + 4 * element), device="cuda")
    place.fill_(value)


def rows(dump: Path, run: int) -> list[dict[str, Any]]:
    text = (dump / f"rank0/run{run}/memory.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_buffers_serve_one_after_the_other(recorder: Any, tmp_path: Path) -> None:
    for _ in range(3):
        recorder.begin()
        last = torch.ones(SIZE, device="cuda")
        for event in range(0, 60, 2):
            made = buffer(recorder, event)
            assert made.data_ptr() % 512 == 0
            assert bool(made.isnan().all())
            torch.add(last, 1, out=made)
            recorder.checked(event // 2)
            if event:
                recorder.released(event + 1, last)
            last = made
            del made
        assert bool((last == 31).all())
    recorder.end()
    found = {row["probe"]: row for row in rows(tmp_path, 2)}
    assert [found[probe]["done"] for probe in ("bounds", "poison", "stale")] == [30, 30, 29]
    assert found["bounds"]["launches"] == 30
    assert not any("skipped" in row for row in found.values())


def test_stores_outside_of_buffers(recorder: Any, tmp_path: Path) -> None:
    recorder.begin()
    made = [buffer(recorder, event, 100).fill_(event) for event in range(4)]
    recorder.checked(5)
    store(made[1], 102, 2.5)
    recorder.checked(6)
    store(made[2], -1, 3.5)
    recorder.checked(7)
    recorder.end()
    found = [row for row in rows(tmp_path, 0) if row["event"] == "memory"]
    seen = [(row["launch"], row["since"], row["buffer"], row["value"]) for row in found]
    assert seen == [(6, 5, "buf1", "2.5"), (7, 6, "buf2", "3.5")]
    assert [(row["side"], row["distance"]) for row in found] == [("behind", 2), ("before", 0)]
    assert [x.tolist() for x in made] == [[float(event)] * 100 for event in range(4)]


@pytest.mark.parametrize("waits", [False, True])
def test_lines_that_wait_do_what_they_do_one_by_one(
    waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind each launch bands are compared, a buffer is given up and the next one allocated."""
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    torch.zeros(1, device="cuda")
    memory = [row | {"waits": waits and row["event"] % 2} for row in OPTIONS["memory"]]
    table = [one | {"memory_waits": waits and 0 < one["launch"] < 20} for one in TABLE]
    recorder: Any = attach(OPTIONS | {"memory": memory}, table)
    recorder.begin()
    last, sums, addresses = None, [], []
    for launch in range(21):
        made = buffer(recorder, 2 * launch, SIZE + launch % 3)
        made.copy_(torch.full_like(made, launch))
        if last is not None:
            sums.append(bool((last == launch - 1).all()))
        if launch == 10:
            store(made, SIZE + launch % 3, 8.5)
        recorder.checked(launch)
        if last is not None and launch < 20:
            addresses.append(last.data_ptr())
            recorder.released(2 * launch + 1, last)
        last = made
        del made
    recorder.end()
    assert all(sums)
    damaged, *coverage = rows(tmp_path, 0)
    assert (damaged["launch"], damaged["buffer"], damaged["value"]) == (10, "buf20", "8.5")
    assert [row["done"] for row in coverage] == [21, 21, 19]
    recorder.close()


def test_a_wrapper_in_a_cuda_graph(recorder: Any, tmp_path: Path) -> None:
    """Each replay compares; what it finds comes with the next call that is none."""
    x = torch.ones(SIZE, device="cuda")
    place = torch.zeros(1, device="cuda")

    def call() -> torch.Tensor:
        recorder.begin()
        first = buffer(recorder, 0)
        torch.add(x, 1, out=first)
        recorder.checked(0)
        second = buffer(recorder, 1)
        torch.add(first, x, out=second)
        behind = torch.as_tensor(_Memory(second.data_ptr() + 4 * SIZE), device="cuda")
        behind.copy_(torch.where(place > 0, place, behind))
        recorder.checked(1)
        recorder.released(2, first)
        del first
        return second

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            assert bool((call() == 3).all())
        recorder.end()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = call()
    for replay in range(4):
        x.fill_(replay)
        graph.replay()
        assert bool((result == 2 * replay + 1).all())
    place.fill_(2.5)
    graph.replay()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        call()
        recorder.end()
    every = [row for run in range(4) for row in rows(tmp_path, run)]
    (found,) = [row for row in every if row["event"] == "memory" and row.get("captured")]
    assert (found["launch"], found["buffer"], found["value"]) == (1, "buf1", "2.5")
