"""Parses lists such as `a,b`, sizes such as `500M`, and the calls of a wrapper to record, such as
`3-5,9,20-`. Programs parse these in `rewriter/runtime/cpp/settings.h` and
`rewriter/runtime/plain.py`."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,15})(?:([KMGT])(i?))?B?")
_MOST = (1 << 63) - 1
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_PART = re.compile(r"([0-9]{1,15})(-([0-9]{1,15})?(/0*([1-9][0-9]{0,14}))?)?")


def comma_separated(*texts: str) -> tuple[str, ...]:
    """The parts of texts such as `a, b`, without what is empty."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(filter(None, parts))


def parse_bytes(text: str) -> int:
    """Parse a size such as `500M`, `10GB` or `2GiB` into a number of bytes.

    K, M, G and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024. The result is at most
    2**63 - 1. Raises `ValueError` for anything else and for 0.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"{text.strip()!r} is no size, such as 500M or 10G")
    number, unit, binary = match.groups()
    power = _POWERS[unit] if unit else 0
    return min(int(number) * int((1024 if binary else 1000) ** power), _MOST)


class Calls:
    """A set of call numbers, counted from 0 as launches and `run` directories are.

    A range such as `20-` has no end; `100-/10` means every tenth call from call 100 on, into which
    `--every` is translated. Raises `ValueError`, naming the offending part, for anything
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
