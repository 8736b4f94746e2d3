"""The document of `list` on a library without its source."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.artifact.lone_library import LoneLibrary
from rewriter.core.documents import Count, Document, Entry, entry


class LibraryKernelEntry(Entry, frozen=True, kw_only=True):
    """A kernel of the CPU."""

    name: str
    offset: Annotated[Count, Meta(description="From the beginning of the library, in bytes")]
    size: Annotated[Count, Meta(description="Of its code, in bytes")]


class ShimCallEntry(Entry, frozen=True, kw_only=True):
    """A function of torch that launches something."""

    name: str
    kind: Annotated[str, Meta(description="That of the launches by it")]


class LibraryDocument(Document, frozen=True, kw_only=True, tag="rewriter.library"):
    """`rewriter list --json` on a library of AOTInductor."""

    library: str
    device: str
    machine: str
    models: Annotated[tuple[str, ...], Meta(description="The classes of the models in it")]
    entries: Annotated[tuple[str, ...], Meta(description="The functions for a caller")]
    constants: Annotated[Count | None, Meta(description="Their bytes; null: the file does not say")]
    needs: Annotated[tuple[str, ...], Meta(description="Other libraries")]
    kernels: tuple[LibraryKernelEntry, ...]
    gpu_kernels: Annotated[tuple[str, ...], Meta(description="That it gives to a driver")]
    calls: tuple[ShimCallEntry, ...]
    others: Annotated[tuple[str, ...], Meta(description="What else of torch it calls")]
    stripped: Annotated[bool, Meta(description="Kernels of the CPU have no names then")]


def library_document(library: LoneLibrary) -> LibraryDocument:
    return entry(
        LibraryDocument,
        library,
        library=str(library.path),
        machine=library.library.machine,
        needs=library.library.needed,
        stripped=library.is_stripped,
    )
