"""What happens in a process that is forked from the one that is probed."""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def forked(self) -> None:
        """This process is a fork of the one that made the object."""


def tell_of_forks(one: Forkable) -> None:
    """Call `forked` of an object in each process that is forked from this one, while it lives: what
    `os.register_at_fork` is given is kept for good, so it is given one function for all."""
    _told().add(one)


@cache
def _told() -> WeakSet[Forkable]:
    told: WeakSet[Forkable] = WeakSet()

    def tell() -> None:
        for one in list(told):
            one.forked()

    os.register_at_fork(after_in_child=tell)
    return told
