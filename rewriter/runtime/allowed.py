"""The values that may be NaN or infinite: `--allow KERNEL:BUFFER`."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

INPUTS = "inputs"  # stands for the kernel where the inputs of a call are meant


class Allowed:
    """Patterns such as `*softmax*:buf3`. Of a list of tensors, `buf3` stands for each member."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def covers(self, kernel: str, name: str) -> bool:
        """Whether a value of this name may be so at a launch of this kernel; an empty kernel stands
        for the inputs of the call."""
        names = {name, name.partition("[")[0]}
        for pattern in self.patterns:
            wanted, _, value = pattern.rpartition(":")
            if fnmatchcase(kernel or INPUTS, wanted) and any(fnmatchcase(x, value) for x in names):
                return True
        return False
