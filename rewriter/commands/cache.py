"""`rewriter cache`: what is in Inductor's cache."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from rewriter.cache.location import VARIABLE
from rewriter.commands import _options, add_command
from rewriter.commands._parser import Parser


def add(parser: Parser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, (summary, fill) in _ACTIONS.items():
        add_command(actions, name, summary, fill)
    parser.add_examples(
        ("what is in the cache", "rewriter cache list --newest 10"),
        ("originals of wrappers that an earlier version changed", "rewriter cache restore"),
    )


def _add_list(parser: Parser) -> None:
    parser.takes = "[GLOB ...] [-- COMMAND ...]"
    _add_globs(parser)
    parser.group(_options.WRAPPERS).add_argument(
        "--kernels", metavar="GLOB[,GLOB…]", help="only wrappers that launch these kernels"
    )
    _add_common(parser, "list")
    parser.add_examples(
        ("the newest wrappers", "rewriter cache list --newest 5"),
        ("those that launch a kernel", "rewriter cache list --since 10m --kernels '*softmax*'"),
        (
            "the wrappers that a program uses, in any cache",
            "rewriter cache list -- python serve.py",
        ),
    )


def _add_status(parser: Parser) -> None:
    _add_common(parser, "status")
    parser.add_examples(("does anything have probes?", "rewriter cache status"))


def _add_restore(parser: Parser) -> None:
    parser.add_argument("globs", metavar="GLOB", nargs="*", help="only wrappers of these names")
    _add_common(parser, "restore", overwrite=_EDITS)
    parser.add_examples(("all originals back", "rewriter cache restore"))


_EDITS = "discard later edits of wrappers that have probes"


def _action(name: str) -> Callable[[argparse.Namespace], int]:
    """What an action does; imported once it is done, and not for its help."""

    def act(arguments: argparse.Namespace) -> int:
        module = import_module("rewriter.commands._cache_actions")
        code: int = getattr(module, f"act_{name}")(arguments)
        return code

    return act


def _add_common(parser: Parser, action: str, *, overwrite: str = "") -> None:
    parser.group(_options.WRAPPERS).add_argument(
        "--dir",
        metavar="DIR",
        help=f"the cache (default: where torch puts it: ${VARIABLE}, or torchinductor_USER in the "
        "directory for temporary files)",
    )
    output = parser.group("output")
    if overwrite:
        output.add_argument("--overwrite", action="store_true", help=overwrite)
    output.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_action(action))


def _add_globs(parser: Parser) -> None:
    what = "only wrappers of these names, such as 'c24mei*'"
    parser.add_argument("globs", metavar="GLOB", nargs="*", help=what)
    group = parser.group(_options.WRAPPERS)
    group.add_argument(
        "--since", metavar="SPAN", help="only those written in this time, such as 10m, 2h, 3d"
    )
    group.add_argument("--newest", metavar="N", type=int, help="only the N newest")


_ACTIONS = {
    "list": ("list the wrappers of a cache, newest first", _add_list),
    "status": ("show what is instrumented; exit 1 if anything is", _add_status),
    "restore": ("restore wrappers that an earlier version put probes into", _add_restore),
}
