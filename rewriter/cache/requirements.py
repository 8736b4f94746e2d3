"""Checks a cache, and a choice of wrappers in it, before and after a program runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.cache.select import Choice, choose
from rewriter.cache.slots import Cache
from rewriter.core.errors import RewriterError

_NAMED = 12  # kernels, wrappers or caches named in an error


def make(directory: Path) -> bool:
    """Make the cache if it is missing, readable only by the user. Returns whether it was made."""
    if directory.is_dir():
        return False
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise RewriterError(
            "no-cache",
            f"{directory} is no cache of Inductor's, and cannot be made: {error.strerror}",
            hint="Pass another directory with --dir.",
        ) from error
    return True


def require_match(cache: Cache, choice: Choice) -> None:
    """Raise if there are wrappers, but none has the requested names or kernels."""
    by_name = replace(choice, since=None, newest=None)
    if not cache.slots or by_name == Choice():
        return
    chosen = choose(cache, by_name, now=0)
    if chosen.slots or chosen.broken:
        return
    there = choose(cache, replace(by_name, kernels=None), now=0).slots
    if not there or choice.kernels is None:
        message = f"no wrapper in {cache.directory} has a name like {', '.join(choice.globs)}"
        hint = f"There are {', '.join(slot.short for slot in cache.slots[:_NAMED])}"
        total = len(cache.slots)
    else:
        kernels = dict.fromkeys(x.kernel for slot in there for x in slot.wrapper.located.launches)
        message = (
            f"no wrapper in {cache.directory} launches a kernel like {', '.join(choice.kernels)}"
        )
        hint = f"There are {', '.join(list(kernels)[:_NAMED])}"
        total = len(kernels)
    hint += ", …" if total > _NAMED else ""
    raise RewriterError(
        "no-wrapper-matches",
        message,
        hint=f"{hint}.\n  `rewriter cache list` shows all. If the program was not compiled into "
        "this cache yet, run it once without this choice.",
    )


def nothing_compiled(directory: Path, choice: Choice, used: Sequence[Path]) -> RewriterError:
    """The error if a program ran, and none of its wrappers can be probed. `used` are caches outside
    the requested one."""
    if used:
        listed = ", ".join(map(str, used[:_NAMED]))
        return RewriterError(
            "nothing-compiled",
            f"the program ran, and used no wrapper in {directory}, but some in {listed}",
            hint="It sets its cache itself: run it without --dir, or pass that directory."
            if used[0].is_dir()
            else "That directory was removed, and the program was not watched by its PYTHONPATH.",
        )
    if choice == Choice():
        message = f"the program ran, and left no wrapper in {directory}"
    else:
        message = f"the program ran, and no wrapper in {directory} is one that was asked for"
    return RewriterError(
        "nothing-compiled",
        message,
        hint="It may compile nothing with Inductor, or do so where it was not watched: in a Python "
        "with -I, -E or -S, or with a PYTHONPATH of its own. If you know its cache, pass that with "
        "--dir. `rewriter cache list` shows what is there.",
    )
