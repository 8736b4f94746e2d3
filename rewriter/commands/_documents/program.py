"""The document of a program that ran with probes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.artifact.graph_kind import GraphKind
from rewriter.commands._documents.launch_times import LaunchTimeEntry, launch_time
from rewriter.commands._documents.verdicts import VerdictEntry, verdict_entry
from rewriter.commands._program_report import ProgramRun
from rewriter.core.documents import Count, Document, Entry, Row
from rewriter.dump.documents import EndedStatus
from rewriter.dump.rows import to_json
from rewriter.execution.conclusion import ended_status

WrapperFile = Annotated[str, Meta(description="The file that it was loaded from")]


class RefusedEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that got none, and why."""

    wrapper: WrapperFile
    error: Annotated[str, Meta(description="A name in docs/errors.md")]
    reason: str


class CalledWrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that had probes while the program ran."""

    wrapper: WrapperFile
    graph: GraphKind
    launches: Annotated[Count, Meta(description="How many had probes")]
    calls: Annotated[Count, Meta(description="How many were recorded")]


class UnprobedEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that ran without probes, and why."""

    wrapper: WrapperFile
    reason: str


class FindingEntry(Entry, frozen=True, kw_only=True):
    """A first NaN, a first infinity that a launch computed, or an unexpected input."""

    kind: Literal["nan", "inf", "unexpected"]
    artifact: str
    run: Annotated[str, Meta(description="The call in the dump, such as rank0/run3")]
    event: Row


class ProgramRunDocument(Document, frozen=True, kw_only=True, tag="rewriter.program-run"):
    """`rewriter run --json -- COMMAND`."""

    program: tuple[str, ...]
    command: str
    ended: EndedStatus
    interrupted: bool
    wrappers: tuple[CalledWrapperEntry, ...]
    refused: tuple[RefusedEntry, ...]
    unprobed: tuple[UnprobedEntry, ...]
    launches: Annotated[Count, Meta(description="Recorded")]
    findings: tuple[FindingEntry, ...]
    dump: Annotated[str | None, Meta(description="null: nothing was recorded")]
    verdicts: tuple[VerdictEntry, ...]
    next: Annotated[str, Meta(description="What tells more of the first verdict; may be empty")]
    times: Annotated[tuple[LaunchTimeEntry, ...], Meta(description="With the probe time")]
    trace: Annotated[str | None, Meta(description="For Perfetto, with the probe time")]


def run_document(probed: ProgramRun) -> ProgramRunDocument:
    """Of a program that ran with probes."""
    request, run = probed.request, probed.run
    return ProgramRunDocument(
        program=request.program,
        command=request.command,
        ended=ended_status(run.ended),
        interrupted=run.interrupted,
        wrappers=tuple(
            CalledWrapperEntry(
                wrapper=str(wrapper.path),
                graph=wrapper.wrapper.graph,
                launches=len(wrapper.result.plan.probed),
                calls=run.summary.calls.get(wrapper.path.name, 0),
            )
            for wrapper in run.probed
            if wrapper.result is not None
        ),
        refused=tuple(
            RefusedEntry(
                wrapper=str(wrapper.path), error=wrapper.error.slug, reason=wrapper.error.message
            )
            for wrapper in run.refused
            if wrapper.error is not None
        ),
        unprobed=tuple(
            UnprobedEntry(wrapper=str(unprobed.path), reason=unprobed.reason)
            for unprobed in run.unprobed
        ),
        launches=run.summary.launches,
        findings=tuple(
            FindingEntry(kind=x.kind, artifact=x.artifact, run=x.run, event=to_json(x.row))
            for x in run.summary.findings
        ),
        dump=None if run.dump is None else str(run.dump),
        verdicts=tuple(map(verdict_entry, probed.verdicts)),
        next=probed.following[0] if probed.following else "",
        times=tuple(map(launch_time, probed.times)),
        trace=None if probed.trace is None else str(probed.trace),
    )
