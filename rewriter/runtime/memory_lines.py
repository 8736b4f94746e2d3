"""The methods that a Python wrapper's memory lines call when a buffer is allocated or released.

`memory/watch.py` does the work of the memory probes. A call has many memory lines, so there are
three ways to it: native code without the interpreter (`memory/regions.py`) for most lines; under
the lock alone if the call allows that (`CallKeeper.undisturbed_call`); and `CallKeeper.guarded`.
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
    """What memory lines need of the recorder."""

    lock: threading.RLock

    def undisturbed_call(self) -> RunningCall | None:
        """The call in this thread, if holding the lock is enough to act in it; else None."""

    def wanted_call(self) -> RunningCall | None:
        """The call in this thread; None if it is not to be recorded."""

    def guarded(self, about: str, act: Callable[..., None], *args: Any) -> None:
        """Run `act` so that it can neither stop the model nor be recorded by autograd."""

    def warn(self, about: str, message: str) -> None:
        """Write a warning, once."""

    def settle(self) -> None:
        """Issue the measurements that wait for a memory line or the next launch."""


class TakesMemoryLines(Protocol):
    """The methods that memory lines call. `event` is the index of the memory event in the table."""

    def allocated(self, event: int, tensor: Any, /) -> Any:
        """A buffer was allocated. Returns the tensor that the wrapper is to use instead of it."""

    def reused(self, event: int, tensor: Any, /) -> None:
        """`tensor` took over the memory of another buffer, whose content is no longer needed."""

    def released(self, event: int, tensor: Any, /) -> None:
        """The wrapper is about to delete a buffer."""

    def checked(self, launch: int, /) -> None:
        """A launch was issued, and its values were handed over."""


class NoMemoryLines:
    """The memory lines of a wrapper without memory probes: they do nothing."""

    def allocated(self, event: int, tensor: Any) -> Any:
        """Returns the same tensor."""
        return tensor

    def reused(self, event: int, tensor: Any) -> None:
        """Does nothing."""

    released = reused

    def checked(self, launch: int) -> None:
        """Does nothing."""


class MemoryLines:
    """Passes memory lines on to the memory probes, in the call that runs."""

    def __init__(self, memory: Memory, calls: CallKeeper) -> None:
        self._memory = memory
        self._calls = calls
        self._asked_for_native = False

    def make_native(self, calls: Mapping[int, RunningCall]) -> TakesMemoryLines | None:
        """Make the native version of these methods, at the first call of this function.

        `calls` maps threads to the calls that run in them. Returns None if the native version
        cannot be made, and at later calls.
        """
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
        """Report the guard bands that are known to be damaged by now."""
        with self._calls.lock:
            try:
                self._memory.report(call)
            except Exception as error:
                self._failed(error)

    def allocated(self, event: int, tensor: Any) -> Any:
        """A buffer was allocated. Returns the tensor that the wrapper is to use instead of it."""
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
        """`tensor` took over the memory of another buffer, whose content is no longer needed."""
        is_held = getrefcount(tensor) > _references()
        self._give_up(event, tensor, is_held, True)

    def released(self, event: int, tensor: Any) -> None:
        """The wrapper is about to delete a buffer."""
        is_held = getrefcount(tensor) > _references()
        self._give_up(event, tensor, is_held, False)

    def checked(self, launch: int) -> None:
        """A launch was issued, and its values were handed over."""
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
    """Has a method that is called as `MemoryLines.released` is, to count references there."""

    def released(self, event: int, tensor: object) -> int:
        return getrefcount(tensor)


@cache
def _references() -> int:
    """The reference count that `released` sees for a tensor that only one variable refers to.

    A higher count means that the caller of a subgraph, or its list of arguments, has the tensor.
    """
    alone = object()
    return _OneVariable().released(0, alone)
