"""The document of `run` on an artifact, from its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rewriter.commands._documents.launch_times import launch_time
from rewriter.commands._documents.runs import RanLaunchEntry, RunDocument
from rewriter.commands._run_text import by_launch
from rewriter.diagnosis.documents import verdict_entry
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump import timing
from rewriter.execution.run_result import RunResult


def run_document(
    result: RunResult,
    command: str,
    verdicts: Sequence[Verdict],
    following: Sequence[str],
    trace: Path | None,
) -> RunDocument:
    """`command` repeats the run, `following` tell more of the verdicts."""
    entries = tuple(map(verdict_entry, verdicts))
    times = timing.table(result.dump) if trace and result.dump else ()
    return RunDocument(
        artifact=str(result.path),
        command=command,
        dump=None if result.dump is None else str(result.dump),
        exit=result.code,
        signal=result.signal,
        message=result.message,
        timed_out=result.timed_out,
        interrupted=result.interrupted != 0,
        verdict=entries[0] if entries else None,
        verdicts=entries,
        next=following[0] if following else "",
        unexpected=result.unexpected,
        times=tuple(map(launch_time, times)),
        trace=None if trace is None else str(trace),
        seconds=round(result.seconds, 3),
        inputs=result.inputs,
        outputs=result.outputs,
        replayed=result.replayed,
        random_globals=result.random_globals,
        launches=tuple(
            RanLaunchEntry(
                index=launch.index,
                kernel=launch.kernel,
                kind=launch.kind,
                line=launch.line,
                runs=runs,
                writes=tuple(written),
            )
            for launch, runs, written in by_launch(result)
        ),
    )
