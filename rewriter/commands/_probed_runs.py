"""The runs of `diagnose` and `sanitize`: of an artifact or a program."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rewriter.artifact.types import Artifact
from rewriter.commands import _program
from rewriter.commands._options import RunOptions
from rewriter.commands._output import steps
from rewriter.commands._run import again, request_of
from rewriter.core.exit_status import ExitStatus
from rewriter.core.terminal import message
from rewriter.diagnosis import nonfinite, ruling, triage
from rewriter.diagnosis.findings import DiagnosisStep
from rewriter.diagnosis.nonfinite import Searched
from rewriter.diagnosis.verdict import CrashVerdict, NonFiniteVerdict, Verdict
from rewriter.diagnosis.verdict_text import OPTIONS, next_command
from rewriter.dump.directory import dump_directory
from rewriter.dump.reading import is_recorded, open_dump
from rewriter.execution.conclusion import Conclusion, write_conclusion
from rewriter.execution.hook.run import run
from rewriter.execution.runner import SILENT, blocking_environment, run_wrapper
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.types import Selection

_TUNED = "tuned.json"
_LEAST_VALUES, _USUAL_VALUES = 256 << 20, 4 << 30  # bytes

# The time limit of a run whose memory may be damaged: so many times that of another run, plus
# seconds.
LONGER, PATIENCE = 10, 60.0


@dataclass(frozen=True)
class ProbedRun:
    """A run, its dump, if anything was recorded, and the verdicts about it."""

    ended: ExitStatus
    dump: Path | None
    blocking: bool = False
    is_random: bool = False
    seconds: float = 0.0
    template: str = ""
    known_before: bool = False  # another run has recorded what was before the calls of this one

    @cached_property
    def has_values(self) -> bool:
        """Whether tensors were saved."""
        return self.dump is not None and any(run.saves for run in open_dump(self.dump).runs)

    @cached_property
    def crashes(self) -> tuple[CrashVerdict, ...]:
        if self.dump is None or self.ended.code == 0:
            return ()
        return triage.examine(self.dump, self.ended, blocking=self.blocking)

    @property
    def ran_through(self) -> bool:
        """Whether it ran to its end, or as far as its own check of its numbers."""
        return self.ended.code == 0 or ruling.ended_by_check(self.ended, self.crashes)

    @property
    def nonfinite(self) -> tuple[NonFiniteVerdict, ...]:
        """The verdicts about NaN: those that are a fault in any case, and then those that are none
        if their launch is right."""
        found = self._searched
        return (*(x for x in found.verdicts if not x.absorbed), *found.absorbed)

    @property
    def skipped(self) -> frozenset[str]:
        """The calls whose NaN and infinities are those of a scaled loss."""
        return self._searched.skipped

    @cached_property
    def _searched(self) -> Searched:
        if self.dump is None:
            return Searched()
        return nonfinite.search(self.dump, values=True, known_before=self.known_before)

    def following(self, verdicts: Sequence[Verdict], selection: Selection) -> tuple[str, ...]:
        """For each verdict, the command that finds out more."""
        return tuple(next_command(self.template, verdict, selection) for verdict in verdicts)


def runs_directory(arguments: RunOptions, path: Path, suffix: str) -> Path:
    """Make the directory for the dumps of several runs of what is at `path`."""
    wanted, overwrite = arguments.dump, arguments.overwrite
    return dump_directory(path, wanted, overwrite=overwrite, suffix=suffix)


def values_limit(folder: Path) -> int:
    """The size limit for values that one run saves into a folder."""
    return max(_LEAST_VALUES, min(_USUAL_VALUES, shutil.disk_usage(folder).free // 2))


class How(NamedTuple):
    """How a run differs from others: `environment` is added to that of the process, `timeout` is
    the time limit if the user gave none."""

    blocking: bool = False
    environment: Mapping[str, str] = MappingProxyType({})
    timeout: float | None = None


_USUAL = How()


@dataclass
class Runs:
    """Runs a subject, announces each run with its reason, and keeps a list of the runs."""

    subject: ArtifactSubject | ProgramSubject
    folder: Path
    most: int
    done: list[DiagnosisStep] = field(default_factory=list)

    def run(self, name: str, selection: Selection, why: str, how: How = _USUAL) -> ProbedRun:
        number = len(self.done) + 1
        if number == 1:
            (self.folder / _TUNED).unlink(missing_ok=True)  # from an earlier diagnosis
        message(f"run {number} of at most {max(number, self.most)}: {why}")
        started = time.perf_counter()
        ran = self.subject.run(selection, self.folder / name, how)
        seconds = time.perf_counter() - started
        outcome = "ran to its end" if ran.ended.code == 0 else str(ran.ended)
        dump = "" if ran.dump is None else str(ran.dump)
        what = ",".join(selection.probes)
        self.done.append(DiagnosisStep(what, why, outcome, round(seconds, 3), dump))
        return ran


@dataclass
class ArtifactSubject:
    """A wrapper, a package, or what torch saved compiled."""

    arguments: RunOptions
    path: str
    artifact: Artifact

    def run(self, selection: Selection, dump: Path, how: How) -> ProbedRun:
        """Run it once with probes."""
        blocking = blocking_environment() if how.blocking else {}
        request = replace(
            request_of(self.arguments, self.artifact),
            selection=selection,
            dump=dump,
            overwrite=True,
            timeout=self.arguments.timeout or how.timeout,
            tuned=dump.parent / _TUNED,
            environment={**SILENT, **blocking, **how.environment},
            output="quiet",
            report=steps(),
        )
        ran = run_wrapper(request)
        template = again(self.arguments, self.path, OPTIONS, blocking=how.blocking)
        probed = _probed(ran.ended, ran.dump, how, ran.seconds, template)
        return replace(probed, is_random=ran.inputs == "random")


@dataclass
class ProgramSubject:
    """A program."""

    arguments: RunOptions
    command: Sequence[str]
    stdin: StandardInput = field(default_factory=StandardInput)

    def run(self, selection: Selection, dump: Path, how: How) -> ProbedRun:
        """Run it once with probes in the wrappers that it loads."""
        request = replace(
            _program.request_of(self.arguments, self.command, selection),
            dump=str(dump),
            overwrite=True,
            timeout=self.arguments.timeout or how.timeout,
            blocking=how.blocking,
            stdin=self.stdin,
            environment=how.environment,
            hears=True,
        )
        started = time.perf_counter()
        ran = run(request, message)
        seconds = time.perf_counter() - started
        _program.warn(ran)
        return _probed(ran.ended, ran.dump, how, seconds, _program.template(request))


def _probed(
    ended: ExitStatus, dump: Path | None, how: How, seconds: float, template: str
) -> ProbedRun:
    """A run with what it recorded, if anything; its dump says how it ended."""
    recorded = dump if dump is not None and is_recorded(dump) else None
    if recorded is not None:
        write_conclusion(recorded, Conclusion(ended, how.blocking, template))
    return ProbedRun(ended, recorded, how.blocking, seconds=seconds, template=template)
