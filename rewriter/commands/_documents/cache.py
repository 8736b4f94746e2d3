"""The documents of `cache`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from rewriter.core.documents import Count, Document, Entry
from rewriter.core.printed import printed
from rewriter.dump.names import NO_NAMES, Names
from rewriter.execution.hook.cache.restore import Restored
from rewriter.execution.hook.cache.select import Chosen
from rewriter.execution.hook.cache.slots import Cache, Slot

WrapperFile = Annotated[str, Meta(description="The wrapper's path in the cache")]
Seconds = Annotated[float, Meta(description="Since 1970")]


@printed(
    "*slot slot.wrapper.graph slot.wrapper.language launches kernels source_nodes model=names.graph"
    " partner=names.partner"
)
class ListedSlot(Entry, frozen=True, kw_only=True):
    """A wrapper of the cache, with what it launches, and which part of the model it is."""

    slot: Slot
    names: Names
    launches: Count
    kernels: tuple[str, ...]
    source_nodes: tuple[str, ...]


class BrokenSlotEntry(Entry, frozen=True, kw_only=True):
    """A wrapper that cannot be read."""

    wrapper: WrapperFile
    reason: str


class CacheListDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-list"):
    """`rewriter cache list --json`."""

    version: Literal[3] = 3  # type: ignore[assignment]
    directory: str
    wrappers: tuple[ListedSlot, ...]
    broken: tuple[BrokenSlotEntry, ...]
    foreign: Annotated[tuple[str, ...], Meta(description="Files that are no wrappers")]
    kernel_files: Count


class CacheStatusDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-status"):
    """`rewriter cache status --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    directory: str
    wrappers: Annotated[tuple[Slot, ...], Meta(description="Those that are not plain")]
    products: Annotated[Count, Meta(description="Builds of wrappers that had probes")]
    temporary: Annotated[
        tuple[str, ...], Meta(description="Files that a command left which was stopped")
    ]


@printed("directory *restored")
class CacheRestoreDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-restore"):
    """`rewriter cache restore --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    directory: str
    restored: Restored


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
        wrappers=tuple(slot for slot in cache.slots if slot.state != "plain"),
        products=products,
        temporary=tuple(map(str, cache.temporary)),
    )


def _listed(slot: Slot, names: Names) -> ListedSlot:
    launches = slot.wrapper.located.launches
    return ListedSlot(
        slot=slot,
        names=names,
        launches=len(launches),
        kernels=_each(launch.kernel for launch in launches),
        source_nodes=_each(node for launch in launches for node in launch.source_nodes),
    )


def _each(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
