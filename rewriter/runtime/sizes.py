"""Parses the limits of a dump: `--max-bytes`, and how many calls are kept."""

from __future__ import annotations

import os
import re

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


def check_kept_calls() -> None:
    """Raise `ValueError` if `REWRITER_KEEP`, how many calls a dump keeps, is not a number of
    them."""
    wanted = os.environ.get("REWRITER_KEEP", "1") or "1"
    if not (wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted)):
        raise ValueError(f"REWRITER_KEEP: {wanted!r} is no number of calls, such as 5")
