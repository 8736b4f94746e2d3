"""`rewriter list` of an AOTInductor library without its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rewriter.artifact.lone_library import LoneLibrary, open_library
from rewriter.commands._options import WhichOptions, refuse_options
from rewriter.commands._output import emit
from rewriter.core.errors import OK
from rewriter.core.terminal import Line, message, say, table
from rewriter.core.text import counted


def show(arguments: WhichOptions, path: Path) -> int:
    """List what the symbols of a library show."""
    why = f"{path} is a library, which holds one model"
    refuse_options(arguments, "models wrappers", why, "Drop the option.")
    library = open_library(path)
    if arguments.json:
        from rewriter.commands._documents.library import LibraryDocument

        emit(LibraryDocument(lone=library))
        return OK
    say(*_about(library))
    if rows := [*_rows(library)]:
        say(*table([["kind", "launches", "where"], *rows]))
    known = counted(len(rows), "kernel or call", "kernels and calls")
    message(f"{known}, in no order and without shapes: a library has no more")
    if library.is_stripped:
        message("note: it was stripped, so kernels of the CPU in it have no names")
    return OK


def _about(library: LoneLibrary) -> Iterator[Line]:
    models = ", ".join(library.models) or "unknown"
    yield f"{library.path.name}: AOTInductor for {library.device}, {library.library.machine}"
    yield f"  model {models}: {counted(len(library.entries), 'function')} for a caller"
    size = library.constants
    yield f"  constants: {'unknown' if size is None else f'{size:,} bytes'}"
    yield f"  needs {', '.join(library.library.needed)}"


def _rows(library: LoneLibrary) -> Iterator[list[str]]:
    for kernel in library.kernels:
        yield ["cpp", kernel.name, f"at {kernel.offset:#x}, {kernel.size:,} bytes"]
    for name in library.gpu_kernels:
        yield ["triton" if name.startswith("triton") else "cuda", name, "through the driver"]
    for call in library.calls:
        yield [call.kind, call.name, "in torch"]
