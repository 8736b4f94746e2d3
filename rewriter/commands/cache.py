"""`rewriter cache`: what is in Inductor's cache."""

from __future__ import annotations

from rewriter.commands._click import Group, Section, argument, command, later
from rewriter.commands._options import JsonOption
from rewriter.execution.hook.cache.location import VARIABLE

_WRAPPERS = Section("wrappers of the cache")


class Arguments(JsonOption):
    dir: str | None = _WRAPPERS.option(
        "--dir DIR",
        f"the cache (default: where torch puts it: ${VARIABLE}, or torchinductor_USER in the "
        "directory for temporary files)",
    )


class ListArguments(Arguments):
    globs: tuple[str, ...] = argument(
        "[GLOB ...]", "only wrappers of these names, such as 'c24mei*'", nargs=-1
    )
    kernels: str | None = _WRAPPERS.option(
        "--kernels GLOB[,GLOB…]", "only wrappers that launch these kernels"
    )


@command(
    ListArguments, ("wrappers that launch a kernel", "rewriter cache list --kernels '*softmax*'")
)
def _list(arguments: ListArguments) -> int:
    return later("_cache", arguments, "list_wrappers")


@command(Arguments, ("does anything have probes?", "rewriter cache status"))
def _status(arguments: Arguments) -> int:
    return later("_cache", arguments, "show_status")


@command(Arguments, ("all originals back", "rewriter cache restore"))
def _restore(arguments: Arguments) -> int:
    return later("_cache", arguments, "restore_all")


act = Group(
    "actions",
    {
        "list": "list the wrappers of a cache, newest first",
        "status": "show what is instrumented; exit 1 if anything is",
        "restore": "restore wrappers that an earlier version put probes into",
    },
    {"list": _list, "status": _status, "restore": _restore}.__getitem__,
)
act.examples = (
    ("what is in the cache", "rewriter cache list"),
    ("originals of wrappers that an earlier version changed", "rewriter cache restore"),
)
