"""How long launches took, from the dump of the probe `time`: a table, and a trace for viewers.

The trace is a JSON file of Chrome's Trace Event Format, which chrome://tracing and Perfetto open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import files, json_text
from rewriter.core.documents import Count
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.core.types import Json
from rewriter.dump.reading import RunDump, open_dump
from rewriter.dump.rows import TimeRow

TRACE = "trace.json"


@printed("artifact launch kernel kind runs total_us=total mean_us=mean share clock")
@dataclass(frozen=True)
class Timed:
    """All runs of one launch, over all ranks and calls. Times are in microseconds.

    `share` is the part of the time of all launches, `clock` what measured it: `cuda` or `host`.
    """

    artifact: str
    launch: Count
    kernel: str
    kind: str
    runs: Count
    total: float
    share: float
    clock: str

    @property
    def mean(self) -> float:
        return round(self.total / self.runs, 3)


def table(dump: Path) -> tuple[Timed, ...]:
    """The launches of a dump by the time that they took, longest first; empty if none was timed.

    Raises `RewriterError` if the dump is not as a runtime writes it.
    """
    timed: dict[tuple[str, int], list[tuple[RunDump, TimeRow]]] = {}
    for run in open_dump(dump).runs:
        for launch, row in _timed(run):
            timed.setdefault((run.artifact, launch), []).append((run, row))
    totals = {key: sum(row.time.duration_us for _, row in rows) for key, rows in timed.items()}
    whole = sum(totals.values())
    made = []
    for (artifact, launch), rows in timed.items():
        run, row = rows[0]
        facts = run.launch_row(launch)
        total = totals[artifact, launch]
        made.append(
            Timed(
                artifact=artifact,
                launch=launch,
                kernel=row.kernel or facts.kernel,
                kind=facts.kind,
                runs=len(rows),
                total=round(total, 3),
                share=round(total / whole, 6) if whole else 0.0,
                clock=row.time.clock,
            )
        )
    return tuple(sorted(made, key=lambda timed: -timed.total))


def lines(
    timed: tuple[Timed, ...], name: Callable[[str], str] = lambda artifact: artifact
) -> list[list[str]]:
    """The table as cells; the first row is the header. `name` returns a wrapper's name in it."""
    several = len({each.artifact for each in timed}) > 1
    rows = [["#", "kernel", "runs", "total µs", "mean µs", "share", "clock"]]
    rows += [
        [
            str(each.launch),
            each.kernel,
            str(each.runs),
            f"{each.total:.1f}",
            f"{each.mean:.1f}",
            f"{each.share:.1%}",
            each.clock,
        ]
        for each in timed
    ]
    if not several:
        return rows
    names = ["wrapper", *(name(each.artifact) for each in timed)]
    return [[name, *row] for name, row in zip(names, rows, strict=True)]


def trace(runs: Sequence[RunDump]) -> Json:
    """The launches of calls that were timed, in which a rank is a process, and a wrapper a thread
    of it. Raises `RewriterError` if none was timed."""
    runs = [run for run in runs if next(_timed(run), None)]
    if not runs:
        raise RewriterError(
            "no-times", "no launch of these calls was timed", hint="Record with `--probe time`."
        )
    first = min(run.started or 0.0 for run in runs)
    tracks: dict[tuple[int, object, str], int] = {}
    events: list[Json] = []
    names: list[Json] = []
    for run in runs:
        track = (run.rank, run.facts.pid, run.artifact)
        if track not in tracks:
            tracks[track] = len(tracks)
            names += _names(run, tracks[track])
        # The times of a call are relative to its own start.
        events += _events(run, tracks[track], ((run.started or 0.0) - first) * 1e6)
    events.sort(key=lambda event: event["ts"])
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *events]}


def write_trace(dump: Path) -> Path:
    """Write `trace.json` into a dump, replacing an earlier one, and return its path."""
    path = dump / TRACE
    content = json_text.encode(trace(open_dump(dump).runs))
    files.write(path, f"{content}\n".encode(), overwrite=True)
    return path


def _timed(run: RunDump) -> Iterator[tuple[int, TimeRow]]:
    return ((row.launch, row) for row in run.having("time", TimeRow) if isinstance(row.launch, int))


def _events(run: RunDump, track: int, offset: float) -> Iterator[Json]:
    for launch, row in _timed(run):
        facts = run.launch_row(launch)
        yield {
            "name": row.kernel or facts.kernel,
            "cat": facts.kind or "launch",
            "ph": "X",
            "ts": round(offset + row.time.start_us, 3),
            "dur": row.time.duration_us,
            "pid": run.rank,
            "tid": track,
            "args": {
                "run": run.name,
                "launch": launch,
                "iteration": row.iteration or 0,
                "line": facts.line,
                "source_nodes": list(facts.source_nodes),
                "origins": list(facts.origins),
                "clock": row.time.clock,
            },
        }


def _names(run: RunDump, track: int) -> Iterator[Json]:
    """The names of the process and the thread in viewers."""
    for what, name in (("process", f"rank {run.rank}"), ("thread", run.artifact)):
        where = {"pid": run.rank, "tid": track}
        yield {"name": f"{what}_name", "ph": "M", **where, "args": {"name": name}}
