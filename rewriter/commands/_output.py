"""Writes the results of commands: to files or standard output, as text or as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.terminal import Line, level_style, message, passing, say

if TYPE_CHECKING:
    from rewriter.core.documents import Entry
    from rewriter.diagnosis.verdict import Verdict
    from rewriter.instrumentation.types import Instrumented, Plan

NAMED = 8  # names in a message
_SILENCE = 15  # seconds after which a line tells how far a long check is
_COUNTS = 9  # the column of NaN in the table of `run`; that of infinity is the next


def emit(document: Entry) -> None:
    """Print a document, as every `--json` does."""
    from rewriter.core import json_text
    from rewriter.core.documents import as_json

    say(json_text.encode(as_json(document)))


def steps() -> Callable[[str], None]:
    """Makes a function that reports long steps, with the seconds since this call."""
    started = time.perf_counter()

    def report(text: str) -> None:
        message(f"[{time.perf_counter() - started:5.1f} s] {text}")

    return report


@contextmanager
def counting() -> Iterator[Callable[[int, int], None]]:
    """Says how many launches are done on standard error: always on a terminal, where the line goes
    when the body ends, else now and then. It is called with that number, and their total."""
    told = time.perf_counter()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.perf_counter() - told > _SILENCE:
            told = time.perf_counter()
            message(f"{done:,} of {total:,} launches")

    if not sys.stderr.isatty():
        yield tell
        return
    try:
        yield lambda done, total: passing(f"{done:,} of {total:,} launches")
    finally:
        passing("")


def warn_about(plan: Plan, name: str = "") -> None:
    """Warn about every launch that is not instrumented, and every unrecognised call.

    `name` is a prefix for the messages, if there are several wrappers.
    """
    for skipped in plan.skipped:
        launch = skipped.launch
        message(
            f"warning: {name}launch #{launch.index} {launch.kernel} (line {launch.line}) is not "
            f"instrumented in full: {skipped.reason}"
        )
    for reason in plan.unchecked:
        message(f"warning: {name}inputs are not checked: {reason}")
    for part in plan.unmatched:
        message(f"warning: {name}there is no {part}")
    for call in plan.unrecognised:
        message(
            f"warning: {name}unrecognised call at line {call.line}, not instrumented: {call.text}"
        )


def summary(result: Instrumented) -> str:
    """Says which probes were put around how many launches."""
    from rewriter.instrumentation.probes import memory_actions, phases

    plan, names = result.plan, ", ".join(result.selection.probes)
    if not phases(result.selection):
        if memory_actions(result.selection):
            return f"{names} where memory is allocated, taken over and given up"
        return f"{names} at the start of each call"
    total = len({*plan.probed, *(skipped.launch for skipped in plan.skipped)})
    if not total:
        return "0 launches, so no probes"
    return f"{names} around {len(plan.probed)} of {total} launches"


def write_page(page: str, output: Path, *, overwrite: bool) -> None:
    """Write a report, and say where it is."""
    from rewriter.core import files

    text = page.encode()
    files.write(output, text, overwrite=overwrite)
    message(f"report: {output} ({len(text) / 1e6:.1f} MB)")


def unified(name: str, before: bytes, after: bytes) -> str:
    """A unified diff of two versions of a file; a carriage return shows as it is."""
    from rewriter.core import text_diff

    return text_diff.unified(
        before.decode("utf-8", "replace"),
        after.decode("utf-8", "replace"),
        f"a/{name}",
        f"b/{name}",
    )


def from_here(path: Path) -> Path:
    """A path relative to the working directory, if it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def verdict_lines(verdict: Verdict, next_command: str) -> list[Line]:
    """The lines of a verdict, with its headline highlighted."""
    from rewriter.diagnosis.verdict_text import describe

    first, *rest = describe(verdict, next_command=next_command).split("\n")
    return [[(first, level_style("error"))], *rest]


def finite_style(row: int, column: int, cell: str) -> str:
    """The style of a cell in a table that ends in the counts of NaN and of infinity."""
    is_bad = row and column >= _COUNTS and cell not in ("", "0")
    return level_style("error") if is_bad else ""
