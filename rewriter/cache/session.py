"""Opens a cache for a command: locks it, and restores what an interrupted run left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.cache import journal, mutate
from rewriter.cache.lock import locked
from rewriter.cache.slots import Cache, scan
from rewriter.core.errors import RewriterError
from rewriter.core.text import counted

Tell = Callable[[str], None]

_NAMED = 3  # wrappers named in an error


@contextmanager
def writing(directory: Path, tell: Tell) -> Iterator[Cache]:
    """Open a cache to change it. Raises `RewriterError` if another command is doing so."""
    with locked(directory):
        yield _recovered(directory, tell)


def reading(directory: Path, tell: Tell) -> Cache:
    """Open a cache to read it. Restores what an interrupted run left, too."""
    if journal.interrupted(directory) is not None:
        with locked(directory):
            return _recovered(directory, tell)
    return scan(directory)


def _recovered(directory: Path, tell: Tell) -> Cache:
    died = journal.interrupted(directory)
    cache = scan(directory)
    if died is None:
        return cache
    # The requested cache comes last, since its journal names the others.
    for other in map(Path, died.others):
        if journal.interrupted(other) is not None:
            with locked(other):
                _recover(other, tell, f" in {other}")
    _recover(directory, tell)
    return scan(directory)


def _recover(directory: Path, tell: Tell, where: str = "") -> None:
    if (died := journal.interrupted(directory)) is None:
        return
    cleared = mutate.recover(scan(directory), died)
    restored = counted(len(cleared.restored), "wrapper")
    tell(f"restored {restored} that an interrupted `cache run` left{where}")
    for name in cleared.left:
        tell(f"warning: {name} was edited meanwhile, and was left as it is")


def require_plain(cache: Cache) -> None:
    """Raise `RewriterError` if a wrapper has probes that no command will remove."""
    held = [slot for slot in cache.slots if slot.state in ("instrumented", "edited")]
    if held:
        raise RewriterError(
            "cache-instrumented",
            f"{counted(len(held), 'wrapper')} in {cache.directory} "
            f"{'has' if len(held) == 1 else 'have'} probes already: "
            + ", ".join(slot.name for slot in held[:_NAMED])
            + (", …" if len(held) > _NAMED else ""),
            hint="Take them out with `rewriter cache restore`, or run the program as it is.",
        )
