"""What a diagnosis comes to, as values: its findings, the runs that it took, and what is ruled out.

No I/O. `ruling.py` makes them of what was observed, `diagnosis_text.py` puts them into words.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewriter.core.labels import short
from rewriter.core.text import counted
from rewriter.dump.names import SourceLine, listed
from rewriter.dump.reading import label

# `crash`, `hang`: where the process ended, or was stopped. `nan`: who made the first NaN. `wrong`:
# it does not compute what it claims. `differs`: unlike the reference. `unwritten`: it reads
# what nothing has written. `stale`: it reads what another value took the memory of. `freed`: it
# reads what was deleted. `missing`: a kernel, or a node of the graph, that no launch computes.
# `order`: it reads what a later launch computes. `race`: nothing makes it wait for another stream
# that writes, or reads, the same memory. `bounds`: it stores, or reads, outside of its buffers.
# `corrupted`: what it received is not what was
# written. `inputs`: an input is not what the wrapper was compiled for. `outputs`: they are wrong,
# and no launch is known to be.
FindingKind = Literal[
    "crash", "hang", "nan", "wrong", "differs", "unwritten", "stale", "freed", "missing", "order",
    "race", "bounds", "corrupted", "inputs", "outputs",
]  # fmt: skip
# How sure it is: shown by values or by the text; likely; or one of several that it may be.
Certainty = Literal["shown", "likely", "possible"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    `launch` is `None` where it is about the inputs of a call, or its outputs. `what` is the rest of
    the sentence about it, all of it if it is `whole`; `shown` says by what it is known. `lines` are
    those of the model, `text` is the page: what was seen, the arguments, who wrote them. `others`
    are further launches that it is about. `lasting` says that it is more than what this launch does
    to the memory that it reads, `symptom` that it may follow from another finding.
    """

    kind: FindingKind
    what: str
    shown: str
    certainty: Certainty = "shown"
    artifact: str = ""
    run: str = ""
    launch: int | None = None
    iteration: int = 0
    kernel: str = ""
    line: int = 0
    lines: tuple[SourceLine, ...] = ()
    text: tuple[str, ...] = ()
    others: tuple[int, ...] = ()
    symptom: bool = False
    whole: bool = False
    lasting: bool = False

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
        """One sentence: which launch, where, what is wrong, by what it is known, and how sure."""
        sure = {"shown": "", "likely": "likely: ", "possible": "possibly: "}[self.certainty]
        if self.whole:
            model = f" ({listed(self.lines)})" if self.lines else ""
            return f"{sure}{self.what}{model}; {self.shown}"
        place = f" ({self.place})" if self.place else ""
        subject = f"{self.label}{place} " if self.label else ""
        return f"{sure}{subject}{self.what}; {self.shown}"


@dataclass(frozen=True)
class Suspect:
    """A launch that could not be checked, with the reason. `feeds` says whether what it writes
    reaches an output that is wrong, `None` where that is not known."""

    run: str
    artifact: str
    launch: int
    iteration: int
    kernel: str
    line: int
    reason: str
    feeds: bool | None = None
    lines: tuple[SourceLine, ...] = ()

    @property
    def label(self) -> str:
        return label(self.launch, self.iteration)


@dataclass(frozen=True)
class DiagnosisStep:
    """One thing that was done: what, why, how it ended, and the dump that it left."""

    what: str
    why: str
    outcome: str
    seconds: float = 0.0
    dump: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All of it. The first of `findings` is the headline. `ruled_out` has a sentence for each
    suspicion that was looked into and dropped, `notes` what is to be known beside it, `next` the
    command that would tell more."""

    findings: tuple[Finding, ...]
    ruled_out: tuple[str, ...]
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[DiagnosisStep, ...] = ()
    next: str = ""

    @property
    def finding(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    @property
    def headline(self) -> str:
        if self.finding is not None:
            return self.finding.headline
        unchecked = f"; {counted(len(self.suspects), 'launch')} could not be checked"
        return "nothing wrong was found" + unchecked * bool(self.suspects)


def _position(finding: Finding) -> int:
    """Where in its call: the inputs before all launches, the outputs behind them."""
    if finding.launch is not None:
        return finding.launch
    return -1 if finding.kind in ("inputs", "nan") else sys.maxsize


# Which of two findings about the same launch says more: what it does to memory before what it
# computes, that before what became of it.
_ORDER: Sequence[FindingKind] = (
    "freed", "order", "missing", "unwritten", "stale", "race", "bounds", "corrupted", "wrong",
    "differs",
    "inputs", "nan", "crash", "hang", "outputs",
)  # fmt: skip


def ranked(findings: Sequence[Finding], order: Sequence[str]) -> tuple[Finding, ...]:
    """The findings, the cause before what follows from it: the earliest launch first, in the calls
    as `order` has their names; what is only a symptom, or possible, last."""
    calls = {name: number for number, name in enumerate(order)}
    sure: Sequence[Certainty] = ("shown", "likely", "possible")

    def key(finding: Finding) -> tuple[bool, bool, int, int, int, int, int]:
        return (
            finding.symptom,
            finding.certainty == "possible",
            calls.get(finding.run, -1),
            _position(finding),
            finding.iteration,
            _ORDER.index(finding.kind),
            sure.index(finding.certainty),
        )

    return tuple(sorted(findings, key=key))
