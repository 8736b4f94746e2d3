"""`rewriter cache`: probes in the wrappers of Inductor's cache, and a user's program with them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from rewriter.cache import clear, journal, location, mutate
from rewriter.cache.select import Choice, Chosen, choose, named
from rewriter.cache.session import reading, writing
from rewriter.cache.slots import Cache
from rewriter.commands import _cache as text
from rewriter.commands import _program, add_command
from rewriter.commands._common import add_blocking_option, add_probe_options, emit_json
from rewriter.commands._parser import Parser
from rewriter.commands._program import choice
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message


def add(parser: Parser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, (summary, fill) in _ACTIONS.items():
        add_command(actions, name, summary, fill)
    parser.add_examples(
        ("what is in the cache", "rewriter cache list --newest 10"),
        ("the first NaN of a program", "rewriter cache run -- python train.py"),
        ("the cache as it was, whatever happened", "rewriter cache restore"),
    )


def _add_list(parser: Parser) -> None:
    _add_globs(parser)
    parser.group(_program.WRAPPERS).add_argument(
        "--kernels", metavar="GLOB[,GLOB…]", help="only wrappers that launch these"
    )
    _add_common(parser, _list)
    parser.add_examples(
        ("the newest wrappers", "rewriter cache list --newest 5"),
        ("those that launch a kernel", "rewriter cache list --since 10m --kernels '*softmax*'"),
    )


def _add_status(parser: Parser) -> None:
    _add_common(parser, _status)
    parser.add_examples(("has anything probes?", "rewriter cache status"))


def _add_instrument(parser: Parser) -> None:
    _add_globs(parser)
    add_probe_options(parser)
    _add_common(parser, _instrument, overwrite=_EDITS)
    parser.add_examples(
        (
            "names and values of every program that uses these wrappers",
            "rewriter cache instrument --probe print --since 10m",
        ),
    )


def _add_restore(parser: Parser) -> None:
    parser.add_argument("globs", metavar="GLOB", nargs="*", help="only wrappers of these names")
    _add_common(parser, _restore, overwrite=_EDITS)
    parser.add_examples(("all originals back", "rewriter cache restore"))


def _add_run(parser: Parser) -> None:
    parser.takes = "-- COMMAND ..."
    parser.add_argument("program", metavar="COMMAND", nargs="*", help="-- and the program to run")
    add_probe_options(parser)
    _program.add_program_options(parser)
    _program.add_stop_options(parser)
    add_blocking_option(parser)
    _program.add_quiet_option(parser)
    output = parser.group("output")
    output.add_argument("--overwrite", action="store_true", help=f"{_EDITS}, an existing dump")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_run)
    parser.add_examples(*_program.examples(parser.prog))


_EDITS = "lose edits that were made since, backups that are not ours"


def _add_common(
    parser: Parser, act: Callable[[argparse.Namespace], int], *, overwrite: str = ""
) -> None:
    _program.add_directory_option(parser)
    output = parser.group("output")
    if overwrite:
        output.add_argument("--overwrite", action="store_true", help=overwrite)
    output.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=act)


def _add_globs(parser: Parser) -> None:
    what = "only wrappers of these names, such as 'c24mei*'"
    parser.add_argument("globs", metavar="GLOB", nargs="*", help=what)
    _program.add_choice_options(parser)


def _list(arguments: argparse.Namespace) -> int:
    cache = reading(location.existing(arguments.dir), message)
    kernels = tuple(arguments.kernels.split(",")) if arguments.kernels else None
    wanted = choice(arguments, tuple(arguments.globs), kernels)
    chosen = choose(cache, wanted, now=time.time())
    if arguments.json:
        emit_json("cache-list", text.listing_json(cache, chosen, _running(cache)))
        return OK
    text.show_listing(cache, chosen, _running(cache))
    if wanted != Choice() and cache.slots and not (chosen.slots or chosen.broken):
        raise _none_chosen(cache)
    return OK


def _status(arguments: argparse.Namespace) -> int:
    cache = reading(location.existing(arguments.dir), message)
    products = clear.built(cache.directory, keep=cache.held)
    if arguments.json:
        emit_json("cache-status", text.status_json(cache, len(products), _running(cache)))
    else:
        text.show_status(cache, len(products), _running(cache))
    return DIFFERS if cache.held else OK


def _instrument(arguments: argparse.Namespace) -> int:
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
        emit_json("cache-instrument", text.placed_json(cache.directory, placed, refused))
    else:
        text.show_placed(cache, placed, asked)
    return OK


def _restore(arguments: argparse.Namespace) -> int:
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
        emit_json("cache-restore", {"directory": str(cache.directory), **vars(cleared)})
    else:
        text.show_cleared(cleared)
    if cleared.left:
        message("warning: " + text.edited(cleared.left))
    return DIFFERS if cleared.left else OK


def _run(arguments: argparse.Namespace) -> int:
    if (command := _program.behind_dashes(arguments)) is None:
        raise _program.no_program(arguments.program)
    return _program.act(arguments, command)


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


_ACTIONS = {
    "list": ("list the wrappers of a cache, newest first", _add_list),
    "status": ("show what is instrumented; exit 1 if anything is", _add_status),
    "instrument": ("put probes into wrappers, until they are restored", _add_instrument),
    "restore": ("give the originals back, byte for byte", _add_restore),
    "run": ("run a program with probes in its wrappers, then restore", _add_run),
}
