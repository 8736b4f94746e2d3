"""The document of `sanitize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from rewriter.commands._documents.diagnose import FindingEntry, StepEntry
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.diagnosis.findings import Diagnosis
from rewriter.diagnosis.sanitized import Check, Coverage


class CoverageEntry(Entry, frozen=True, kw_only=True):
    """What a check looked at, over all calls of one run."""

    check: Check
    covered: Annotated[dict[str, Count], Meta(description="How many, by what they are")]
    left_out: Annotated[dict[str, Count], Meta(description="How many not, by the reason")]


class SanitizeDocument(Document, frozen=True, kw_only=True, tag="rewriter.sanitize"):
    """`rewriter sanitize --json`: memory that launches use and must not."""

    directory: Annotated[str, Meta(description="That of the dumps; empty if nothing was run")]
    headline: Annotated[str, Meta(description="One sentence")]
    finding: Annotated[FindingEntry | None, Meta(description="The first of findings")]
    findings: tuple[FindingEntry, ...]
    ruled_out: tuple[str, ...]
    notes: tuple[str, ...]
    coverage: tuple[CoverageEntry, ...]
    runs: tuple[StepEntry, ...]
    checked: Annotated[Count, Meta(description="Launches whose memory was looked at")]
    launches: Annotated[Count, Meta(description="Launches that ran")]


def sanitize_document(
    directory: str, diagnosis: Diagnosis, coverage: Sequence[Coverage]
) -> SanitizeDocument:
    more = {"directory": directory, "coverage": coverage, "runs": diagnosis.steps}
    return entry(SanitizeDocument, diagnosis, **more)
