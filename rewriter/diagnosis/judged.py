"""Runs a wrapper and judges what it recorded: where it crashed, and where its first NaN is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact
from rewriter.core.errors import DIFFERS, OK
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict import Verdict
from rewriter.diagnosis.verdict_text import next_command
from rewriter.dump import timing
from rewriter.dump.document_files import was_stopped
from rewriter.dump.timing import Timed
from rewriter.execution.conclusion import Conclusion, write_conclusion
from rewriter.execution.run_result import InterruptedRunError, RunResult
from rewriter.execution.runner import RunRequest, run_wrapper
from rewriter.instrumentation.types import Selection


class Judged(NamedTuple):
    """The verdicts, for each the command that finds out more (empty if there is none), and the
    times of launches. `skipped` are the calls whose NaN and infinities are those of a scaled
    loss."""

    verdicts: tuple[Verdict, ...] = ()
    following: tuple[str, ...] = ()
    times: tuple[Timed, ...] = ()
    trace: Path | None = None
    skipped: frozenset[str] = frozenset()

    @property
    def next(self) -> str:
        return next(iter(self.following), "")

    @property
    def first(self) -> Verdict | None:
        return next(iter(self.verdicts), None)

    @property
    def pairs(self) -> Iterator[tuple[Verdict, str]]:
        return zip(self.verdicts, self.following, strict=True)


def judge(
    dump: Path | None,
    conclusion: Conclusion,
    ran: Selection | None = None,
    *,
    is_timed: bool = False,
) -> Judged:
    """Add to a dump how its program ended, which `report` needs to make the verdicts again, and
    make them; write its trace if launches were timed. No command asks for what `ran` recorded."""
    if dump is None:
        return Judged()
    write_conclusion(dump, conclusion)
    verdicts: tuple[Verdict, ...] = ()
    if conclusion.ended.code != 0 and not was_stopped(dump):
        verdicts = examine(dump, conclusion.ended, blocking=conclusion.blocking)
    found = nonfinite.search(dump, values=True)
    verdicts += found.verdicts
    following = (next_command(conclusion.again, verdict, ran) for verdict in verdicts)
    times = timing.table(dump) if is_timed else ()
    trace = timing.write_trace(dump) if times else None
    return Judged(verdicts, tuple(following), times, trace, found.skipped)


def run(
    artifact: str | Path | Artifact,
    selection: Selection | None = None,
    *,
    args: str | Path | None = None,
    constants: str | Path | None = None,
    imports: Sequence[str] = (),
    dump: str | Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
    timeout: float | None = None,
    environment: Mapping[str, str] = {},
    quiet: bool = False,
) -> RunResult:
    """Run a wrapper once, on the inputs of its own `get_args()`, or on those in `args`.

    A model of a package is run by its loader, on the arguments of its `forward`. With a selection,
    it is rebuilt with probes first.

    With a selection, or if the wrapper is instrumented already, a dump is written to `dump`, by
    default a new directory in the current one. `quiet` sends its standard output to standard error.
    After `timeout` seconds the process is killed. `environment` is added to that of the process;
    see `blocking_environment`.

    Raises `RewriterError` if the inputs do not fit, `InterruptedRunError` on Ctrl-C. A crash of the
    wrapper is a result.
    """
    result = run_wrapper(
        RunRequest(
            artifact if isinstance(artifact, Artifact) else open_artifact(artifact),
            selection=selection,
            args=None if args is None else Path(args),
            constants=None if constants is None else Path(constants),
            imports=tuple(imports),
            dump=None if dump is None else Path(dump),
            seed=seed,
            overwrite=overwrite,
            timeout=timeout,
            environment=environment,
            output="quiet" if quiet else "shown",
        )
    )
    if result.ended.interrupted:
        raise InterruptedRunError(result)
    verdicts = () if result.dump is None else nonfinite.search(result.dump).verdicts
    return with_code(result, verdicts)


def with_code(result: RunResult, verdicts: Sequence[Verdict]) -> RunResult:
    """The result with the exit code for a finding, if a verdict is one."""
    is_fault = result.code == OK and any(verdict.is_fault for verdict in verdicts)
    return replace(result, code=DIFFERS) if is_fault else result
