"""The document of `list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from rewriter.artifact.graph_kind import GraphKind
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._documents.fields import WrapperName
from rewriter.commands._documents.verdicts import SourceLineEntry, source_lines
from rewriter.core.documents import Count, Document, Entry, LineNumber, entry
from rewriter.core.types import Role, Type
from rewriter.dump.names import Names
from rewriter.locate.races import Race
from rewriter.locate.types import Launch


class ArgumentEntry(Entry, frozen=True, kw_only=True):
    """One argument or result of a launch."""

    name: Annotated[str, Meta(description="As prints and the names of files have it")]
    expr: Annotated[str, Meta(description="The text in the source")]
    buffer: Annotated[str, Meta(description="The variable that owns the memory")]
    role: Role
    type: Type


class LaunchEntry(Entry, frozen=True, kw_only=True):
    """A kernel launch."""

    index: Annotated[Count, Meta(description="In its wrapper")]
    scope: Annotated[str, Meta(description="The function that it stands in")]
    kernel: str
    kind: str
    line: LineNumber
    args: tuple[ArgumentEntry, ...]
    origins: tuple[str, ...]
    source_nodes: Annotated[
        tuple[str, ...], Meta(description="The operations of the model that it computes")
    ]
    lines: Annotated[
        tuple[SourceLineEntry, ...], Meta(description="The lines of the model that it computes")
    ]
    computes: Annotated[
        tuple[str, ...],
        Meta(description="Nodes of Inductor's graph, such as: log = aten.log.default(addmm)"),
    ]
    wrapper: WrapperName
    replaced: (
        Annotated[bool, Meta(description="True where `rewriter replace` replaced it, else unset")]
        | UnsetType
    ) = UNSET


class UnrecognisedEntry(Entry, frozen=True, kw_only=True):
    """A call that is neither a known launch nor known to be none."""

    line: LineNumber
    text: str


class WrapperUnrecognisedEntry(UnrecognisedEntry, frozen=True, kw_only=True):
    """An unrecognised call, with the wrapper that it stands in."""

    wrapper: WrapperName


class RaceEntry(Entry, frozen=True, kw_only=True):
    """A launch that uses memory of another stream, or of a collective, without waiting for it."""

    wrapper: WrapperName
    launch: Annotated[Count, Meta(description="The index of the launch that does not wait")]
    other: Annotated[Count, Meta(description="The index of the launch that it should wait for")]
    argument: Annotated[str, Meta(description="The argument of the launch, by its name")]
    message: str


class WrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper of an artifact."""

    wrapper: WrapperName
    graph: GraphKind
    file: Annotated[str, Meta(description="The file, or the log, that holds it")]
    launches: Count
    key: Annotated[
        str, Meta(description="torch calls its file in the cache so; empty if in no container")
    ]
    submodules: Annotated[
        tuple[str, ...], Meta(description="The parts of the model that run it, with their sizes")
    ]
    layers: Annotated[
        tuple[str, ...], Meta(description="The layers whose weights these take, if it is known")
    ]
    model: Annotated[
        str, Meta(description="The part of the model that it is, by its first line; may be empty")
    ]
    partner: Annotated[
        str, Meta(description="The wrapper of the other direction, if a model is trained; or empty")
    ]


class InputEntry(Entry, frozen=True, kw_only=True):
    """What an input of a wrapper is in the model."""

    wrapper: WrapperName
    input: str
    name: Annotated[str, Meta(description="In the model; empty if it is not known")]
    at: Annotated[str, Meta(description="The line of the model that uses it first")]


class DamagedEntry(Entry, frozen=True, kw_only=True):
    """What cannot be read as a wrapper."""

    wrapper: WrapperName
    error: Annotated[str, Meta(description="A name in docs/errors.md")]
    message: str


class ListDocument(Document, frozen=True, kw_only=True, tag="rewriter.launches"):
    """`rewriter list --json`."""

    launches: tuple[LaunchEntry, ...]
    unrecognised: tuple[WrapperUnrecognisedEntry, ...]
    wrappers: tuple[WrapperEntry, ...]
    inputs: tuple[InputEntry, ...]
    damaged: tuple[DamagedEntry, ...]
    races: Annotated[
        tuple[RaceEntry, ...], Meta(description="With user streams, or collectives; by the text")
    ]


def list_document(
    artifact: Artifact, names: Mapping[str, Names], races: Iterable[tuple[str, Race]]
) -> ListDocument:
    """The launches of an artifact; `names` are those of the model, by wrapper."""
    return ListDocument(
        launches=tuple(
            launch_entry(launch, names.get(wrapper.name), is_replaced=launch.index in replaced)
            for wrapper in artifact.wrappers
            for replaced in [wrapper.replaced]
            for launch in wrapper.launches
        ),
        unrecognised=tuple(entry(WrapperUnrecognisedEntry, call) for call in artifact.unrecognised),
        wrappers=tuple(
            _wrapper_entry(wrapper, names.get(wrapper.name, Names()))
            for wrapper in artifact.wrappers
        ),
        inputs=tuple(
            InputEntry(wrapper=wrapper, input=name, name=given.name, at=given.at)
            for wrapper, known in names.items()
            for name, given in known.inputs.items()
        ),
        damaged=tuple(
            DamagedEntry(wrapper=name, error=error.slug, message=error.message)
            for name, error in artifact.damaged
        ),
        races=tuple(
            RaceEntry(
                wrapper=wrapper,
                launch=race.launch.index,
                other=race.other.index,
                argument=race.argument.name,
                message=race.sentence,
            )
            for wrapper, race in races
        ),
    )


def launch_entry(
    launch: Launch, names: Names | None = None, *, is_replaced: bool = False
) -> LaunchEntry:
    """A launch; what the source does not say of its operators, the names do."""
    known = names or Names()
    nodes = launch.source_nodes or known.nodes.get(launch.index, ())
    return entry(
        LaunchEntry,
        replace(launch, source_nodes=nodes),
        lines=source_lines(known.lines.get(launch.index, ())),
        computes=known.computes.get(launch.index, ()),
        **({"replaced": True} if is_replaced else {}),
    )


def _wrapper_entry(wrapper: Wrapper, names: Names) -> WrapperEntry:
    return entry(
        WrapperEntry,
        wrapper.stored,
        wrapper=wrapper.name,
        graph=wrapper.graph,
        file=str(wrapper.file),
        launches=len(wrapper.launches),
        model=names.graph,
        partner=names.partner,
    )
