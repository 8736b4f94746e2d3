"""The actions of `rewriter cache`, one function each."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rewriter.artifact.naming.known import Compilations
from rewriter.artifact.naming.names import parts_of
from rewriter.cache import layouts, location, restore
from rewriter.cache.select import Choice, choose, is_named, seconds
from rewriter.cache.slots import Cache, scan
from rewriter.commands import _cache as text
from rewriter.commands._cache import OtherCache
from rewriter.commands._documents import cache as documents
from rewriter.commands._output import emit
from rewriter.commands._parser import behind_dashes
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.hook import pieces
from rewriter.hook.run import Request, nothing_compiled, run


def act_list(arguments: argparse.Namespace) -> int:
    if (command := behind_dashes(arguments)) is not None:
        globs = tuple(arguments.globs[: len(arguments.globs) - len(command)])
        return _list_used(arguments, command, _choice(arguments, globs))
    others = _others() if arguments.dir is None else ()
    directory = location.directory(arguments.dir)
    if others and not directory.is_dir():
        cache = Cache(directory, (), 0, (), ())
    else:
        cache = scan(location.existing(arguments.dir))
    wanted = _choice(arguments, tuple(arguments.globs))
    chosen = choose(cache, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if arguments.json:
        emit(documents.list_document(cache, chosen, parts, others))
        return OK
    text.show_listing(cache, chosen, parts)
    text.show_others(others)
    if wanted != Choice() and cache.slots and not (chosen.slots or chosen.broken):
        raise _none_chosen(cache)
    return OK


def _others() -> tuple[OtherCache, ...]:
    """The caches of serving engines, newest first, except for those that cannot be read."""
    found = []
    for engine, directory in layouts.known():
        with suppress(RewriterError):
            found.append(OtherCache(engine, scan(directory)))
    filled = (one for one in found if one.cache.slots)
    return tuple(sorted(filled, key=lambda one: -one.cache.slots[0].modified))


def _list_used(arguments: argparse.Namespace, command: Sequence[str], wanted: Choice) -> int:
    """List the wrappers that a program uses, in all of its caches, by running it once unchanged."""
    pinned = None if arguments.dir is None else location.directory(arguments.dir)
    ran = run(
        Request(tuple(command), None, directory=pinned, quiet=False, redirected=arguments.json),
        message,
    )
    if ran.interrupted:
        return INTERRUPTED
    paths = {one.path for one in ran.loaded} | {one.path for one in ran.unprobed}
    directories = dict.fromkeys(path.parents[1] for path in sorted(paths))
    caches = [scan(path) for path in directories if path.is_dir()]
    slots = tuple(slot for cache in caches for slot in cache.slots if slot.path in paths)
    gone = [path for path in directories if not path.exists()]
    if not slots and not gone and ran.ended.code == 0:
        raise nothing_compiled(ran)
    merged = Cache(
        location.directory(arguments.dir),
        tuple(sorted(slots, key=lambda slot: -slot.modified)),
        0,
        (),
        (),
    )
    chosen = choose(merged, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    others = tuple(
        OtherCache("", replace(cache, slots=mine))
        for cache in caches
        if (mine := tuple(slot for slot in slots if slot.directory == cache.directory))
    )
    if arguments.json:
        emit(documents.list_document(merged, chosen, parts, others))
    else:
        titles = pieces.titles(ran.processes, [slot.path for slot in chosen.slots])
        text.show_used(chosen, parts, others, gone, titles)
    if ran.ended.code != 0:
        message(f"{shlex.join(command)}: {ran.ended}")
    return OK if ran.ended.code == 0 else DIFFERS


def act_status(arguments: argparse.Namespace) -> int:
    cache = scan(location.existing(arguments.dir))
    hashes = {slot.wrapper.probes.sha256 for slot in cache.slots if slot.wrapper.probes}
    products = restore.built(cache.directory, hashes)
    if arguments.json:
        emit(documents.status_document(cache, len(products)))
    else:
        text.show_status(cache, len(products))
    return DIFFERS if hashes else OK


def act_restore(arguments: argparse.Namespace) -> int:
    cache = scan(location.existing(arguments.dir))
    wanted = [slot for slot in cache.slots if is_named(slot.path, tuple(arguments.globs))]
    if arguments.globs and not wanted:
        raise _none_chosen(cache)
    done = restore.restore(cache, wanted, overwrite=arguments.overwrite)
    if arguments.json:
        emit(documents.restore_document(cache.directory, done))
    else:
        text.show_restored(done)
    if done.left:
        message("warning: " + text.edited(done.left))
    return DIFFERS if done.left else OK


def _choice(arguments: argparse.Namespace, globs: tuple[str, ...]) -> Choice:
    kernels = tuple(arguments.kernels.split(",")) if arguments.kernels else None
    since = None if arguments.since is None else seconds(arguments.since)
    if arguments.newest is not None and arguments.newest < 1:
        raise RewriterError(
            "bad-number",
            f"--newest is {arguments.newest}",
            hint="Expected a number greater than 0.",
        )
    return Choice(globs, kernels, since, arguments.newest)


def _none_chosen(cache: Cache) -> RewriterError:
    count = len(cache.slots)
    return RewriterError(
        "no-wrapper-matches",
        f"{cache.directory} holds {counted(count, 'wrapper')}"
        + (", and none matches the request" if count else ""),
        hint="`rewriter cache list` shows them."
        + ("" if count else " A program makes them when it first compiles."),
    )
