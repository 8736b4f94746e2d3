"""A crash that may be another launch's fault: one that stored outside of its memory before.

An allocator finds such damage when it is called next, and a library crashes on it: the launch that
runs then is a victim. C++ kernels store without bounds, above all into arrays of their own, which
no guard band surrounds: those are run alone under AddressSanitizer after the run.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.core.text import counted
from rewriter.diagnosis.evidence import finding_at, sources_of
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.execution.standard_error import complaint
from rewriter.locate.vocabulary import kind_of

_FAULTS = (signal.SIGSEGV, signal.SIGBUS)
_ARRAY = re.compile(
    r"make_unique<[^;]*\[\]>\([^;]*\)|\bnew \w+\[[^\]]*\]|\b(?:alignas\(\d+\) )?"
    r"(?:float|double|int\w*|bool|at::BFloat16|at::Half) \w+\[[^\]]+\]"
)
_NAMED = 4


@dataclass(frozen=True)
class OwnArray:
    """A launch of a C++ kernel that has an array of its own, in or before a launch that crashed."""

    run: RunDump
    step: RunStep
    array: str

    @property
    def title(self) -> str:
        return f"{self.step} {self.step.kernel}"


@dataclass(frozen=True)
class Watched:
    """What AddressSanitizer said of such a launch, run alone on `values`: what it `found`, such as
    `writes element 32 of its own array of 32`; empty if nothing. `unknown` is the reason why the
    launch was not run."""

    own: OwnArray
    found: str = ""
    values: str = ""
    text: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def is_clean(self) -> bool:
        return not (self.found or self.unknown)


def is_suspicious(verdict: CrashVerdict) -> bool:
    """Whether a launch that a program ended in may only be a victim: an allocator complained, or a
    library crashed in it."""
    ended = verdict.ended
    if verdict.launch is None:
        return False
    if ended.signal == signal.SIGABRT:
        return bool(complaint(ended.message))
    within = verdict.state in ("running", "begun") and not verdict.on_gpu
    return ended.signal in _FAULTS and kind_of(verdict.kind).code == "library" and within


def own_arrays(verdicts: Sequence[CrashVerdict], dump: Dump) -> tuple[OwnArray, ...]:
    """The launches to be run alone after a crash: of the C++ kernels that were reached, those with
    arrays of their own, each kernel once, the last ones first."""
    found: dict[tuple[str, str], OwnArray] = {}
    for run in _reached(verdicts, dump):
        arrays = _arrays(run)
        for step in reversed(run.steps if arrays else ()):
            if array := arrays.get(step.kernel):
                found.setdefault((run.sha256, step.kernel), OwnArray(run, step, array))
    return tuple(found.values())[:_NAMED]


def _reached(verdicts: Sequence[CrashVerdict], dump: Dump) -> Iterator[RunDump]:
    """The calls that crashed, each before the last call of every other wrapper in its process."""
    for verdict in verdicts:
        run = next((run for run in dump.runs if run.name == verdict.run), None)
        if run is None or verdict.ended.signal not in (signal.SIGABRT, *_FAULTS):
            continue
        yield run
        seen = {run.sha256}
        for other in reversed(dump.runs):
            is_before = other.facts.pid == run.facts.pid and other.number < run.number
            if other.rank == run.rank and is_before and other.sha256 not in seen:
                seen.add(other.sha256)
                yield other


def with_watched(
    end: Examined, crashes: Sequence[CrashVerdict], dump: Dump, watched: Sequence[Watched]
) -> Examined:
    """How a program ended, and which launches may have damaged its memory before. `end` has a
    finding for each of the `crashes`."""
    pairs = zip(end.findings, crashes, strict=True)
    crashed = (_with_suspects(*pair, dump, watched) for pair in pairs)
    clean = ", ".join(f"{x.own.title} on {x.values}" for x in watched if x.is_clean)
    shown = "shown by AddressSanitizer, under which it ran alone, on"
    found = (
        finding_at(x.own.run, x.own.step, "bounds", x.found, f"{shown} {x.values}", text=x.text)
        for x in watched
        if x.found
    )
    notes = (
        f"{x.own.title} has an array of its own ({x.own.array}); whether it stores outside of it "
        f"was not shown: {x.unknown}"
        for x in watched
        if x.unknown
    )
    ruled_out = f"stores outside of a kernel's own array: none under AddressSanitizer, {clean}"
    ruled_out = ruled_out if clean else end.ruled_out
    both = (*found, *crashed)
    return replace(end, findings=both, ruled_out=ruled_out, notes=(*end.notes, *notes))


def _with_suspects(
    finding: Finding, verdict: CrashVerdict, dump: Dump, watched: Sequence[Watched]
) -> Finding:
    """The finding about a crash, with the C++ launches that may have damaged the memory: none if
    one was shown to, and not those that were shown not to."""
    run = next((run for run in dump.runs if run.name == verdict.run), None)
    if run is None or not is_suspicious(verdict) or any(launch.found for launch in watched):
        return finding
    clean = {launch.own.step.kernel for launch in watched if launch.is_clean}
    arrays = {kernel: array for kernel, array in _arrays(run).items() if kernel not in clean}
    is_fault = verdict.ended.signal != signal.SIGABRT
    reached = [
        x
        for x in run.steps
        if run.launch_row(x.launch).kind == "cpp"
        and x.kernel not in clean
        # A fault has other causes, too.
        and (x.kernel in arrays or not is_fault)
    ]
    launches = {x.launch: x for x in reversed(reached)}
    own = verdict.launch in launches and bool(arrays.get(verdict.kernel))
    ordered = sorted(launches.values(), key=lambda x: (not arrays.get(x.kernel), x.position))
    if own or not ordered:
        lines = [f"its kernel has an array of its own: {arrays[verdict.kernel]}"] if own else []
        return replace(finding, text=(*lines, *finding.text))
    named = []
    for step in ordered[:_NAMED]:
        array = arrays.get(step.kernel)
        has = f", which has an array of its own: {array}" if array else ""
        named.append(f"suspect: #{step.launch} {step.kernel}{has}")
    more = len(ordered) - _NAMED
    named += [f"and {counted(more, 'other C++ launch')}"] if more > 0 else []
    if is_fault:  # what it was given may be to blame as well
        return replace(finding, text=(*finding.text, "or a launch before damaged memory:", *named))
    what = (
        f"memory was damaged before launch {verdict.label} ended the program ({verdict.ended}, "
        f"{verdict.ended.message}): a launch before it stored outside of its memory"
    )
    return replace(
        finding,
        what=what,
        certainty="possible",
        launch=None,
        kernel="",
        text=(*named, *finding.text),
        others=tuple(x.launch for x in ordered[:_NAMED] if x.launch is not None),
    )


def _arrays(run: RunDump) -> dict[str, str]:
    """The first array that each kernel has of its own, by the kernel's name."""
    found = ((name, _ARRAY.search(text)) for name, text in sources_of(run).items())
    return {name: match[0] for name, match in found if match}
