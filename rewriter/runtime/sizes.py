"""Parses the limits of a dump: `--max-bytes`, and how many calls are kept."""

from __future__ import annotations

import os
import re
from typing import Any

_SIZE = re.compile(r"([0-9]{1,15})(?:([KMGT])(i?))?B?")
_MOST = (1 << 63) - 1
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


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


def wanted_bytes(options: dict[str, Any]) -> int:
    """The limit of bytes that a process may write to a dump; 0 for no limit.

    Raises `ValueError` if `REWRITER_MAX_BYTES` is not a size.
    """
    if wanted := os.environ.get("REWRITER_MAX_BYTES"):
        try:
            return parse_bytes(wanted)
        except ValueError as error:
            raise ValueError(f"REWRITER_MAX_BYTES: {error}") from error
    # A file that was instrumented by an earlier version has fewer options.
    given = str(options.get("max_bytes") or "")
    return parse_bytes(given) if given else 0


def wanted_calls(options: dict[str, Any]) -> int:
    """How many calls of each wrapper a dump keeps, the last ones; 0 for all of them.

    Raises `ValueError` if `REWRITER_KEEP` is not a positive number.
    """
    if wanted := os.environ.get("REWRITER_KEEP"):
        if not (wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted)):
            raise ValueError(f"REWRITER_KEEP: {wanted!r} is no number of calls, such as 5")
        return int(wanted)
    return int(options.get("last") or 0)
