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
from rewriter.cache import clear, journal, layouts, location, mutate, pieces
from rewriter.cache.discover import discover
from rewriter.cache.requirements import nothing_compiled
from rewriter.cache.select import Choice, Chosen, choose, named
from rewriter.cache.session import reading, writing
from rewriter.cache.slots import Cache, scan
from rewriter.commands import _cache as text
from rewriter.commands import _program
from rewriter.commands._cache import OtherCache
from rewriter.commands._documents import cache as documents
from rewriter.commands._output import emit
from rewriter.commands._parser import behind_dashes
from rewriter.commands._program import choice
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted


def act_list(arguments: argparse.Namespace) -> int:
    kernels = tuple(arguments.kernels.split(",")) if arguments.kernels else None
    if (command := behind_dashes(arguments)) is not None:
        globs = tuple(arguments.globs[: len(arguments.globs) - len(command)])
        return _list_used(arguments, command, choice(arguments, globs, kernels))
    others = _others() if arguments.dir is None else ()
    directory = location.directory(arguments.dir)
    if others and not directory.is_dir():
        cache = Cache(directory, (), 0, (), ())
    else:
        cache = reading(location.existing(arguments.dir), message)
    wanted = choice(arguments, tuple(arguments.globs), kernels)
    chosen = choose(cache, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if arguments.json:
        emit(documents.list_document(cache, chosen, parts, _running(cache), others))
        return OK
    text.show_listing(cache, chosen, parts, _running(cache))
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
    directory = location.directory(arguments.dir)
    added = {} if arguments.dir is None else {location.VARIABLE: str(directory)}
    ended, used = discover(command, added, message, quiet=arguments.json)
    if ended.interrupted:
        return INTERRUPTED
    caches = [scan(path) for path in used.directories if path.is_dir()]
    paths = set(used.wrappers)
    slots = tuple(slot for cache in caches for slot in cache.slots if slot.path in paths)
    gone = [path for path in used.directories if not path.exists()]
    if not slots and not gone and ended.code == 0:
        raise nothing_compiled(directory, Choice(), ())
    merged = Cache(directory, tuple(sorted(slots, key=lambda slot: -slot.modified)), 0, (), ())
    chosen = choose(merged, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    others = tuple(
        OtherCache("", replace(cache, slots=mine))
        for cache in caches
        if (mine := tuple(slot for slot in slots if slot.directory == cache.directory))
    )
    if arguments.json:
        emit(documents.list_document(merged, chosen, parts, None, others))
    else:
        text.show_used(chosen, parts, others, gone, pieces.titles(used, chosen.slots))
    if ended.code != 0:
        message(f"{shlex.join(command)}: {ended}")
    return OK if ended.code == 0 else DIFFERS


def act_status(arguments: argparse.Namespace) -> int:
    cache = reading(location.existing(arguments.dir), message)
    products = clear.built(cache.directory, keep=cache.held)
    if arguments.json:
        emit(documents.status_document(cache, len(products), _running(cache)))
    else:
        text.show_status(cache, len(products), _running(cache))
    return DIFFERS if cache.held else OK


def act_instrument(arguments: argparse.Namespace) -> int:
    asked = _program.probes_for_cache(arguments)
    with writing(location.existing(arguments.dir), message) as cache:
        wanted = choice(arguments, tuple(arguments.globs), asked.kernels)
        chosen = choose(cache, wanted, now=time.time())
        if not chosen.slots:
            raise _none_chosen(cache, chosen)
        placed, refused = mutate.instrument(
            chosen.slots, asked, overwrite=arguments.overwrite, beside=cache.slots
        )
        if not placed:
            raise refused[0].error
        clear.temporary(cache)
    text.warn_about_all(placed, refused, chosen.broken)
    if arguments.json:
        emit(documents.instrument_document(cache.directory, placed, refused))
    else:
        text.show_placed(cache, placed, asked)
    return OK


def act_restore(arguments: argparse.Namespace) -> int:
    with writing(location.existing(arguments.dir), message) as cache:
        wanted = [slot for slot in cache.slots if named(slot, tuple(arguments.globs))]
        if arguments.globs and not wanted:
            raise _none_chosen(cache)
        cleared = mutate.restore(wanted, overwrite=arguments.overwrite)
        clear.temporary(cache)
        done = {*cleared.restored, *cleared.stripped}
        others = tuple(slot for slot in cache.slots if slot.name not in done)
        kept = replace(cache, slots=others).held
        cleared = mutate.clear_up(cache.directory, cleared, keep=kept)
    if arguments.json:
        emit(documents.restore_document(cache.directory, cleared))
    else:
        text.show_cleared(cleared)
    if cleared.left:
        message("warning: " + text.edited(cleared.left))
    return DIFFERS if cleared.left else OK


def act_run(arguments: argparse.Namespace) -> int:
    if (command := behind_dashes(arguments)) is None:
        raise _program.no_program(arguments.program)
    return _program.act(arguments, command)


def _running(cache: Cache) -> journal.Running | None:
    return journal.running(cache.directory)


def _none_chosen(cache: Cache, chosen: Chosen | None = None) -> RewriterError:
    count = len(cache.slots)
    holds = f"{cache.directory} holds {counted(count, 'wrapper')}"
    if chosen is not None and chosen.broken:
        holds += f", {len(chosen.broken)} of which cannot be read: {chosen.broken[0][1]}"
    return RewriterError(
        "no-wrapper-matches",
        f"{holds}, and none matches the request" if count else holds,
        hint="`rewriter cache list` shows them. A program makes them when it first compiles."
        if not count
        else "`rewriter cache list` shows them.",
    )
