"""Which calls of a wrapper are recorded: the text of `--calls`, such as `3-5,9,20-`."""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]{1,15})(-([0-9]{1,15})?)?")


class Calls:
    """Numbers of calls, counted from 0 as launches and `run` directories are.

    Raises `ValueError`, with the part that is none, for anything but numbers and ranges; one that
    ends in a dash has no end.
    """

    def __init__(self, text: str) -> None:
        self._ranges: list[tuple[int, float]] = []
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"{part.strip()!r} is no call or range of calls, such as 3-5")
            low = int(match[1])
            high = low if match[2] is None else int(match[3]) if match[3] else float("inf")
            if low > high:
                raise ValueError(f"{part.strip()!r} is no call or range of calls, such as 3-5")
            self._ranges.append((low, high))

    def __contains__(self, number: int) -> bool:
        return any(low <= number <= high for low, high in self._ranges)
