"""What `rewriter cache` does, and prints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rewriter.commands._documents import cache as documents
from rewriter.commands._output import NAMED, emit
from rewriter.commands.cache import Arguments, ListArguments
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.labels import short
from rewriter.core.quantities import comma_separated
from rewriter.core.terminal import message, say, table
from rewriter.core.text import counted, some
from rewriter.dump.names import NO_NAMES
from rewriter.execution.hook.cache import location, restore
from rewriter.execution.hook.cache.slots import choose, scan
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import parts_of

_BACKUPS = {
    "none": "from the file itself",
    "original": "kept beside it",
    "foreign": "from the file itself; what lies beside it is another file",
}
_FEW = 3  # kernels and source nodes in a line of a table


def list_wrappers(arguments: ListArguments) -> int:
    cache = scan(location.existing(arguments.dir))
    chosen, broken = choose(cache, arguments.globs, comma_separated(arguments.kernels or ""))
    parts = parts_of([slot.wrapper for slot in chosen], Compilations())
    found = documents.CacheListDocument(
        cache=cache,
        wrappers=tuple(
            documents.ListedSlot(slot=slot, names=parts.get(slot.wrapper.name, NO_NAMES))
            for slot in chosen
        ),
        broken=tuple(documents.BrokenSlot(wrapper=name, reason=reason) for name, reason in broken),
    )
    if arguments.json:
        emit(found)
        return OK
    _show_listing(found, with_names=bool(parts))
    if cache.slots and not (chosen or broken):
        count = counted(len(cache.slots), "wrapper")
        raise RewriterError(
            "no-wrapper-matches",
            f"{cache.directory} holds {count}, and none matches the request",
            hint="`rewriter cache list` shows them.",
        )
    return OK


def show_status(arguments: Arguments) -> int:
    cache = scan(location.existing(arguments.dir))
    products = len(restore.built(cache.directory))
    status = documents.CacheStatusDocument(cache=cache, products=products)
    if arguments.json:
        emit(status)
    else:
        _show_status(status)
    return DIFFERS if any(slot.probes for slot in cache.slots) else OK


def restore_all(arguments: Arguments) -> int:
    cache = scan(location.existing(arguments.dir))
    done = restore.restore(cache)
    if arguments.json:
        emit(documents.CacheRestoreDocument(directory=str(cache.directory), restored=done))
    else:
        text = f"restored {counted(len(done.restored), 'wrapper')}"
        if done.products:
            text += f", removed {counted(done.products, 'build')} of instrumented C++"
        if done.graphs:
            text += f", removed {counted(done.graphs, 'compiled graph')} with probes"
        say(text)
    if done.left:
        message(
            "warning: edited since the probes went in, and left as it is: "
            f"{some(done.left, NAMED)}; "
            "`rewriter strip --in-place FILE` takes the probes out, and keeps the edits"
        )
    return DIFFERS if done.left else OK


def _show_listing(found: documents.CacheListDocument, *, with_names: bool) -> None:
    cache, wrappers = found.cache, found.wrappers
    head = ["wrapper", "when", "graph", "language", "launches", "kernels", "source nodes", "state"]
    head += ["model"] if with_names else []
    head += ["trained with"] if any(wrapper.names.partner for wrapper in wrappers) else []
    if wrappers:
        say(*table([head, *(_row(wrapper)[: len(head)] for wrapper in wrappers)]))
    for wrapper in found.broken:
        message(f"warning: {wrapper.wrapper} cannot be read: {wrapper.reason}")
    for name in cache.foreign:
        message(f"not a wrapper: {name}")
    others = len(cache.slots) - len(wrappers) - len(found.broken)
    message(
        f"{counted(len(wrappers), 'wrapper')} in {cache.directory}"
        + (f", {others} not asked for" if others else "")
        + (f", {counted(cache.kernels, 'file')} of kernels" if cache.kernels else "")
    )


def _row(found: documents.ListedSlot) -> list[str]:
    slot, names = found.slot, found.names
    return [
        slot.short,
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(slot.modified)),
        slot.wrapper.graph,
        slot.wrapper.language,
        str(found.launches),
        _few(found.kernels),
        _few(found.source_nodes),
        f"{slot.state} ({','.join(slot.probes)})" if slot.probes else slot.state,
        names.graph,
        short(Path(names.partner)) if names.partner else "",
    ]


def _show_status(status: documents.CacheStatusDocument) -> None:
    cache, held, products = status.cache, status.wrappers, status.products
    rows = [[slot.short, slot.state, ",".join(slot.probes), _BACKUPS[slot.backup]] for slot in held]
    if rows:
        say(*table([["wrapper", "state", "probes", "original"], *rows]))
    instrumented = sum(bool(slot.probes) for slot in held)
    text = f"{instrumented} of {counted(len(cache.slots), 'wrapper')} in {cache.directory} "
    text += "has probes" if instrumented == 1 else "have probes"
    if products:
        text += f", {counted(products, 'build')} of wrappers that had some"
    if cache.temporary:
        text += f", {counted(len(cache.temporary), 'file')} of a command that was stopped"
    say(text)
    if held or products or cache.temporary:
        message("`rewriter cache restore` gives the originals back, and clears up")


def _few(names: Sequence[str]) -> str:
    return " ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
