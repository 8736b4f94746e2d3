"""Reads the log of `TORCH_TRACE`: the sources that Inductor wrote into it.

An entry is a line of glog's with a JSON object; its payload is the lines after it, each after a tab
(torch/_logging/_internal.py). The object has the MD5 of the payload.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from rewriter.artifact.trace.types import TracedSource, folder_of
from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json

# The number is that of the process.
ENTRY = re.compile(rb"[VDIWECF]\d{4} \d\d:\d\d:\d\d\.\d+ +(\d+) [^\]\n]+:\d+\] (?=\{)")
# The entries that contain wrappers: torch/_inductor/graph.py and codecache.py.
_WANTED = re.compile(rb'"inductor_output_code"|"inductor_aot_wrapper_code"')
_HEAD = 4096
_RANKS = 10**9  # bounds the rank, which becomes a folder's name
SUFFIX = ".log"
_T = TypeVar("_T")
_UNKNOWN: Json = {}  # for an entry whose object cannot be read


def is_log(path: Path) -> bool:
    """Whether a file is a log of `TORCH_TRACE`, by its first bytes."""
    try:
        with path.open("rb") as file:
            return bool(ENTRY.match(file.read(_HEAD)))
    except OSError:
        return False


def read(path: Path) -> tuple[TracedSource, ...]:
    """The sources in a log, in order; one that occurs twice is returned once."""
    sources: dict[TracedSource, None] = {}
    try:
        for about, payload, size in entries(path, _wanted, limits.WRAPPER_BYTES):
            limits.require_size(f"{path}: a traced text", size, limits.WRAPPER_BYTES)
            if payload or about is not _UNKNOWN:  # the last line of a program that was killed
                sources[_traced(path, about, payload)] = None
    except OSError as error:
        raise RewriterError(
            "unreadable",
            f"cannot read {path}: {error.strerror}",
            hint="Expected a log that TORCH_TRACE left.",
        ) from error
    return tuple(sources)


def entries(
    path: Path, wanted: Callable[[bytes], _T | None], most: int
) -> Iterator[tuple[_T, bytes, int]]:
    """Yield what `wanted` says of the line of each entry unless it is `None`, the payload, and how
    many bytes of the log that takes. What is beyond `most` bytes is left out of the payload.

    Logs are large, so only one payload is in memory at a time.
    """
    about: _T | None = None
    payload: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        lines = iter(partial(file.readline, limits.WRAPPER_BYTES + 1), b"")
        for line in chain(lines, (b"",)):
            if line.startswith(b"\t"):
                size += len(line)
                if about is not None and size <= most:
                    payload.append(line[1:])
                continue
            if about is not None:
                # The last line end belongs to the log.
                yield about, b"".join(payload)[:-1], size
            about, payload, size = wanted(line), [], 0


def _wanted(line: bytes) -> Json | None:
    head = ENTRY.match(line)
    if not head or not _WANTED.search(line):
        return None
    try:
        about = json_text.parse_object(line[head.end() :], size=limits.JSON_LINE_BYTES)
    except json_text.JsonError:
        return _UNKNOWN
    dump = about.get("graph_dump")
    is_wrapper = isinstance(dump, dict) and dump.get("name") == "inductor_aot_wrapper_code"
    return about if is_wrapper or "inductor_output_code" in about else None


def _traced(path: Path, about: Json, text: bytes) -> TracedSource:
    folder = folder_of(
        about.get("compiled_autograd_id"),
        about.get("frame_id"),
        about.get("frame_compile_id"),
        about.get("attempt"),
    )
    suffix = ".cpp" if "graph_dump" in about else ".py"
    rank = about.get("rank")
    rank = rank if isinstance(rank, int) and 0 <= rank < _RANKS else None
    return TracedSource(path, folder, suffix, text, _damage(about, text), rank)


def _damage(about: Json, text: bytes) -> str:
    if about is _UNKNOWN:
        return "the line before its text, which says what it is, was cut short or edited"
    expected = about.get("has_payload")
    if expected is None:
        named = about.get("inductor_output_code")
        where = named.get("filename") if isinstance(named, dict) else None
        return "the log has no text of it" + (f"; it was in {where}" if where else "")
    actual = hashlib.md5(text, usedforsecurity=False).hexdigest()
    if actual == expected:
        return ""
    return f"its text was cut short or edited: its MD5 is {actual}, and the log says {expected}"
