"""Verdicts as they are printed as JSON, by every command that has some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from rewriter.core.documents import Count, Entry, LineNumber, Row, as_json, entry
from rewriter.core.types import Json
from rewriter.diagnosis.conclusion import ended_status
from rewriter.diagnosis.verdict import (
    ElementStep,
    Held,
    NonFiniteOrigin,
    Producer,
    SavedValue,
    Verdict,
    VerdictArgument,
    VerdictState,
)
from rewriter.dump.documents import EndedStatus
from rewriter.dump.names import SourceLine
from rewriter.dump.rows import ValueRow, to_json


class SourceLineEntry(Entry, frozen=True, kw_only=True):
    """A line of the model."""

    file: str
    line: LineNumber
    function: Annotated[str, Meta(description="The function that it stands in")]
    code: Annotated[str, Meta(description="Its text")]


class ProducerEntry(Entry, frozen=True, kw_only=True):
    """What wrote a value last."""

    launch: Annotated[Count | None, Meta(description="null: an input of the call")]
    iteration: Count
    kernel: str
    kind: str
    line: Count
    value: Annotated[Row | None, Meta(description="What it was then; null if not recorded")]


class HeldEntry(Entry, frozen=True, kw_only=True):
    """A tensor that holds NaN, or infinities that became NaN."""

    arg: str
    what: Literal["nan", "inf"]
    count: Count
    numel: Count
    where: Annotated[str, Meta(description="Empty if it was not saved")]


class ElementReadEntry(Entry, frozen=True, kw_only=True):
    """What was read of an argument to make one element."""

    arg: str
    index: Annotated[
        tuple[Count, ...] | None,
        Meta(description="Of many, the first one that is not finite, or null"),
    ]
    place: Annotated[str, Meta(description="Such as [3, :]; empty of one element")]
    text: Annotated[str, Meta(description="The value; of many, how many they are and their range")]
    finite: bool


class ElementStepEntry(Entry, frozen=True, kw_only=True):
    """One element, as a launch made it."""

    launch: Count | None
    iteration: Count
    kernel: str
    arg: str
    index: tuple[Count, ...]
    text: Annotated[str, Meta(description="The value")]
    reads: tuple[ElementReadEntry, ...]


# A row has many fields of its own.
VerdictArgumentEntry = Annotated[
    dict[str, Any],
    Meta(
        description="As in events.jsonl, with who wrote it (producer), what it was in calls before "
        "(earlier), and what the launch left in it (after); of an input of a backward that its "
        "forward kept, the call, the variable, and who wrote that there (saved)",
        extra_json_schema={"required": ["arg", "role", "producer", "earlier", "after"]},
    ),
]


class VerdictEntry(Entry, frozen=True, kw_only=True):
    """Where a process stopped, or where its first NaN is from."""

    headline: Annotated[str, Meta(description="One sentence")]
    state: Annotated[
        VerdictState,
        Meta(description="Of a crash: where the record stops. Of NaN: who made them"),
    ]
    origin: Annotated[
        NonFiniteOrigin | None, Meta(description="Where the NaN or infinities are from")
    ]
    ended: Annotated[EndedStatus | None, Meta(description="null of NaN")]
    rank: Count
    run: str
    call: Annotated[str, Meta(description="Such as: 4th call of the forward graph")]
    pid: int
    process: Annotated[str, Meta(description="What the program calls it; may be empty")]
    piece: Annotated[str, Meta(description="Of a model that was split: its layers; may be empty")]
    artifact: str
    launch: Annotated[Count | None, Meta(description="null for the inputs of the call")]
    iteration: Count
    kernel: str
    kind: str
    scope: str
    line: Count
    error: str
    asynchronous: bool
    arguments: tuple[VerdictArgumentEntry, ...]
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    probes: tuple[str, ...]
    held: tuple[HeldEntry, ...]
    cause: Annotated[
        ProducerEntry | None,
        Meta(description="The launch that made the infinities which became NaN"),
    ]
    effect: Annotated[
        ProducerEntry | None, Meta(description="The launch that made the first NaN of them")
    ]
    followed: Annotated[
        tuple[ElementStepEntry, ...],
        Meta(description="One element, from the launch backwards; empty where nothing was saved"),
    ]
    passed_on: Annotated[
        tuple[ProducerEntry, ...],
        Meta(description="Later launches of the call that wrote NaN, too"),
    ]
    notes: tuple[str, ...]
    lines: Annotated[
        tuple[SourceLineEntry, ...],
        Meta(description="The lines of the model that the launch computes"),
    ]
    computes: Annotated[
        tuple[str, ...],
        Meta(description="Nodes of Inductor's graph, such as: log = aten.log.default(addmm)"),
    ]
    model: Annotated[
        str, Meta(description="The part of the model that the wrapper is, by its first line")
    ]
    partner: Annotated[
        str, Meta(description="The wrapper of the other direction, if a model is trained")
    ]


def verdict_entry(verdict: Verdict) -> VerdictEntry:
    return VerdictEntry(
        headline=verdict.headline,
        state=verdict.state,
        origin=verdict.origin,
        ended=None if verdict.ended is None else ended_status(verdict.ended),
        rank=verdict.rank,
        run=verdict.run,
        call=verdict.call,
        pid=verdict.pid,
        process=verdict.process,
        piece=verdict.piece,
        artifact=verdict.artifact,
        launch=verdict.launch,
        iteration=verdict.iteration,
        kernel=verdict.kernel,
        kind=verdict.kind,
        scope=verdict.scope,
        line=verdict.line,
        error=verdict.error,
        asynchronous=verdict.asynchronous,
        arguments=tuple(map(_argument, verdict.arguments)),
        source_nodes=verdict.source_nodes,
        origins=verdict.origins,
        probes=verdict.probes,
        held=tuple(map(_held, verdict.held)),
        cause=None if verdict.cause is None else _producer(verdict.cause),
        effect=None if verdict.effect is None else _producer(verdict.effect),
        followed=tuple(map(_step, verdict.followed)),
        passed_on=tuple(map(_producer, verdict.passed_on)),
        notes=verdict.notes,
        lines=source_lines(verdict.lines),
        computes=verdict.computes,
        model=verdict.names.graph,
        partner=verdict.names.partner,
    )


def _step(step: ElementStep) -> ElementStepEntry:
    reads = (
        ElementReadEntry(
            arg=read.name,
            index=read.index,
            place=read.place,
            text=read.text,
            finite=read.is_finite,
        )
        for read in step.reads
    )
    return ElementStepEntry(
        launch=step.made.launch,
        iteration=step.made.iteration,
        kernel=step.made.kernel,
        arg=step.name,
        index=step.index,
        text=step.text,
        reads=tuple(reads),
    )


def source_lines(lines: Iterable[SourceLine]) -> tuple[SourceLineEntry, ...]:
    return tuple(entry(SourceLineEntry, one) for one in lines)


def _producer(producer: Producer) -> ProducerEntry:
    return ProducerEntry(
        launch=producer.launch,
        iteration=producer.iteration,
        kernel=producer.kernel,
        kind=producer.kind,
        line=producer.line,
        value=_row(producer.row),
    )


def _argument(argument: VerdictArgument) -> Json:
    named = {"arg": argument.name, "role": argument.role}
    named |= {"model": argument.model} if argument.model else {}
    producer = None if argument.producer is None else as_json(_producer(argument.producer))
    earlier = [{"call": one.call, "value": _row(one.row)} for one in argument.earlier]
    after = _row(argument.after)
    row = _row(argument.row) or {}
    saved = {} if argument.saved is None else {"saved": _saved(argument.saved)}
    return {**row, **named, "producer": producer, "earlier": earlier, "after": after, **saved}


def _saved(saved: SavedValue) -> Json:
    producer = None if saved.producer is None else as_json(_producer(saved.producer))
    return {"run": saved.run, "variable": saved.variable, "producer": producer}


def _row(row: ValueRow | None) -> Json | None:
    return None if row is None else to_json(row)


def _held(held: Held) -> HeldEntry:
    return HeldEntry(
        arg=held.name, what=held.what, count=held.count, numel=held.numel, where=held.where
    )
