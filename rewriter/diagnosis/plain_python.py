"""Findings about compiled functions that do not do what they do as plain Python, and the step that
is at fault: tracing, which makes the graph, or Inductor, which compiles it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.dump.eager_calls import EagerCall
from rewriter.dump.reading import Dump

if TYPE_CHECKING:
    from rewriter.diagnosis.verification.end_to_end import CallCheck

Step = Literal["tracing", "inductor", "unknown"]
_LISTED = 4
TWICE = (
    "compiled functions were also run as plain Python: what they print, write to files or send "
    "happened once more for each of these calls"
)


@dataclass(frozen=True)
class Graphs:
    """What is known of the calls of wrappers: `checks` of their outputs against their graphs, and
    the names of those with a launch that is wrong."""

    checks: Sequence[CallCheck]
    wrong: Collection[str]

    def step(self, runs: Sequence[str]) -> tuple[Step, str]:
        """Which step is at fault if these calls, together, differ from plain Python; and why."""
        known = {check.run: check for check in self.checks}
        if any(run in self.wrong or (run in known and known[run].wrong) for run in runs):
            return "inductor", "what its kernels computed is not what the graph gives"
        if not runs:
            return "unknown", "no call of a wrapper was recorded during it"
        for run in runs:
            one = known.get(run)
            if one is None or one.reason or not one.outputs:
                why = (one and one.reason) or "no graph was evaluated"
                return "unknown", f"{run} could not be compared with its graph: {why}"
        return "tracing", "its kernels computed what the graph gives, so the graph differs"


def of_calls(
    calls: Sequence[EagerCall], graphs: Graphs, dump: Dump, *, ended: bool = True
) -> Examined:
    """The findings about calls that were compared, or what they rule out. `ended` says whether the
    program ran to its end."""
    if not calls:
        why = "no compiled function was entered" if ended else "the program did not run to its end"
        return Examined(notes=(f"no call was compared with plain Python: {why}",))
    differing = [call for call in calls if call.problems]
    first = {(call.function, call.file, call.line, call.part): call for call in reversed(differing)}
    findings = tuple(_finding(call, calls, graphs, dump) for call in reversed(first.values()))
    notes = [TWICE]
    reasons = dict.fromkeys((call.place, call.part, call.reason) for call in calls if call.reason)
    notes += [
        f"not compared with plain Python: {'gradients of ' * (part == 'gradients')}{place}: {why}"
        for place, part, why in reasons
    ]
    notes += dict.fromkeys(f"{call.place}: {note}" for call in calls for note in call.notes)
    return Examined(findings, "" if findings else _ruled_out(calls), notes=tuple(notes))


def _ruled_out(calls: Sequence[EagerCall]) -> str:
    compared = [call for call in calls if not call.reason and call.part == "call"]
    if not compared:
        return ""
    functions = {(call.file, call.line, call.function) for call in compared}
    backward = sum(call.part == "gradients" and not call.reason for call in calls)
    gradients = f", and the gradients of {backward} are the same" if backward else ""
    return (
        f"a difference from plain Python: {counted(len(compared), 'call')} of "
        f"{counted(len(functions), 'function')} return and update the same{gradients}"
    )


def _finding(call: EagerCall, calls: Sequence[EagerCall], graphs: Graphs, dump: Dump) -> Finding:
    runs, is_backward = call.runs(dump), call.part == "gradients"
    # A backward reads what the call saved whose gradients these are.
    both = [x for x in calls if is_backward and (x.part, x.key) == ("call", call.key)] + [call]
    step, why = graphs.step([run.name for eager in both for run in eager.runs(dump)])
    what = {"tracing": "tracing", "inductor": "Inductor", "unknown": "tracing or Inductor"}[step]
    does = "the gradients of" if is_backward else "what is returned or updated by"
    return Finding(
        "eager",
        f"{what} changes {does} {call.place}: {call.problems[0]}",
        f"shown by the same call as plain Python; {why}",
        "likely" if step == "unknown" else "shown",
        artifact=runs[0].artifact if runs else "",
        run=runs[0].name if runs else "",
        text=call.problems[1:_LISTED],
        symptom=step == "inductor",
        whole=True,
        step=step,
    )
