"""`rewriter cache`: probes in the wrappers of Inductor's cache, and a user's program with them."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

from rewriter import api
from rewriter.cache import clear, effects, journal, place
from rewriter.cache.choose import Choice, Chosen, choose, named, seconds
from rewriter.cache.session import reading, writing
from rewriter.cache.state import Cache, scan
from rewriter.commands import _cache as text
from rewriter.commands._common import (
    add_blocking_option,
    add_probe_options,
    emit_json,
    message,
    names_probes,
    selection,
    time_limit,
)
from rewriter.errors import DIFFERS, FAILED, OK, RewriterError
from rewriter.types import Selection

ORDER = 45


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("cache", help="probe programs through Inductor's cache")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="list the wrappers of a cache, newest first")
    _add_choice(listed, positional=True)
    listed.add_argument("--kernels", metavar="GLOB[,GLOB…]", help="only wrappers that launch these")
    listed.set_defaults(act=_list)
    status = actions.add_parser("status", help="show what is instrumented; exit 1 if anything is")
    status.set_defaults(act=_status)
    put = actions.add_parser("instrument", help="put probes into wrappers, until they are restored")
    _add_choice(put, positional=True)
    put.set_defaults(act=_instrument)
    back = actions.add_parser("restore", help="give the originals back, byte for byte")
    back.add_argument("globs", metavar="GLOB", nargs="*", help="only wrappers of these names")
    back.set_defaults(act=_restore)
    run = actions.add_parser("run", help="run a program with probes in its wrappers, then restore")
    _add_choice(run, positional=False)
    _add_run_options(run)
    run.set_defaults(act=_run)
    for action in (put, back, run):
        action.add_argument(
            "--overwrite",
            action="store_true",
            help="lose edits that were made since, backups that are not ours"
            + (", an existing dump" if action is run else ""),
        )
    for action in (put, run):
        add_probe_options(action)
    for action in (listed, status, put, back, run):
        action.add_argument(
            "--dir",
            metavar="DIR",
            help=f"the cache (default: where torch puts it: ${place.VARIABLE}, or "
            "torchinductor_USER in the directory for temporary files)",
        )
        action.add_argument("--json", action="store_true", help="print one JSON object")


def _add_choice(parser: argparse.ArgumentParser, *, positional: bool) -> None:
    what = "only wrappers of these names, such as 'c24mei*'"
    if positional:
        parser.add_argument("globs", metavar="GLOB", nargs="*", help=what)
    else:
        parser.add_argument("--wrappers", metavar="GLOB[,GLOB…]", help=what)
    parser.add_argument("--since", metavar="SPAN", help="only those made in the last 10m, 2h, 3d")
    parser.add_argument("--newest", metavar="N", type=int, help="only the newest of them")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-d", "--dump", metavar="DUMP", help="directory to dump to (default: a new cache.dump)"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=time_limit,
        help="stop a run of the program after this time, and say in which launch",
    )
    add_blocking_option(parser)
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="probes print nothing; the dump has it all (default unless a probe is named)",
    )
    parser.add_argument("program", metavar="COMMAND", nargs="*", help="-- and the program to run")


def _list(arguments: argparse.Namespace) -> int:
    cache = reading(place.existing(arguments.dir), message)
    kernels = tuple(arguments.kernels.split(",")) if arguments.kernels else None
    choice = _choice(arguments, tuple(arguments.globs), kernels)
    chosen = choose(cache, choice, now=time.time())
    if arguments.json:
        emit_json("cache-list", text.listing_json(cache, chosen, _running(cache)))
        return OK
    text.show_listing(cache, chosen, _running(cache))
    if choice != Choice() and cache.slots and not (chosen.slots or chosen.broken):
        raise _none_chosen(cache)
    return OK


def _status(arguments: argparse.Namespace) -> int:
    cache = reading(place.existing(arguments.dir), message)
    products = clear.built(cache.directory, keep=cache.held)
    if arguments.json:
        emit_json("cache-status", text.status_json(cache, len(products), _running(cache)))
    else:
        text.show_status(cache, len(products), _running(cache))
    return DIFFERS if cache.held else OK


def _instrument(arguments: argparse.Namespace) -> int:
    asked = _selection(arguments)
    with writing(place.existing(arguments.dir), message) as cache:
        choice = _choice(arguments, tuple(arguments.globs), asked.kernels)
        chosen = choose(cache, choice, now=time.time())
        if not chosen.slots:
            raise _none_chosen(cache, chosen)
        placed, refused = effects.instrument(chosen.slots, asked, overwrite=arguments.overwrite)
        if not placed:
            raise refused[0].error
        clear.temporary(cache)
    text.warn_about_all(placed, refused, chosen.broken)
    if arguments.json:
        emit_json("cache-instrument", text.placed_json(cache.directory, placed, refused))
    else:
        text.show_placed(cache, placed, asked)
    return OK


def _restore(arguments: argparse.Namespace) -> int:
    with writing(place.existing(arguments.dir), message) as cache:
        wanted = [slot for slot in cache.slots if named(slot, tuple(arguments.globs))]
        if arguments.globs and not wanted:
            raise _none_chosen(cache)
        cleared = effects.restore(wanted, overwrite=arguments.overwrite)
        clear.temporary(cache)
        cleared = effects.clear_up(cache.directory, cleared, keep=scan(cache.directory).held)
    if arguments.json:
        emit_json("cache-restore", {"directory": str(cache.directory), **vars(cleared)})
    else:
        text.show_cleared(cleared)
    if cleared.left:
        message("warning: " + text.edited(cleared.left))
    return DIFFERS if cleared.left else OK


def _run(arguments: argparse.Namespace) -> int:
    from rewriter.cache.run import Request, run
    from rewriter.commands import _cache_run as report

    if arguments.program and "--" not in shlex.split(arguments.command_line):
        raise RewriterError(
            "no-program",
            f"{arguments.program[0]!r} does not stand behind --",
            hint="Put -- in front of the program: options after it are the program's own.",
        )
    asked = _selection(arguments)
    globs = tuple(x for x in (arguments.wrappers or "").split(",") if x)
    request = Request(
        program=tuple(arguments.program),
        directory=place.directory(arguments.dir),
        selection=asked,
        choice=_choice(arguments, globs, asked.kernels),
        pinned=arguments.dir is not None,
        dump=arguments.dump,
        overwrite=arguments.overwrite,
        timeout=arguments.timeout,
        blocking=arguments.blocking,
        quiet=arguments.quiet or not names_probes(arguments),
        redirected=arguments.json,
        command=arguments.command_line,
    )
    ran = run(request, message)
    found = report.read(request, ran)
    if arguments.json:
        emit_json("cache-run", report.as_json(request, ran, found))
    report.show(request, ran, found)
    if ran.interrupted:
        return FAILED
    unexpected = any(finding.kind == "unexpected" for finding in ran.found.findings)
    return DIFFERS if ran.ended.code != 0 or unexpected else OK


def _selection(arguments: argparse.Namespace) -> Selection:
    chosen = selection(arguments, default="print")
    if chosen is None:
        raise api.no_probes()
    return chosen


def _choice(
    arguments: argparse.Namespace, globs: tuple[str, ...], kernels: tuple[str, ...] | None
) -> Choice:
    since = None if arguments.since is None else seconds(arguments.since)
    newest = arguments.newest
    if newest is not None and newest < 1:
        raise RewriterError(
            "bad-number", f"--newest is {newest}", hint="Expected a number greater than 0."
        )
    return Choice(globs, kernels, since, newest)


def _running(cache: Cache) -> journal.Running | None:
    return journal.running(cache.directory)


def _none_chosen(cache: Cache, chosen: Chosen | None = None) -> RewriterError:
    count = len(cache.slots)
    found = f"{cache.directory} holds {count} wrapper{'s' * (count != 1)}"
    if chosen is not None and chosen.broken:
        found += f", {len(chosen.broken)} of which cannot be read: {chosen.broken[0][1]}"
    return RewriterError(
        "no-wrapper-matches",
        f"{found}, and none that was asked for" if count else found,
        hint="`rewriter cache list` shows them. A program makes them when it first compiles."
        if not count
        else "`rewriter cache list` shows them.",
    )
