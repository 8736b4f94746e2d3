"""Verdicts as they are printed as JSON, by every command that has some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta

from rewriter.core.documents import Count, Entry, LineNumber, Row, as_json, entry
from rewriter.core.types import Json
from rewriter.diagnosis.verdict import (
    ElementRead,
    ElementStep,
    Held,
    NonFiniteOrigin,
    Producer,
    Verdict,
    VerdictArgument,
    VerdictState,
)
from rewriter.dump.documents import EndedStatus
from rewriter.dump.names import SourceLine
from rewriter.dump.rows import to_json
from rewriter.execution.conclusion import ended_status


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


class ElementStepEntry(Entry, frozen=True, kw_only=True, rename={"name": "arg"}):
    """One element, as a launch made it."""

    launch: Count | None
    iteration: Count
    kernel: str
    name: str
    index: tuple[Count, ...]
    text: Annotated[str, Meta(description="The value")]
    reads: tuple[ElementRead, ...]


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
    held: tuple[Held, ...]
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
    return entry(
        VerdictEntry,
        verdict,
        ended=None if verdict.ended is None else ended_status(verdict.ended),
        arguments=tuple(map(_argument, verdict.arguments)),
        followed=tuple(map(_step, verdict.followed)),
        model=verdict.names.graph,
        partner=verdict.names.partner,
    )


def _step(step: ElementStep) -> ElementStepEntry:
    made = step.made
    return entry(
        ElementStepEntry, step, launch=made.launch, iteration=made.iteration, kernel=made.kernel
    )


def source_lines(lines: Iterable[SourceLine]) -> tuple[SourceLineEntry, ...]:
    return tuple(entry(SourceLineEntry, line) for line in lines)


def _producer(producer: Producer | None) -> Json | None:
    return None if producer is None else as_json(entry(ProducerEntry, producer))


def _argument(argument: VerdictArgument) -> Json:
    named = {"arg": argument.name, "role": argument.role}
    named |= {"model": argument.model} if argument.model else {}
    row = {} if argument.row is None else to_json(argument.row)
    more: Json = {
        "producer": _producer(argument.producer),
        "earlier": [
            {"call": earlier.call, "value": to_json(earlier.row)} for earlier in argument.earlier
        ],
        "after": None if argument.after is None else to_json(argument.after),
    }
    if (saved := argument.saved) is not None:
        kept = {"run": saved.run, "variable": saved.variable}
        more["saved"] = kept | {"producer": _producer(saved.producer)}
    return {**row, **named, **more}
