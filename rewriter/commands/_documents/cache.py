"""The documents of `cache`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.core.documents import Count, Document, Entry
from rewriter.core.printed import printed
from rewriter.dump.names import Names
from rewriter.execution.hook.cache.restore import Restored
from rewriter.execution.hook.cache.slots import Cache, Slot
from rewriter.locate.types import Launch


@printed(
    "*slot slot.wrapper.graph slot.wrapper.language launches kernels source_nodes model=names.graph"
    " partner=names.partner"
)
class ListedSlot(Entry, frozen=True, kw_only=True):
    """A wrapper of the cache, with what it launches, and which part of the model it is."""

    slot: Slot
    names: Names

    @property
    def located(self) -> tuple[Launch, ...]:
        return self.slot.wrapper.located.launches

    @property
    def launches(self) -> Count:
        return len(self.located)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.located))

    @property
    def source_nodes(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(node for launch in self.located for node in launch.source_nodes))


class BrokenSlot(Entry, frozen=True, kw_only=True):
    """A wrapper that cannot be read."""

    wrapper: Annotated[str, Meta(description="The wrapper's path in the cache")]
    reason: str


@printed("cache.directory wrappers broken cache.foreign kernel_files=cache.kernels")
class CacheListDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-list"):
    """`rewriter cache list --json`. `foreign` are files that are no wrappers."""

    version: Literal[3] = 3  # type: ignore[assignment]
    cache: Cache
    wrappers: tuple[ListedSlot, ...]
    broken: tuple[BrokenSlot, ...]


@printed("cache.directory wrappers products cache.temporary")
class CacheStatusDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-status"):
    """`rewriter cache status --json`. `wrappers` are those that are not plain, `products` the
    builds of wrappers that had probes, and `temporary` files that a command left which was
    stopped."""

    version: Literal[2] = 2  # type: ignore[assignment]
    cache: Cache
    products: Count

    @property
    def wrappers(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.cache.slots if slot.state != "plain")


@printed("directory *restored")
class CacheRestoreDocument(Document, frozen=True, kw_only=True, tag="rewriter.cache-restore"):
    """`rewriter cache restore --json`."""

    version: Literal[2] = 2  # type: ignore[assignment]
    directory: str
    restored: Restored
