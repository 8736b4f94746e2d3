"""The document of `control`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rewriter.core.documents import Document, Entry, entry
from rewriter.execution.control import ControlState


class RequestEntry(Entry, frozen=True, kw_only=True):
    """What the control file asks for."""

    id: Annotated[str, Meta(description="Tells one request from the next")]
    probes: Annotated[tuple[str, ...], Meta(description="None: everything is off")]
    kernels: tuple[str, ...]
    launches: str
    ranks: str
    calls: Annotated[int, Meta(description="0: no limit")]
    every: int
    until: Annotated[int, Meta(description="Milliseconds since 1970; 0: until off")]
    dump: str
    keep: Annotated[int, Meta(description="Calls that the dump keeps of a wrapper; 0: all")]
    max_bytes: Annotated[str, Meta(description="Of each process in the dump; empty: no limit")]
    quiet: bool


class WrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper of a process that runs, and has seen a request."""

    host: str
    pid: int
    rank: int
    wrapper: str
    on: Annotated[tuple[str, ...], Meta(description="The probes that are on")]
    recorded: Annotated[int, Meta(description="Calls that were recorded of its last request")]
    is_current: Annotated[bool, Meta(description="Whether that is the request of the file")]


class ControlDocument(Document, frozen=True, kw_only=True, tag="rewriter.control-state"):
    """`rewriter control --json`."""

    path: str
    request: RequestEntry | None
    wrappers: tuple[WrapperEntry, ...]


class RecordingDocument(Document, frozen=True, kw_only=True, tag="rewriter.recording"):
    """`rewriter control dump --json`."""

    dump: str
    processes: tuple[int, ...]


def recording_document(folder: Path, rings: Iterable[tuple[int, Path]]) -> RecordingDocument:
    """Where the dump is, and of which processes."""
    return RecordingDocument(
        dump=str(folder), processes=tuple(dict.fromkeys(pid for pid, _ in rings))
    )


def control_document(path: Path, state: ControlState) -> ControlDocument:
    """What is asked for, and what is on."""
    return entry(ControlDocument, state, path=str(path))
