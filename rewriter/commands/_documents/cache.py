"""The documents of `cache`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, structs

from rewriter.artifact.graph_kind import GraphKind
from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.core.types import Language
from rewriter.dump.names import NO_NAMES, Names
from rewriter.hook.cache.restore import Restored
from rewriter.hook.cache.select import Chosen
from rewriter.hook.cache.slots import BackupKind, Cache, Slot, SlotState

WrapperFile = Annotated[str, Meta(description="The wrapper's path in the cache")]
Seconds = Annotated[float, Meta(description="Since 1970")]


class SlotEntry(Entry, frozen=True, kw_only=True):
    """A wrapper in its place in the cache."""

    wrapper: WrapperFile
    path: str
    modified: Seconds
    state: SlotState
    backup: BackupKind
    probes: tuple[str, ...]


class ListedSlotEntry(SlotEntry, frozen=True, kw_only=True):
    """A wrapper of the cache, with what it launches."""

    graph: GraphKind
    language: Language
    launches: Count
    kernels: tuple[str, ...]
    source_nodes: tuple[str, ...]
    model: Annotated[
        str, Meta(description="The part of the model that it is, by its first line; may be empty")
    ]
    partner: Annotated[
        str, Meta(description="The wrapper of the other direction, if a model is trained; or empty")
    ]


class BrokenSlotEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that cannot be read."""

    wrapper: WrapperFile
    reason: str


class CacheListDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-list"):
    """`rewriter cache list --json`."""

    version: Literal[3] = 3  # type: ignore[assignment]
    directory: str
    wrappers: tuple[ListedSlotEntry, ...]
    broken: tuple[BrokenSlotEntry, ...]
    foreign: Annotated[tuple[str, ...], Meta(description="Files that are no wrappers")]
    kernel_files: Count


class CacheStatusDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-status"):
    """`rewriter cache status --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    directory: str
    wrappers: Annotated[tuple[SlotEntry, ...], Meta(description="Those that are not plain")]
    products: Annotated[Count, Meta(description="Builds of wrappers that had probes")]
    temporary: Annotated[
        tuple[str, ...], Meta(description="Files that a command left which was stopped")
    ]


class CacheRestoreDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-restore"):
    """`rewriter cache restore --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    directory: str
    restored: tuple[str, ...]
    left: Annotated[tuple[str, ...], Meta(description="Edited, and as they were")]
    products: Annotated[Count, Meta(description="Builds of instrumented C++ that were removed")]
    graphs: Annotated[Count, Meta(description="Compiled graphs with probes that were removed")]


def list_document(cache: Cache, chosen: Chosen, parts: Mapping[str, Names]) -> CacheListDocument:
    """The wrappers of a cache; `parts` says which part of the model each is."""
    return CacheListDocument(
        directory=str(cache.directory),
        wrappers=tuple(
            _listed(slot, parts.get(slot.wrapper.name, NO_NAMES)) for slot in chosen.slots
        ),
        broken=tuple(BrokenSlotEntry(wrapper=name, reason=why) for name, why in chosen.broken),
        foreign=tuple(cache.foreign),
        kernel_files=cache.kernels,
    )


def status_document(cache: Cache, products: int) -> CacheStatusDocument:
    return CacheStatusDocument(
        directory=str(cache.directory),
        wrappers=tuple(_slot(slot) for slot in cache.slots if slot.state != "plain"),
        products=products,
        temporary=tuple(map(str, cache.temporary)),
    )


def restore_document(directory: Path, done: Restored) -> CacheRestoreDocument:
    return CacheRestoreDocument(directory=str(directory), **vars(done))


def _slot(slot: Slot) -> SlotEntry:
    return entry(SlotEntry, slot, wrapper=slot.name, path=str(slot.path))


def _listed(slot: Slot, part: Names) -> ListedSlotEntry:
    launches = slot.wrapper.located.launches
    return ListedSlotEntry(
        **structs.asdict(_slot(slot)),
        graph=slot.wrapper.graph,
        language=slot.wrapper.language,
        launches=len(launches),
        kernels=_each(launch.kernel for launch in launches),
        source_nodes=_each(node for launch in launches for node in launch.source_nodes),
        model=part.graph,
        partner=part.partner,
    )


def _each(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
