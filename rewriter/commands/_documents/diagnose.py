"""The document of `diagnose`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.commands._documents.verdicts import SourceLineEntry
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.diagnosis.findings import Certainty, Diagnosis, FindingKind


class FindingEntry(Entry, frozen=True, kw_only=True):
    """Something that is wrong."""

    headline: Annotated[str, Meta(description="One sentence")]
    kind: FindingKind
    shown: Annotated[str, Meta(description="By what it is known")]
    certainty: Certainty
    symptom: Annotated[bool, Meta(description="It may follow from another finding")]
    artifact: str
    run: str
    launch: Annotated[
        Count | None, Meta(description="null: about the inputs or the outputs of a call")
    ]
    iteration: Count
    kernel: str
    line: Annotated[Count, Meta(description="Of the wrapper; 0: not known")]
    lines: Annotated[tuple[SourceLineEntry, ...], Meta(description="Of the model")]
    others: Annotated[tuple[Count, ...], Meta(description="Further launches that it is about")]
    text: Annotated[tuple[str, ...], Meta(description="The evidence, as the page has it")]
    step: Annotated[
        str,
        Meta(description="Of `eager`, the step at fault: tracing, inductor or unknown; else empty"),
    ]


class SuspectEntry(Entry, frozen=True, kw_only=True):
    """A launch that could not be checked."""

    artifact: str
    run: str
    launch: Count
    iteration: Count
    kernel: str
    line: Count
    reason: str
    feeds: Annotated[
        bool | None,
        Meta(description="Whether what it writes reaches an output that is wrong; null: not known"),
    ]


class StepEntry(Entry, frozen=True, kw_only=True):
    """A run: its probes, why it was needed, how it ended, and its dump."""

    what: str
    why: str
    outcome: str
    seconds: float
    dump: str


class DiagnoseDocument(Document, frozen=True, kw_only=True, tag="rewriter.diagnose"):
    """`rewriter diagnose --json`: what is wrong, how that is known, and what is ruled out."""

    directory: str
    headline: Annotated[str, Meta(description="One sentence")]
    finding: Annotated[FindingEntry | None, Meta(description="The first of findings")]
    findings: tuple[FindingEntry, ...]
    ruled_out: tuple[str, ...]
    suspects: tuple[SuspectEntry, ...]
    notes: tuple[str, ...]
    runs: tuple[StepEntry, ...]
    next: Annotated[str, Meta(description="The command that tells more; may be empty")]
    checked: Annotated[Count, Meta(description="Launches compared with what they have to do")]
    by_arguments: Annotated[
        Count,
        Meta(
            description="Launches of custom operators, and draws of seeds, among these that are "
            "given what their graph says: what they compute is their own"
        ),
    ]
    launches: Annotated[Count, Meta(description="Launches that ran")]
    compared: Annotated[
        Count, Meta(description="Outputs of calls compared with what the whole graph gives")
    ]
    outputs: Annotated[
        Count, Meta(description="Outputs of calls; values that nobody defines are none")
    ]


def diagnose_document(directory: str, diagnosis: Diagnosis) -> DiagnoseDocument:
    return entry(DiagnoseDocument, diagnosis, directory=directory, runs=diagnosis.steps)
