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
        ("what is in the cache", "rewriter cache list"),
        ("originals of wrappers that an earlier version changed", "rewriter cache restore"),
    )


def _add_list(parser: Parser) -> None:
    what = "only wrappers of these names, such as 'c24mei*'"
    parser.add_argument("globs", metavar="GLOB", nargs="*", help=what)
    parser.group(_options.WRAPPERS).add_argument(
        "--kernels", metavar="GLOB[,GLOB…]", help="only wrappers that launch these kernels"
    )
    _add_common(parser, "list")
    parser.add_examples(
        ("wrappers that launch a kernel", "rewriter cache list --kernels '*softmax*'"),
    )


def _add_status(parser: Parser) -> None:
    _add_common(parser, "status")
    parser.add_examples(("does anything have probes?", "rewriter cache status"))


def _add_restore(parser: Parser) -> None:
    _add_common(parser, "restore")
    parser.add_examples(("all originals back", "rewriter cache restore"))


def _action(name: str) -> Callable[[argparse.Namespace], int]:
    """What an action does; imported once it is done, and not for its help."""

    def act(arguments: argparse.Namespace) -> int:
        module = import_module("rewriter.commands._cache_actions")
        code: int = getattr(module, f"act_{name}")(arguments)
        return code

    return act


def _add_common(parser: Parser, action: str) -> None:
    parser.group(_options.WRAPPERS).add_argument(
        "--dir",
        metavar="DIR",
        help=f"the cache (default: where torch puts it: ${VARIABLE}, or torchinductor_USER in the "
        "directory for temporary files)",
    )
    parser.group("output").add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_action(action))


_ACTIONS = {
    "list": ("list the wrappers of a cache, newest first", _add_list),
    "status": ("show what is instrumented; exit 1 if anything is", _add_status),
    "restore": ("restore wrappers that an earlier version put probes into", _add_restore),
}
