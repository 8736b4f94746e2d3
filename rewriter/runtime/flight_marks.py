"""Marks in the ring of the probe `record`: which launch each thread began and ended last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from .flight import BEGAN, BEGAN_AT, FINISHED, FINISHED_AT

if TYPE_CHECKING:
    from .running_call import RunningCall

Act = Callable[..., None]


def leave_marks(phase: str, calls: Mapping[int, RunningCall], act: Act, *, alone: bool) -> Act:
    """A function for a phase of launches that leaves a mark in addition to calling `act`.

    If marks are `alone` at the phase "before", it calls `act` only in a thread without a known
    call, where `act` begins one.
    """
    return _before(calls, act, alone=alone) if phase == "before" else _after(calls, act)


def _before(calls: Mapping[int, RunningCall], act: Act, *, alone: bool) -> Act:
    get_call, pack, at = calls.get, BEGAN.pack_into, BEGAN_AT

    def before(launch: int, *values: Any) -> None:
        call = get_call(get_ident())
        if call is None or not alone:
            act(launch, *values)
            call = call or get_call(get_ident())
        if call is not None and (slot := call.slot):
            if call.words[call.word] != call.mark:
                slot = call.enter()
            marked = call.marked
            iteration = marked.get(launch, 0)
            marked[launch] = iteration + 1
            pack(call.memory, slot + at, launch + 1, iteration, monotonic_ns())

    return before


def _after(calls: Mapping[int, RunningCall], act: Act) -> Act:
    get_call, pack, at, begin = calls.get, FINISHED.pack_into, FINISHED_AT, BEGAN.pack_into

    def after(launch: int, *values: Any) -> None:
        call = get_call(get_ident())
        if call is not None and (slot := call.slot):
            iteration = call.marked.get(launch, 1) - 1
            if call.words[call.word] != call.mark:
                slot = call.enter()
                begin(call.memory, slot + BEGAN_AT, launch + 1, iteration, monotonic_ns())
            pack(call.memory, slot + at, launch + 1, iteration, monotonic_ns())
        act(launch, *values)

    return after
