"""The actions of `rewriter cache`, one function each."""

from __future__ import annotations

from collections.abc import Sequence

from rewriter.commands import _cache as text
from rewriter.commands._documents import cache as documents
from rewriter.commands._output import emit
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.hook.cache import location, restore
from rewriter.hook.cache.select import choose
from rewriter.hook.cache.slots import scan
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import parts_of


def list_wrappers(
    directory: str | None, globs: Sequence[str], kernels: str | None, *, json: bool
) -> int:
    cache = scan(location.existing(directory))
    chosen = choose(cache, globs, kernels.split(",") if kernels else [])
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if json:
        emit(documents.list_document(cache, chosen, parts))
        return OK
    text.show_listing(cache, chosen, parts)
    if cache.slots and not (chosen.slots or chosen.broken):
        count = counted(len(cache.slots), "wrapper")
        raise RewriterError(
            "no-wrapper-matches",
            f"{cache.directory} holds {count}, and none matches the request",
            hint="`rewriter cache list` shows them.",
        )
    return OK


def show_status(directory: str | None, *, json: bool) -> int:
    cache = scan(location.existing(directory))
    products = restore.built(cache.directory)
    if json:
        emit(documents.status_document(cache, len(products)))
    else:
        text.show_status(cache, len(products))
    return DIFFERS if any(slot.probes for slot in cache.slots) else OK


def restore_all(directory: str | None, *, json: bool) -> int:
    cache = scan(location.existing(directory))
    done = restore.restore(cache)
    if json:
        emit(documents.CacheRestoreDocument(directory=str(cache.directory), restored=done))
    else:
        text.show_restored(done)
    if done.left:
        message("warning: " + text.edited(done.left))
    return DIFFERS if done.left else OK
