"""Parses `--calls`, the calls of a wrapper to record, such as `3-5,9,20-`.

`100-/10` means every tenth call starting with call 100; `--every` is translated into this form.
"""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]{1,15})(-([0-9]{1,15})?(/0*([1-9][0-9]{0,14}))?)?")


class Calls:
    """A set of call numbers, counted from 0 as launches and `run` directories are.

    A range such as `20-` has no end. Raises `ValueError`, naming the offending part, for anything
    that is neither a number nor a range.
    """

    def __init__(self, text: str) -> None:
        self._ranges: list[tuple[int, float, int]] = []
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"{part.strip()!r} is no call or range of calls, such as 3-5")
            low = int(match[1])
            high = low if match[2] is None else int(match[3]) if match[3] else float("inf")
            if low > high:
                raise ValueError(f"{part.strip()!r} is no call or range of calls, such as 3-5")
            self._ranges.append((low, high, int(match[5] or 1)))

    def __contains__(self, number: int) -> bool:
        return any(
            low <= number <= high and (number - low) % step == 0 for low, high, step in self._ranges
        )
