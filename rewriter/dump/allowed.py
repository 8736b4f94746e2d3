"""Matches `--allow KERNEL:BUFFER` against values: those that match may be NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

INPUTS = "inputs"  # stands for the kernel where the inputs of a call are meant


class Allowed:
    """Patterns such as `*softmax*:buf3`. `buf3` also matches `buf3[0]`, a member of a list."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def covers(self, kernel: str, name: str) -> bool:
        """Whether the value `name` may be NaN or infinite at a launch of `kernel`.

        An empty `kernel` means the inputs of the call.
        """
        names = {name, name.partition("[")[0]}
        for pattern in self.patterns:
            wanted, _, value = pattern.rpartition(":")
            if fnmatchcase(kernel or INPUTS, wanted) and any(fnmatchcase(x, value) for x in names):
                return True
        return False
