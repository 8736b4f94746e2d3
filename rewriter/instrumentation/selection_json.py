"""A selection as JSON, and back, between processes of one version of this tool."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from rewriter.core.errors import RewriterError

_Value = TypeVar("_Value")


def encode(value: object) -> bytes:
    """JSON of a selection, or of a value with one. Raises `RewriterError` for a name that is not
    UTF-8."""
    try:
        return msgspec.json.encode(value, enc_hook=_ends)
    except UnicodeEncodeError as error:
        raise RewriterError(
            "usage",
            f"{error.object!r} is not UTF-8, and selects nothing",
            hint="Kernels, arguments and wrappers have names of ASCII characters.",
        ) from error


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """Raises `msgspec.ValidationError` if it is something else."""
    return msgspec.json.decode(data, type=kind, dec_hook=_range)


def _ends(selected: range) -> list[int]:
    return [selected.start, selected.stop]


def _range(_: type, ends: list[int]) -> range:
    return range(*ends)
