"""What the lines for memory of a Python wrapper call: a buffer is allocated, reused or released.

The probes themselves are in `memory/watch.py`. A call has many such lines, so most go a way
without the interpreter (`memory/regions.py`), and those that cannot take the short way where the
call allows that (`CallKeeper.undisturbed_call`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from .memory.watch import Memory
    from .running_call import RunningCall


class CallKeeper(Protocol):
    """What is needed of a recorder."""

    lock: threading.RLock

    def undisturbed_call(self) -> RunningCall | None:
        """The call that runs in this thread, if the lock is all that acting in it needs."""

    def wanted_call(self) -> RunningCall | None:
        """The call that runs in this thread; None of one that nobody asked for."""

    def guarded(self, about: str, act: Callable[..., None], *args: Any) -> None:
        """Act so that it can neither stop the model nor be recorded by autograd."""

    def warn(self, about: str, message: str) -> None:
        """Write a warning, once."""

    def settle(self) -> None:
        """Have measured what waits for lines about memory."""


class TakesMemoryLines(Protocol):
    """What lines about memory call."""

    def allocated(self, event: int, tensor: Any, /) -> Any:
        """A buffer was allocated; the wrapper goes on with the result, which may be another."""

    def reused(self, event: int, tensor: Any, /) -> None:
        """A buffer took over memory whose content nobody needs."""

    def released(self, event: int, tensor: Any, /) -> None:
        """The wrapper gives up a buffer next."""

    def checked(self, launch: int, /) -> None:
        """The launch was issued, and its values were handed over."""


class NoMemoryLines:
    """Of a wrapper whose memory is left as it is."""

    def allocated(self, event: int, tensor: Any) -> Any:
        """The wrapper goes on with the same tensor."""
        return tensor

    def reused(self, event: int, tensor: Any) -> None:
        """Nothing is done."""

    released = reused

    def checked(self, launch: int) -> None:
        """Nothing is done."""


class MemoryLines:
    """Has the probes for memory act in the call that runs."""

    def __init__(self, memory: Memory, calls: CallKeeper) -> None:
        self._memory = memory
        self._calls = calls
        self._asked_for_native = False

    def make_native(self, calls: Mapping[int, RunningCall]) -> TakesMemoryLines | None:
        """What takes the lines without the interpreter, if that can be had, and nobody has it yet.
        `calls` are those that run, by thread."""
        if self._asked_for_native:
            return None
        self._asked_for_native = True
        otherwise = (self.allocated, self._give_up, self.checked)
        try:
            lines: TakesMemoryLines | None
            lines = self._memory.make_lines(calls, self._report, otherwise)
        except Exception as error:
            self._failed(error)
            return None
        return lines

    def _report(self, call: RunningCall) -> None:
        """Write what is damaged by now."""
        with self._calls.lock:
            try:
                self._memory.report(call)
            except Exception as error:
                self._failed(error)

    def allocated(self, event: int, tensor: Any) -> Any:
        """A buffer was allocated; the wrapper goes on with the result, which may be another."""
        self._calls.settle()
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if (call := self._calls.undisturbed_call()) is not None:
            with self._calls.lock:
                try:
                    return self._memory.allocated(call, event, tensor)
                except Exception as error:
                    self._failed(error)
                    return tensor
        result = [tensor]
        self._calls.guarded("memory", self._allocate, event, result)
        return result[0]

    def reused(self, event: int, tensor: Any) -> None:
        """A buffer took over memory whose content nobody needs."""
        is_held = getrefcount(tensor) > _references()
        self._give_up(event, tensor, is_held, True)

    def released(self, event: int, tensor: Any) -> None:
        """The wrapper gives up a buffer next."""
        is_held = getrefcount(tensor) > _references()
        self._give_up(event, tensor, is_held, False)

    def checked(self, launch: int) -> None:
        """The launch was issued, and its values were handed over."""
        self._calls.settle()
        if (call := self._calls.undisturbed_call()) is None:
            self._calls.guarded("memory", self._check, launch)
            return
        with self._calls.lock:
            try:
                self._memory.checked(call, launch)
            except Exception as error:
                self._failed(error)

    def _give_up(self, event: int, tensor: Any, is_held: bool, is_reused: bool) -> None:
        self._calls.settle()
        if (call := self._calls.undisturbed_call()) is None:
            self._calls.guarded("memory", self._gone, event, tensor, is_held, is_reused)
            return
        with self._calls.lock:
            try:
                self._memory.gone(call, event, tensor, is_held=is_held, is_reused=is_reused)
            except Exception as error:
                self._failed(error)

    def _allocate(self, event: int, result: list[Any]) -> None:
        if (call := self._calls.wanted_call()) is not None:
            result[0] = self._memory.allocated(call, event, result[0])

    def _gone(self, event: int, tensor: Any, is_held: bool, is_reused: bool) -> None:
        if (call := self._calls.wanted_call()) is not None:
            self._memory.gone(call, event, tensor, is_held=is_held, is_reused=is_reused)

    def _check(self, launch: int) -> None:
        if (call := self._calls.wanted_call()) is not None:
            self._memory.checked(call, launch)

    def _failed(self, error: Exception) -> None:
        self._calls.warn("memory", f"{type(error).__name__}: {error}")


class _OneVariable:
    """Called as `MemoryLines` is, with what one variable has."""

    def released(self, event: int, tensor: object) -> int:
        return getrefcount(tensor)


@cache
def _references() -> int:
    """How many references `released` sees to what only one variable of the wrapper has. More are
    those of the caller of a subgraph, or of the list of its arguments."""
    alone = object()
    return _OneVariable().released(0, alone)
