"""Reads the JSON files beside the rows of a dump: facts that were added to it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rewriter.core import json_text, limits

_T = TypeVar("_T")


def read(path: Path, key: str, convert: Callable[[Any], _T]) -> Mapping[str, _T]:
    """The converted values of the object under a key of a file, by their names.

    Empty if the file does not exist or is damaged. A value for which `convert` raises `SchemaError`
    is left out, and the others are still used.
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
    """`changed` is the time of the last change, for the cache: each run of a dump asks for this."""
    # Imported late: `list` reads names without a dump, and should not pay for the types of one.
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
