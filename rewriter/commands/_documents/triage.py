"""The documents of `triage`."""

from __future__ import annotations

from typing import Literal

from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.core.documents import Document, Entry, Row
from rewriter.core.printed import printed
from rewriter.diagnosis.verdict import Verdict


class TriageStep(Entry, frozen=True, kw_only=True):
    """One of the runs, and how it ended."""

    name: str
    crashed: bool
    how: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.how} ({self.seconds:.1f} s)"


class EmptyTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` where nothing crashed, or which was interrupted."""

    steps: tuple[TriageStep, ...]
    verdict: None = None
    next: Literal[""] = ""
    unexpected: tuple[()] = ()
    dump: None = None


@printed("artifact steps verdict verdicts next unexpected dump")
class ArtifactTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of an artifact that crashed. `verdict` is the first of `verdicts`,
    and `next` tells more of it."""

    artifact: str
    steps: tuple[TriageStep, ...]
    verdicts: tuple[Verdict, ...]
    next: str
    unexpected: tuple[Row, ...]
    dump: str | None

    @property
    def verdict(self) -> Verdict | None:
        return self.verdicts[0] if self.verdicts else None


class ProgramTriageDocument(Document, frozen=True, kw_only=True, tag="rewriter.triage"):
    """`rewriter triage --json` of a program that crashed; `run` is null where it could not be
    probed."""

    steps: tuple[TriageStep, ...]
    run: ProgramRunDocument | None
