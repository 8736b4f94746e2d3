"""What `rewriter cache` does, and prints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from rewriter.commands._documents import cache as documents
from rewriter.commands._output import emit, listed
from rewriter.commands.cache import Arguments, ListArguments
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.labels import short
from rewriter.core.terminal import message, say, table
from rewriter.core.text import counted
from rewriter.dump.names import NO_NAMES, Names
from rewriter.execution.hook.cache import location, restore
from rewriter.execution.hook.cache.select import Chosen, choose
from rewriter.execution.hook.cache.slots import Cache, Slot, scan
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import parts_of

_FEW = 3  # kernels and source nodes in a line of a table


def list_wrappers(arguments: ListArguments) -> int:
    cache = scan(location.existing(arguments.dir))
    kernels = arguments.kernels
    chosen = choose(cache, arguments.globs, kernels.split(",") if kernels else [])
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if arguments.json:
        emit(documents.list_document(cache, chosen, parts))
        return OK
    _show_listing(cache, chosen, parts)
    if cache.slots and not (chosen.slots or chosen.broken):
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
    if arguments.json:
        emit(documents.status_document(cache, products))
    else:
        _show_status(cache, products)
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
            f"warning: edited since the probes went in, and left as it is: {listed(done.left)}; "
            "`rewriter strip --in-place FILE` takes the probes out, and keeps the edits"
        )
    return DIFFERS if done.left else OK


def _show_listing(cache: Cache, chosen: Chosen, parts: Mapping[str, Names]) -> None:
    head = ["wrapper", "when", "graph", "language", "launches", "kernels", "source nodes", "state"]
    head += ["model"] if parts else []
    head += ["trained with"] if any(part.partner for part in parts.values()) else []
    rows = (_row(slot, parts.get(slot.wrapper.name, NO_NAMES)) for slot in chosen.slots)
    if chosen.slots:
        say(*table([head, *(row[: len(head)] for row in rows)]))
    for name, reason in chosen.broken:
        message(f"warning: {name} cannot be read: {reason}")
    for name in cache.foreign:
        message(f"not a wrapper: {name}")
    others = len(cache.slots) - len(chosen.slots) - len(chosen.broken)
    message(
        f"{counted(len(chosen.slots), 'wrapper')} in {cache.directory}"
        + (f", {others} not asked for" if others else "")
        + (f", {counted(cache.kernels, 'file')} of kernels" if cache.kernels else "")
    )


def _row(slot: Slot, part: Names) -> list[str]:
    launches = slot.wrapper.located.launches
    return [
        slot.short,
        _when(slot.modified),
        slot.wrapper.graph,
        slot.wrapper.language,
        str(len(launches)),
        _few(launch.kernel for launch in launches),
        _few(node for launch in launches for node in launch.source_nodes),
        _state(slot),
        part.graph,
        short(Path(part.partner)) if part.partner else "",
    ]


def _show_status(cache: Cache, products: int) -> None:
    held = [slot for slot in cache.slots if slot.state != "plain"]
    rows = [[slot.short, slot.state, ",".join(slot.probes), _backup(slot)] for slot in held]
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


def _state(slot: Slot) -> str:
    return f"{slot.state} ({','.join(slot.probes)})" if slot.probes else slot.state


def _backup(slot: Slot) -> str:
    return {
        "none": "from the file itself",
        "original": "kept beside it",
        "foreign": "from the file itself; what lies beside it is another file",
    }[slot.backup]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _few(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    return " ".join(each[:_FEW]) + (" …" if len(each) > _FEW else "")
