"""Tells objects of the runtime that they are in a process that was forked from the probed one."""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def forked(self) -> None:
        """Called in a process that was forked from the one that made the object."""


def tell_of_forks(one: Forkable) -> None:
    """Call `one.forked()` in each process that is forked from this one, as long as `one` lives.

    `os.register_at_fork` keeps its functions for ever, so it gets one function for all objects.
    """
    _told().add(one)


@cache
def _told() -> WeakSet[Forkable]:
    told: WeakSet[Forkable] = WeakSet()

    def tell() -> None:
        for one in list(told):
            one.forked()

    os.register_at_fork(after_in_child=tell)
    return told
