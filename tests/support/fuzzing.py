"""The frame of the fuzzers: seeded cases that run commands in this process, and what is a fault.

A fuzzer is a function of one `Case`: it takes all its choices from `case.random`, writes its files
under `case.folder`, and runs commands through `case.run`. `check` runs it for a range of seeds; the
same seed makes the same case. What a case must not do is found here, for every fuzzer alike.

`REWRITER_FUZZ_<NAME>` is how many seeds the long run of a fuzzer takes, `REWRITER_FUZZ_FIRST` the
first of them, `REWRITER_FUZZ_KEEP` the directory that keeps the files of cases that failed.
"""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

from rewriter import cli

# Seconds that one command may take: CPU time, as other work on the machine is no fault of ours.
LIMIT = 20.0
# A command that waits for something uses no CPU.
_PATIENCE = 6 * LIMIT
_STOPPED = -1
_OWN_FAILURE = re.compile(r"Traceback \(most recent call last\)|error\[verification-failed\]")
_SLUG = re.compile(r"error\[([\w-]+)\]")


class TooSlowError(BaseException):
    """Ends a command that ran into its limit; no handler of the program's takes it."""


class FaultError(AssertionError):
    """Says what a case did that nothing may do."""


@dataclass(frozen=True)
class Outcome:
    """What one command did. `seconds` are CPU time."""

    argv: tuple[str, ...]
    code: int
    output: bytes
    errors: str
    seconds: float

    @property
    def slug(self) -> str:
        """The name of the error, empty where there was none."""
        found = _SLUG.search(self.errors)
        return found[1] if found else ""


@dataclass
class Case:
    """One case of a fuzzer: its seed, its choices, its directory, and what it did so far."""

    seed: int
    folder: Path
    random: random.Random
    outcomes: list[Outcome] = field(default_factory=list)

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def run(self, *argv: str | Path) -> Outcome:
        """Run one command; raises `FaultError` on what no input may lead to.

        That is exit code 3, a traceback, a failed verification, more than 20 seconds, files that
        are left behind or changed by a command that refused, and a refusal that does not say where.
        """
        before = snapshot(self.folder)
        outcome = invoke([str(part) for part in argv])
        self.outcomes.append(outcome)
        if found := _fault(outcome, before, snapshot(self.folder)):
            raise FaultError(f"{found}\n{_shown(outcome)}")
        return outcome

    def expect(self, condition: bool, found: str) -> None:
        """Fail the case, with the last command, unless the condition holds."""
        if not condition:
            raise FaultError(f"{found}\n{_shown(self.outcomes[-1])}" if self.outcomes else found)


def _fault(outcome: Outcome, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    if _OWN_FAILURE.search(outcome.errors):
        return "a failure of our own"
    if outcome.code not in (0, 1, 2):
        return f"exit code {outcome.code}"
    if outcome.seconds > LIMIT:
        return f"{outcome.seconds:.1f} s of CPU time"
    if outcome.code == 2:
        if not outcome.errors.strip():
            return "refused without a word"
        if before != after:
            return f"refused, and the directory changed: {_changed(before, after)}"
    if left := [name for name in after.keys() - before.keys() if Path(name).name.startswith(".")]:
        return f"left behind: {left}"
    return ""


def _changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    return sorted(name for name in before.keys() | after if before.get(name) != after.get(name))


def _shown(outcome: Outcome) -> str:
    text = f"  rewriter {' '.join(outcome.argv)}\n  exit code {outcome.code}"
    text += f", {outcome.seconds:.1f} s\n"
    return text + "".join(f"  | {line[:300]}\n" for line in outcome.errors.splitlines()[-25:])


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, and what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def invoke(argv: Sequence[str]) -> Outcome:
    """Run the command line in this process, with its streams caught and its time limited."""
    output, errors = io.BytesIO(), io.StringIO()
    # As the installed command has them: see `rewriter.cli.script`.
    stdout = io.TextIOWrapper(output, "utf-8", errors="backslashreplace", write_through=True)
    started = time.process_time()
    with redirect_stdout(stdout), redirect_stderr(errors):
        try:
            with _limited():
                code = cli.main(argv)
        except TooSlowError as slow:
            code = _STOPPED
            errors.write(f"stopped, as it took too long, in\n{slow}")
        seconds = time.process_time() - started
    stdout.detach()
    return Outcome(tuple(argv), code, output.getvalue(), errors.getvalue(), seconds)


@contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        where = "".join(traceback.format_stack(frame, limit=4))
        raise TooSlowError(where)

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, LIMIT + 1),
        signal.SIGALRM: (signal.ITIMER_REAL, _PATIENCE),
    }
    handlers = {number: signal.signal(number, stop) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def seeds(name: str, default: int) -> range:
    """The seeds of a long run: how many the environment says, or `default`, and from which on."""
    first = int(os.environ.get("REWRITER_FUZZ_FIRST", "0"))
    return range(first, first + int(os.environ.get(f"REWRITER_FUZZ_{name.upper()}", default)))


def seeded_test(
    name: str, fuzz: Callable[[Case], None], *, few: int, many: int
) -> Callable[[range | None, Path], None]:
    """The test of a fuzzer: with so few seeds in each run, and many in the long one."""

    @pytest.mark.parametrize(
        "over", [range(few), pytest.param(None, marks=pytest.mark.fuzz)], ids=["few", "many"]
    )
    def test(over: range | None, tmp_path: Path) -> None:
        check(name, fuzz, over or seeds(name, many), tmp_path)

    return test


def check(name: str, fuzz: Callable[[Case], None], over: range, keep: Path) -> None:
    """Run the case of each seed; fail with what was found, the seeds, and where the files are.

    `keep` keeps the files of cases that failed, unless the environment names another place.
    """
    keep = Path(os.environ.get("REWRITER_FUZZ_KEEP") or keep)
    found: list[str] = []
    ends: Counter[str] = Counter()
    slowest = 0.0
    started = time.perf_counter()
    for seed in over:
        case, fault = _one(name, fuzz, seed, keep)
        found += [fault] if fault else []
        ends.update(one.slug or f"exit code {one.code}" for one in case.outcomes)
        slowest = max([slowest, *(one.seconds for one in case.outcomes)])
    seconds = time.perf_counter() - started
    # With `-s`, or where the test fails.
    print(
        f"\n{name}: seeds {over.start} to {over.stop - 1}, {sum(ends.values())} commands in "
        f"{seconds:.0f} s ({len(over) / max(seconds, 1e-9):.1f} cases/s), slowest {slowest:.1f} s, "
        f"{len(found)} failed\n"
        + "".join(f"  {count:7} {end}\n" for end, count in ends.most_common())
    )
    if found:
        shown = "\n".join(found[:60])
        raise AssertionError(f"{len(found)} of {len(over)} cases failed\n{shown}")


def _one(name: str, fuzz: Callable[[Case], None], seed: int, keep: Path) -> tuple[Case, str]:
    # A string, as random takes all of it: neighbouring seeds have nothing in common.
    choices = random.Random(f"{name} {seed}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        case = Case(seed, Path(directory).resolve(), choices)
        try:
            fuzz(case)
        except Exception as error:
            kept = keep / f"{name}-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(case.folder, kept, symlinks=True)
            text = str(error) if isinstance(error, FaultError) else traceback.format_exc()
            (kept / "fault.txt").write_text(text)
            return case, f"{name}, seed {seed}, files in {kept}: {text}"
    return case, ""
