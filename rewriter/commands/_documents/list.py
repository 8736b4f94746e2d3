"""The document of `list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.documents import Count, Document, Entry, WrapperName
from rewriter.core.printed import printed
from rewriter.dump.names import NO_NAMES, Names, SourceLine
from rewriter.locate.races import Race
from rewriter.locate.types import Launch, Unrecognised


@printed(
    "launch.index launch.scope launch.kernel launch.kind launch.line launch.args launch.origins"
    " source_nodes lines computes launch.wrapper replaced"
)
class ListedLaunch(Entry, frozen=True, kw_only=True):
    """A kernel launch; `scope` is the function that it stands in. `source_nodes` are the operations
    of the model that it computes, `lines` its lines, and `computes` nodes of Inductor's graph, such
    as `log = aten.log.default(addmm)`."""

    launch: Launch
    names: Names
    replaced: (
        Annotated[bool, Meta(description="True where `rewriter replace` replaced it, else unset")]
        | UnsetType
    ) = UNSET

    @property
    def source_nodes(self) -> tuple[str, ...]:
        """What the source does not say of its operators, the names do."""
        return self.launch.source_nodes or self.names.nodes.get(self.launch.index, ())

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        return self.names.lines.get(self.launch.index, ())

    @property
    def computes(self) -> tuple[str, ...]:
        return self.names.computes.get(self.launch.index, ())


@printed("*call call.wrapper")
class UnrecognisedCall(Entry, frozen=True, kw_only=True):
    """An unrecognised call, with the wrapper that it stands in."""

    call: Unrecognised


@printed(
    "wrapper launch=race.launch.index other=race.other.index argument=race.argument.name"
    " message=race.sentence"
)
class RaceEntry(Entry, frozen=True, kw_only=True):
    """A launch that uses the memory of an argument, without waiting for the other launch, on
    another stream or a collective, that it should wait for."""

    wrapper: WrapperName
    race: Race


@printed(
    "wrapper=wrapper.name wrapper.graph wrapper.file launches wrapper.stored.key"
    " wrapper.stored.submodules wrapper.stored.layers model=names.graph names.partner"
)
class ListedWrapper(Entry, frozen=True, kw_only=True):
    """A wrapper of an artifact, and the file that holds it. torch calls its file in the cache by
    the `key`, which is empty if it is in no container. `submodules` are the parts of the model that
    run it, with their sizes, `layers` those whose weights these take. `model` is the part of the
    model that it is, by its first line, and `partner` the wrapper of the other direction, if the
    model is trained; all are empty if not known."""

    wrapper: Wrapper
    names: Names

    @property
    def launches(self) -> Count:
        return len(self.wrapper.launches)


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

    launches: tuple[ListedLaunch, ...]
    unrecognised: tuple[UnrecognisedCall, ...]
    wrappers: tuple[ListedWrapper, ...]
    inputs: tuple[InputEntry, ...]
    damaged: tuple[DamagedEntry, ...]
    races: Annotated[
        tuple[RaceEntry, ...], Meta(description="With user streams, or collectives; by the text")
    ]


def list_document(
    artifact: Artifact, names: Mapping[str, Names], races: Iterable[tuple[str, Race]]
) -> ListDocument:
    """The launches of an artifact; `names` are those of the model, by wrapper."""
    known = [(wrapper, names.get(wrapper.name, NO_NAMES)) for wrapper in artifact.wrappers]
    return ListDocument(
        launches=tuple(
            ListedLaunch(
                launch=launch, names=own, replaced=True if launch.index in replaced else UNSET
            )
            for wrapper, own in known
            for replaced in [wrapper.replaced]
            for launch in wrapper.launches
        ),
        unrecognised=tuple(UnrecognisedCall(call=call) for call in artifact.unrecognised),
        wrappers=tuple(ListedWrapper(wrapper=wrapper, names=own) for wrapper, own in known),
        inputs=tuple(
            InputEntry(wrapper=wrapper, input=name, name=given.name, at=given.at)
            for wrapper, own in names.items()
            for name, given in own.inputs.items()
        ),
        damaged=tuple(
            DamagedEntry(wrapper=name, error=error.slug, message=error.message)
            for name, error in artifact.damaged
        ),
        races=tuple(RaceEntry(wrapper=wrapper, race=race) for wrapper, race in races),
    )
