"""The actions of `rewriter cache`, one function each."""

from __future__ import annotations

import argparse
import shlex
import time
from collections import Counter
from collections.abc import Sequence

from rewriter.artifact.naming.known import Compilations
from rewriter.artifact.naming.names import parts_of
from rewriter.cache import location, restore
from rewriter.cache.select import Choice, choose, is_named
from rewriter.cache.slots import Cache, read, scan
from rewriter.commands import _cache as text
from rewriter.commands._documents import cache as documents
from rewriter.commands._options import refuse_idle
from rewriter.commands._output import emit
from rewriter.commands._parser import behind_dashes
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted, seconds
from rewriter.hook import pieces
from rewriter.hook.run import Request, nothing_compiled, run
from rewriter.instrumentation.select import check_number


def act_list(arguments: argparse.Namespace) -> int:
    command = behind_dashes(arguments)
    if command is not None:
        return _list_used(arguments, command)
    cache = scan(location.existing(arguments.dir))
    wanted = _choice(arguments, arguments.globs)
    chosen = choose(cache, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if arguments.json:
        emit(documents.list_document(cache, chosen, parts))
        return OK
    text.show_listing(cache, chosen, parts)
    if wanted != Choice() and cache.slots and not (chosen.slots or chosen.broken):
        raise _none_chosen(cache)
    return OK


def _list_used(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """List the wrappers that a program uses, in all of its caches, by running it once unchanged."""
    wanted = _choice(arguments, arguments.globs[: len(arguments.globs) - len(command)])
    why = "the program uses its own caches"
    refuse_idle({"--dir": arguments.dir}, why, f"Set {location.VARIABLE} for both.")
    ran = run(Request(tuple(command), None, redirected=arguments.json), message)
    if ran.interrupted:
        return INTERRUPTED
    paths = sorted({*(one.path for one in ran.loaded), *(one.path for one in ran.unprobed)})
    slots = [slot for path in paths if (slot := read(path)) is not None]
    gone = [path for path in dict.fromkeys(x.parents[1] for x in paths) if not path.exists()]
    if not slots and not gone and ran.ended.code == 0:
        raise nothing_compiled(ran)
    newest = tuple(sorted(slots, key=lambda slot: -slot.modified))
    cache = Cache(location.directory(None), newest, 0, (), ())
    used = Counter(slot.directory for slot in slots)
    chosen = choose(cache, wanted, now=time.time())
    parts = parts_of([slot.wrapper for slot in chosen.slots], Compilations())
    if arguments.json:
        emit(documents.list_document(cache, chosen, parts, used))
    else:
        titles = pieces.titles(ran.processes, [slot.path for slot in chosen.slots])
        text.show_used(chosen, parts, used, gone, titles)
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


def _choice(arguments: argparse.Namespace, globs: Sequence[str]) -> Choice:
    kernels = tuple(arguments.kernels.split(",")) if arguments.kernels else None
    since = None if arguments.since is None else seconds(arguments.since)
    if arguments.since is not None and since is None:
        raise RewriterError(
            "bad-since",
            f"--since {arguments.since!r} is no span of time",
            hint="Expected a number and one of s, m, h, d, such as 10m or 2h.",
        )
    newest = None if arguments.newest is None else check_number("--newest", arguments.newest)
    return Choice(tuple(globs), kernels, since, newest)


def _none_chosen(cache: Cache) -> RewriterError:
    count = len(cache.slots)
    return RewriterError(
        "no-wrapper-matches",
        f"{cache.directory} holds {counted(count, 'wrapper')}"
        + (", and none matches the request" if count else ""),
        hint="`rewriter cache list` shows them."
        + ("" if count else " A program makes them when it first compiles."),
    )
