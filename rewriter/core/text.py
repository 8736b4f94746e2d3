"""Counts, figures and names for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HISSES = ("s", "x", "ch", "sh")
_DIGITS = re.compile(r"(\d+)")
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def plural(noun: str) -> str:
    """`wrappers`, `launches`, `libraries`."""
    if noun.endswith(_HISSES):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def counted(number: int, one: str, many: str = "", *, grouped: bool = False) -> str:
    """`1 launch`, `3 launches`; `many` is the plural if it differs from `plural`.

    With `grouped`, `4,099`.
    """
    return f"{number:{',' if grouped else ''}} {one if number == 1 else many or plural(one)}"


def of_elements(part: int, whole: int) -> str:
    """`3 of 4,099 elements`."""
    return f"{part:,} of {counted(whole, 'element', grouped=True)}"


def element(name: str, index: Sequence[int]) -> str:
    """`buf0[3, 1]`; of a tensor without dimensions only its name."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def seconds(span: str) -> float | None:
    """A span of time such as `500ms`, `10m`, `2h` or `3d`, in seconds; `None` if it is none."""
    match = _SPAN.fullmatch(span.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def percent(part: int, whole: int) -> str:
    """`67%`, rounded: `100%` only of all, `0%` only of none."""
    share = round(100 * part / whole) if whole else 0
    if 0 < part < whole:
        share = min(max(share, 1), 99)
    return f"{share}%"


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def figure(value: float | int | str | None, *, grouped: bool = False) -> str:
    """A statistic: integers in full, floats with four significant digits, `-` for none.

    A number that is not finite is already a string, in JSON and in rows of a dump.
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:{',' if grouped else ''}}" if isinstance(value, int) else f"{value:.4g}"


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts `submod_2` before `submod_10`."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
