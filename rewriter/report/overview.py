"""All calls of a dump at a glance, where it has more than a page can show in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rewriter.core import parallel
from rewriter.core.dtypes import is_floating
from rewriter.core.text import counted
from rewriter.dump.allowed import Allowed
from rewriter.dump.document_files import EVENTS
from rewriter.dump.light_rows import light_rows
from rewriter.dump.reading import RunDump
from rewriter.report.types import CallOverview

# Bytes of rows: some 60,000 that are read in full, and 20,000 of a page of some calls.
_IN_FULL, _SHOWN = 20 << 20, 6 << 20
_MOST = 100  # calls that are shown of many


def choose(runs: Sequence[RunDump]) -> tuple[Sequence[RunDump], tuple[CallOverview, ...]]:
    """The calls that a page shows in full: all, or of a dump that is too large those with something
    to see, the first and last; then all of them at a glance."""
    sizes = [_size(run) for run in runs]
    if sum(sizes) <= _IN_FULL:
        return runs, ()
    calls = _with_odd(list(parallel.each(overview, runs, sizes)))
    order = sorted(range(len(runs)), key=lambda at: -_interest(calls[at]))
    spread = [0, len(runs) - 1, *range(0, len(runs), max(1, len(runs) // _MOST))]
    ranked = dict.fromkeys((*(at for at in order if _interest(calls[at])), *spread))
    shown: list[int] = []
    room = _SHOWN
    for at in ranked:
        room -= sizes[at]
        if shown and (room < 0 or len(shown) >= _MOST):
            break
        shown.append(at)
    return [runs[at] for at in sorted(shown)], calls


def said(calls: Sequence[CallOverview], shown: int) -> str:
    """That of all these calls some are shown in full."""
    launches = sum(call.launches for call in calls)
    return (
        f"{counted(len(calls), 'call', grouped=True)} with "
        f"{counted(launches, 'launch', grouped=True)} were looked through for NaN, infinities and "
        f"faults; {shown:,} are shown in full, those where there is one first. `--run` shows any "
        "other."
    )


def overview(run: RunDump) -> CallOverview:
    """One call at a glance."""
    read = light_rows(run)
    if read is None:
        return CallOverview(run.name, run.artifact, run.call, is_odd=True)
    rows, is_cut = read
    allowed = Allowed(run.manifest.allow)
    nan = inf = 0
    magnitude: float | None = None
    is_odd = is_cut
    launches = set()
    for row in rows:
        if row.launch is not None:
            launches.add((row.launch, row.iteration))
        is_odd = is_odd or bool(row.error or row.unexpected)
        if not row.is_result and row.phase != "inputs":
            continue
        if row.nan or row.inf:
            if allowed.covers("" if row.launch is None else row.kernel, row.arg):
                continue
            nan += row.nan
            inf += row.inf
        if row.launch is not None and is_floating(row.dtype):
            size = row.magnitude
            if size is not None and (magnitude is None or size > magnitude):
                magnitude = size
    return CallOverview(
        run.name,
        run.artifact,
        run.call,
        rows=len(rows),
        launches=len(launches),
        magnitude=magnitude,
        nan=nan,
        inf=inf,
        is_odd=is_odd,
    )


def _with_odd(calls: Sequence[CallOverview]) -> tuple[CallOverview, ...]:
    """With those marked that have fewer rows than most calls of their wrapper: they may end in a
    launch."""
    counts: dict[str, Counter[int]] = {}
    for call in calls:
        counts.setdefault(call.artifact, Counter())[call.rows] += 1
    most = {name: found.most_common(1)[0][0] for name, found in counts.items()}
    return tuple(
        replace(call, is_odd=True) if call.rows < most[call.artifact] else call for call in calls
    )


def _interest(call: CallOverview) -> int:
    return 4 * bool(call.nan) + 2 * call.is_odd + bool(call.inf)


def _size(run: RunDump) -> int:
    try:
        return (run.path / EVENTS).stat().st_size
    except OSError:
        return 0
