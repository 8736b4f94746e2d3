"""The result of a diagnosis: findings, the runs that were made, and what is ruled out.

No I/O. `ruling.py` makes these values, `commands/_diagnosis_text.py` prints them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rewriter.core.documents import Count
from rewriter.core.labels import short
from rewriter.core.printed import printed
from rewriter.core.text import counted, percent
from rewriter.diagnosis.verification.types import LaunchCheck
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.names import SourceLine, listed
from rewriter.dump.reading import RunDump, label

# What is wrong with a launch:
# `crash`, `hang`: the process ended there, or was stopped at its time limit.
# `nan`: it made the first NaN.
# `wrong`: it does not compute what it claims.
# `differs`: it is the first one that differs from the reference.
# `unwritten`, `stale`, `freed`: it reads memory that was not written, was taken over, or deleted.
# `unbound`: it uses a name that its function does not have.
# `missing`: no launch runs this kernel, or computes this node of the graph.
# `order`: it reads what a later launch computes.
# `race`: it does not wait for another stream that writes, or reads, the same memory.
# `bounds`: it stores, or reads, outside of its buffers.
# `varies`: it writes other values in each run, though it is given the same.
# `aliased`: it is an operator that is given one tensor to read and to write.
# `corrupted`: what it received is not what was written.
# Or with a call: `inputs`: an input is not what the wrapper was compiled for. `outputs`: they are
# wrong, but no launch is known to be. `eager`: a compiled function does something else than it does
# as plain Python.
FindingKind = Literal[
    "crash", "hang", "nan", "wrong", "differs", "unwritten", "stale", "freed", "missing", "order",
    "race", "bounds", "aliased", "varies", "corrupted", "inputs", "outputs",
    "eager", "unbound",
]  # fmt: skip
# How certain a finding is; `possible` is one of several that may be to blame.
Certainty = Literal["shown", "likely", "possible"]


@printed(
    "headline kind shown certainty symptom artifact run launch iteration kernel line lines others"
    " text step"
)
@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    `launch` is `None` if it is about the inputs or outputs of a call. `what` continues a sentence
    that begins with the launch, or is a complete sentence if `whole`; `shown` says what shows it.
    `lines` are lines of the model, `text` is the evidence: values, arguments, what wrote them.
    `others` are further launches involved. `lasting` stale reads do harm beyond this launch.
    `by_guards` is an input that breaks nothing but guards. A `symptom` may follow from another
    finding. `step` is the one of the compilation at fault, of `eager`.
    """

    kind: FindingKind
    what: str
    shown: str
    certainty: Certainty = "shown"
    artifact: str = ""
    run: str = ""
    launch: Count | None = None
    iteration: Count = 0
    kernel: str = ""
    line: Count = 0
    lines: tuple[SourceLine, ...] = ()
    text: tuple[str, ...] = ()
    others: tuple[Count, ...] = ()
    symptom: bool = False
    whole: bool = False
    lasting: bool = False
    by_guards: bool = False
    step: str = ""

    @classmethod
    def of(
        cls,
        about: RecordedLaunch,
        kind: FindingKind,
        what: str,
        shown: str,
        certainty: Certainty = "shown",
        **more: Any,
    ) -> Finding:
        """A finding about a launch, or about what a verdict or a check is about."""
        facts = ("run", "launch", "iteration", "kernel", "line", "lines")
        where = {name: getattr(about, name) for name in facts}
        where["artifact"] = getattr(about, "artifact", "")
        return cls(kind, what, shown, certainty, **{**where, **more})

    @classmethod
    def of_call(
        cls, run: RunDump, kind: FindingKind, what: str, shown: str, **more: Any
    ) -> Finding:
        """A finding about a call as a whole: `what` is a complete sentence."""
        return cls(kind, what, shown, artifact=run.artifact, run=run.name, whole=True, **more)

    @property
    def label(self) -> str:
        """Such as `launch #2 cpp_fused_gelu_1`."""
        if self.launch is None:
            return self.kernel
        return f"launch {label(self.launch, self.iteration)} {self.kernel}"

    @property
    def place(self) -> str:
        """The wrapper, its line and the line of the model."""
        where = f"line {self.line} of {short(self.artifact)}" if self.line else short(self.artifact)
        model = self.lines[0].short if self.lines else ""
        return ", ".join(filter(None, (where, model)))

    @property
    def headline(self) -> str:
        """One sentence: which launch, where, what is wrong, what shows it, how certain it is."""
        sure = {"shown": "", "likely": "likely: ", "possible": "possibly: "}[self.certainty]
        if self.whole:
            model = f" ({listed(self.lines)})" if self.lines else ""
            return f"{sure}{self.what}{model}; {self.shown}"
        place = f" ({self.place})" if self.place else ""
        subject = f"{self.label}{place} " if self.label else ""
        return f"{sure}{subject}{self.what}; {self.shown}"


@printed("artifact run launch iteration kernel line reason feeds")
@dataclass(frozen=True)
class Suspect(LaunchCheck):
    """A launch that could not be checked, with the reason. `feeds` says whether its results reach a
    wrong output, `None` if that is not known."""

    feeds: bool | None = None


@dataclass(frozen=True)
class DiagnosisStep:
    """One run of a diagnosis: its probes, its reason, how it ended, and its dump."""

    what: str
    why: str
    outcome: str
    seconds: float = 0.0
    dump: str = ""


@printed(
    "headline finding findings ruled_out suspects notes runs=steps next checked by_arguments"
    " launches compared outputs"
)
@dataclass(frozen=True)
class Diagnosis:
    """A complete diagnosis. The first of `findings` is the headline. `ruled_out` has a sentence for
    each suspicion that was examined and dropped, `next` is the command that finds out more.
    `checked` of `launches` were compared with what they have to do, and `by_arguments` of these
    with what they have to be given; `compared` of `outputs` of calls with the whole graph. If it
    `is_by_text`, nothing was run. `calls` are those whose values were recorded, and all that ran;
    zeros if that is not known."""

    findings: tuple[Finding, ...]
    ruled_out: tuple[str, ...]
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[DiagnosisStep, ...] = ()
    next: str = ""
    checked: Count = 0
    launches: Count = 0
    by_arguments: Count = 0
    outputs: Count = 0
    compared: Count = 0
    is_by_text: bool = field(default=False, kw_only=True)
    calls: tuple[Count, Count] = field(default=(0, 0), kw_only=True)

    @property
    def finding(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    @property
    def is_all_checked(self) -> bool:
        return 0 < self.launches == self.checked and self.outputs == self.compared

    @property
    def _followed(self) -> str:
        """How much of a text was followed, without running it."""
        followed = self.launches - len(self.suspects)
        share = percent(followed, self.launches)
        what = (
            f"the memory of {followed} of {counted(self.launches, 'launch')} ({share}) was followed"
        )
        return f"nothing wrong is shown; {what if self.launches else 'there is no launch'}"

    def fails(self, *, strict: bool) -> bool:
        """Whether there is a finding or, if that is `strict`, a launch that was not checked, or an
        output that was not compared."""
        return bool(self.findings) or (strict and not self.is_all_checked)

    @property
    def level(self) -> Literal["error", "warning", "good"]:
        if self.findings:
            return "error"
        return "good" if self.is_all_checked else "warning"

    @property
    def headline(self) -> str:
        if self.finding is not None:
            return self.finding.headline
        if self.is_by_text:
            return self._followed
        left = self.outputs - self.compared
        share = percent(left, self.outputs)
        verb = "was" if left == 1 else "were"
        also = f"; {left} of {counted(self.outputs, 'output')} ({share}) {verb} not compared"
        also *= bool(left)
        if not self.checked:
            if self.compared:
                agree = "output is" if self.compared == 1 else "outputs are"
                return f"nothing wrong was found: {self.compared} {agree} as expected{also}"
            return "no launch was checked in full; nothing wrong was found in what was looked at"
        some, every = self.calls
        of = f" of {some} of {counted(every, 'call')}" if some < every else ""
        if self.launches == self.checked:
            launches = f"all launches{of} were" if self.launches > 1 else "the launch was"
            own = f", {self.by_arguments} by what they are given" if self.by_arguments else ""
            return f"nothing wrong was found; {launches} checked{own}{also}"
        share = percent(self.checked, self.launches)
        return (
            f"only {self.checked} of {counted(self.launches, 'launch')} ({share}){of} could be "
            f"checked; nothing wrong was found in what was{also}"
        )


# The order of findings about the same launch, from cause to effect: memory faults, then what it
# computes, then what became of it.
_ORDER: Sequence[FindingKind] = (
    "freed", "unbound", "order", "missing", "unwritten", "stale", "race", "bounds", "aliased",
    "varies", "corrupted", "wrong", "differs",
    "inputs", "nan", "crash", "hang", "outputs", "eager",
)  # fmt: skip


def ranked(findings: Sequence[Finding], order: Sequence[str]) -> tuple[Finding, ...]:
    """The findings, causes first: the earliest launch first, symptoms and possible findings last.
    `order` are the names of the calls as they ran."""
    calls = {name: number for number, name in enumerate(order)}
    sure: Sequence[Certainty] = ("shown", "likely", "possible")

    def key(finding: Finding) -> tuple[bool, bool, int, int, int, int, int]:
        # Inputs come before all launches, outputs after them.
        outside = -1 if finding.kind in ("inputs", "nan") else sys.maxsize
        return (
            finding.symptom,
            finding.certainty == "possible",
            calls.get(finding.run, -1),
            outside if finding.launch is None else finding.launch,
            finding.iteration,
            _ORDER.index(finding.kind),
            sure.index(finding.certainty),
        )

    return tuple(sorted(findings, key=key))
