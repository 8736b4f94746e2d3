"""Buffers within guard bands: who has which memory when, and for how long."""

from __future__ import annotations

import ctypes
import json
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.runtime import attach
from tables import options, row

PROBES = ["bounds", "poison", "stale"]
EVENTS = 64
KEPT = (16 << 20) // 4  # elements of float32 that are kept from others
allocate: Callable[..., torch.Tensor] = torch._C._dynamo.guards._empty_strided_cpu


@pytest.fixture
def recorder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    made = attached()
    yield made
    made.close()


def attached() -> Any:
    memory = [{"event": event, "buffer": f"buf{event}"} for event in range(EVENTS)]
    table = [row(index, f"k{index}") for index in range(EVENTS)]
    return attach(options(*PROBES, memory=memory), table)


def fresh(size: tuple[int, ...] = (4,)) -> torch.Tensor:
    stride = tuple(math.prod(size[place + 1 :]) for place in range(len(size)))
    return allocate(size, stride, torch.float32)


def give_up_others(recorder: Any) -> None:
    """What was given up until now is for anybody who allocates."""
    large = recorder.allocated(EVENTS - 1, fresh((KEPT,)))
    recorder.released(EVENTS - 1, large)
    del large


def watch(made: torch.Tensor) -> weakref.ref[Any]:
    """Something that lives as long as the storage of a tensor."""
    storage, watched = made.untyped_storage(), type("Watched", (), {})()
    storage.watched = watched  # type: ignore[attr-defined]
    return weakref.ref(watched)


@pytest.mark.parametrize("way", ["variable", "view", "storage", "c++"])
def test_what_somebody_has_is_nobody_elses(recorder: Any, way: str) -> None:
    """Also who is no object of Python."""
    recorder.begin()
    first = recorder.allocated(0, fresh()).fill_(7)
    address, pointers = first.data_ptr(), None
    if way == "variable":
        kept: Any = [first]
    elif way == "view":
        kept = first[1:]
    elif way == "storage":
        kept = first.untyped_storage()
    else:
        kept = pointers = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([first])
    recorder.released(1, first)
    del first
    give_up_others(recorder)
    second = recorder.allocated(2, fresh()).fill_(3)
    assert second.data_ptr() != address
    seen = torch.frombuffer((ctypes.c_float * 4).from_address(address), dtype=torch.float32)
    if way in ("variable", "view"):  # who has a storage, or is none of Python, may not be seen
        assert seen.tolist() == [7] * 4
    if pointers is not None:
        kept = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(pointers)
    del kept, seen


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_reused", [False, True])
def test_what_an_operator_made_is_filled_when_it_is_given_up(
    recorder: Any, is_shared: bool, is_reused: bool
) -> None:
    """It is in no region, and kept from others for a while as those are."""
    recorder.begin()
    made = torch.full((6,), 2.5)
    address, other = made.data_ptr(), made[:2] if is_shared else None
    (recorder.reused if is_reused else recorder.released)(1, made)
    del made
    if not is_reused or is_shared:
        seen = torch.frombuffer((ctypes.c_float * 6).from_address(address), dtype=torch.float32)
        assert (seen == 2.5).all() if is_shared else seen.isnan().all()
    recorder.end()
    assert other is None or other.tolist() == [2.5, 2.5]


def test_zeros_without_memory_are_not_filled(recorder: Any) -> None:
    """As derivatives have them: a storage of that size, at no address."""
    recorder.begin()
    made = torch._efficientzerotensor((6,))  # type: ignore[attr-defined]
    recorder.released(1, made)
    del made
    recorder.end()


def test_a_variable_without_a_tensor_is_given_up(recorder: Any) -> None:
    recorder.begin()
    both = (torch.ones(2), torch.ones(2))
    recorder.released(1, both)
    recorder.reused(2, None)
    assert [x.tolist() for x in both] == [[1, 1], [1, 1]]


def test_a_tensor_that_is_watched_ends_with_its_buffer(recorder: Any) -> None:
    recorder.begin()
    first = recorder.allocated(0, fresh())
    known = weakref.ref(first)
    recorder.released(1, first)
    del first
    assert known() is None


def test_a_storage_that_was_handed_over_ends_with_its_buffer(recorder: Any) -> None:
    """As CUDA graphs wait for the end of what a partition of the wrapper returned."""

    recorder.begin()
    first = recorder.allocated(0, fresh())
    known = watch(first)
    recorder.released(1, first)
    del first
    assert known() is None


def test_what_is_larger_than_all_that_is_free_may_be_ends_with_its_buffer(recorder: Any) -> None:
    recorder.begin()
    first = recorder.allocated(0, fresh((17 << 20,)))
    known = watch(first)
    recorder.released(1, first)
    assert bool(first[-3:].isnan().all())
    del first
    assert known() is None
    recorder.checked(0)


@pytest.mark.parametrize("begins", [True, False])
def test_tensors_of_inference_are_for_inference(recorder: Any, begins: bool) -> None:
    """Also where calls do not say that they begin."""
    for is_inference in (True, False, True):
        with torch.inference_mode(is_inference):
            if begins:
                recorder.begin()
            made = recorder.allocated(0, fresh())
            assert made.is_inference() == is_inference
            recorder.released(1, made)
            del made


def test_memory_that_was_damaged_stays_with_who_has_it(
    recorder: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder.begin()
    made = recorder.allocated(0, fresh()).fill_(7)
    (ctypes.c_float * 1).from_address(made.data_ptr() + 16)[0] = 2.5
    recorder.checked(3)
    assert "#3 k3 wrote outside buf0: 1 element, the nearest right behind its end, 2.5" in (
        capfd.readouterr().out
    )
    recorder.begin()
    others = [recorder.allocated(1, fresh()).fill_(1) for _ in range(20)]
    assert made.tolist() == [7] * 4
    assert made.data_ptr() not in {other.data_ptr() for other in others}


def test_a_launch_may_write_outside_only_in_a_later_turn_of_a_loop(
    recorder: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder.begin()
    for turn in range(3):
        made = recorder.allocated(0, fresh())
        if turn == 2:
            (ctypes.c_float * 1).from_address(made.data_ptr() + 16)[0] = 2.5
        recorder.checked(3)
        recorder.released(1, made)
        del made
    recorder.begin()
    assert "#3 k3 wrote outside buf0: 1 element" in capfd.readouterr().out


def test_what_cannot_be_guarded_is_counted(recorder: Any, tmp_path: Any) -> None:
    recorder.begin()
    made = recorder.allocated(0, fresh())
    empty = recorder.allocated(1, fresh((0,)))
    recorder.checked(0)
    recorder.released(2, made)
    recorder.released(3, empty)
    recorder.end()
    text = (tmp_path / "rank0/run0/memory.jsonl").read_text().splitlines()
    bounds, poison, stale = text
    assert '"done": 1, "launches": 1, "skipped": 1' in bounds
    assert '"done": 1, "skipped": 1' in poison
    assert '"done": 1, "skipped": 1, "why": {"it has no elements": 1}' in stale


def test_a_buffer_in_the_way_of_python_is_compared_beside_those_in_regions(
    recorder: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """As one of a subclass of tensors is."""
    recorder.begin()
    made = recorder.allocated(0, fresh())
    parameter = torch.nn.Parameter(torch.ones(4), requires_grad=False)
    other = recorder.allocated(1, parameter)
    for launch, one in enumerate((made, other)):
        (ctypes.c_float * 1).from_address(one.data_ptr() - 4)[0] = 2.5
        recorder.checked(launch)
    out = capfd.readouterr().out.splitlines()
    assert ["wrote outside buf0" in out[0], "wrote outside buf1" in out[1]] == [True, True]
    assert len(out) == 2


def test_calls_of_threads_share_no_memory(recorder: Any) -> None:
    faults: list[object] = []
    starting = threading.Barrier(3)

    def run(number: int) -> None:
        starting.wait()
        for _ in range(30):
            recorder.begin()
            alive: list[torch.Tensor] = []
            for event in range(0, 40, 2):
                alive.append(recorder.allocated(event, fresh((64, 64))).fill_(number))
                recorder.checked(event // 2)
                if len(alive) > 3:
                    one = alive.pop(0)
                    if bool((one != number).any()):
                        faults.append(one)
                    recorder.released(event + 1, one)
                    del one
            recorder.end()

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_memory_goes_with_the_call() -> None:
    recorder = attached()
    recorder.begin()
    first, second = recorder.allocated(0, fresh()), recorder.allocated(1, fresh())
    lease = watch(first)
    recorder.released(2, first)
    del first
    recorder.end()
    assert lease() is None
    recorder.close()
    assert second.fill_(3).tolist() == [3] * 4


@pytest.mark.parametrize("calls", [2100, 1])
def test_records_of_damage_are_left_for_others(recorder: Any, tmp_path: Path, calls: int) -> None:
    """There are some 4,000 of them."""
    for _ in range(calls):
        recorder.begin()
        for _ in range(2100 // calls):
            made = recorder.allocated(0, fresh())
            recorder.released(1, made)
            del made
        recorder.end()
    rows = (tmp_path / f"rank0/run{calls - 1}/memory.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["done"] == 2100 // calls
    assert "why" not in rows[0]
