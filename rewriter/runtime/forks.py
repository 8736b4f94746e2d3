"""Notifies objects of the runtime when their process was forked from the probed one."""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def forked(self) -> None:
        """Called in a process that was forked from the one that made the object."""


def register_for_forks(one: Forkable) -> None:
    """Call `one.forked()` in each process that is forked from this one, as long as `one` lives.

    `os.register_at_fork` keeps its functions for ever, so it gets one function for all objects.
    """
    _registered().add(one)


@cache
def _registered() -> WeakSet[Forkable]:
    objects: WeakSet[Forkable] = WeakSet()

    def notify() -> None:
        for one in list(objects):
            one.forked()

    os.register_at_fork(after_in_child=notify)
    return objects
