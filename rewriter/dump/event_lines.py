"""Reads the lines of `events.jsonl` and `memory.jsonl`, also while a program writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump.document_files import corrupt
from rewriter.dump.rows import SchemaError

_T = TypeVar("_T")


def open_events(path: Path) -> BinaryIO:
    """Open the file with the rows of a call. Raises `RewriterError` if a program that keeps only
    the last calls has removed it since."""
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise RewriterError(
            "dump-changed",
            f"{path.parent} was removed while it was read: the program that writes the dump keeps "
            "its last calls only",
            hint="Read it again, now or after the program has ended.",
        ) from error


def rows(path: Path, read: Callable[[Json], _T]) -> Iterator[tuple[int, _T]]:
    """Yield every row and its size in bytes; a last row that a crash cut off is left out."""
    bound = limits.JSON_LINE_BYTES
    with open_events(path) as file:
        for number, line in enumerate(iter(partial(file.readline, bound + 1), b""), 1):
            if len(line) > bound:
                raise corrupt(path, f"line {number} is longer than {bound:,} bytes")
            if not line.endswith(b"\n"):
                return
            try:
                yield len(line), read(json_text.parse_object(line))
            except json_text.JsonError as error:
                raise corrupt(path, f"line {number} is no JSON object: {error}") from error
            except SchemaError as error:
                text = f"line {number}: {error} is not what a probed program writes"
                raise corrupt(path, text) from error
