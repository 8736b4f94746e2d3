"""Reads the JSON files that a dump has beside its rows: facts that were added by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rewriter.core import json_text, limits

_T = TypeVar("_T")


def read(path: Path, key: str, convert: Callable[[Any], _T]) -> Mapping[str, _T]:
    """The converted values of the object that a file has under a key, by their names.

    None where there is no such file, or it is damaged. A value for which `convert` raises
    `SchemaError` is left out: the others are sound.
    """
    try:
        facts = path.stat()
    except OSError:
        return {}
    if facts.st_size > limits.JSON_BYTES:
        return {}
    return _read(path, key, convert, facts.st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: Path, key: str, convert: Callable[[Any], _T], changed: int) -> Mapping[str, _T]:
    """`changed` is the time of the last change: each run of a dump asks for the same."""
    # `list` has names without a dump, and does not pay for the types of one.
    from rewriter.dump.rows import SchemaError

    try:
        rows = json_text.parse_object(path.read_bytes()).get(key)
    except (OSError, json_text.JsonError):
        return {}
    values = {}
    for name, row in rows.items() if isinstance(rows, dict) else ():
        with suppress(SchemaError):
            values[name] = convert(row)
    return values
