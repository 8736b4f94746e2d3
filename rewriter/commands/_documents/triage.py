"""The documents of `triage`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.commands._documents.run import First, Next
from rewriter.commands._documents.verdicts import VerdictEntry
from rewriter.core.documents import Document, Entry, Row


class StepEntry(Entry, frozen=True, kw_only=True):
    """One of the runs, and how it ended."""

    name: str
    crashed: bool
    how: str
    seconds: float


class EmptyTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` where nothing crashed, or which was interrupted."""

    steps: tuple[StepEntry, ...]
    verdict: None
    next: Literal[""]
    unexpected: Annotated[tuple[Row, ...], Meta(max_length=0)]
    dump: None


class ArtifactTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of an artifact that crashed."""

    artifact: str
    steps: tuple[StepEntry, ...]
    verdict: First
    verdicts: tuple[VerdictEntry, ...]
    next: Next
    unexpected: tuple[Row, ...]
    dump: str | None


class ProgramTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of a program that crashed; `run` is null where it could not be
    probed."""

    steps: tuple[StepEntry, ...]
    run: ProgramRunDocument | None
