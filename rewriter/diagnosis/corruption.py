"""Finds values that change between launches, though no launch should have written to them.

Each value is recorded where it is written, and again where it is read: by each launch, or with
`--args ends` after the last one. If the two differ, something else wrote to its memory: a launch
out of bounds, the owner of memory that was freed or reused too early, or a kernel that was still
running.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.core.text import counted
from rewriter.diagnosis.evidence import finding_at, located
from rewriter.diagnosis.findings import Certainty, Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.value_pairs import ValueRecord, pairs, same_bits
from rewriter.diagnosis.verdict_text import statistics
from rewriter.dump import dataflow
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.execution.dumped_wrappers import is_whole

_MOST_FINDINGS = 8  # of a call
_NAMED = 6  # launches


@dataclass(frozen=True)
class Changed:
    """A value that changed though no launch should have written it, as recorded `before` and
    `after`. `between` are the launches that may have changed it; with `--args ends`, they include
    the launch after which it was recorded again."""

    run: RunDump
    before: ValueRecord
    after: ValueRecord
    between: tuple[RunStep, ...]

    @classmethod
    def of(cls, run: RunDump, before: ValueRecord, after: ValueRecord) -> Changed:
        if before.step is after.step:
            return cls(run, before, after, (after.step,))
        end = after.step.position + (after.row.phase == "after")
        steps = run.steps[before.step.position + 1 : end]
        return cls(run, before, after, tuple(x for x in steps if x.launch is not None))

    @property
    def name(self) -> str:
        """The variable that had the value."""
        return self.after.row.arg

    @property
    def is_open(self) -> bool:
        """Whether a run that records the value after each launch would narrow it down."""
        return self.after.row.phase == "after" and len(self.between) > 1


def changed_values(dump: Dump) -> tuple[list[Changed], int]:
    """The values that changed, and how many were compared."""
    changed: list[Changed] = []
    compared = 0
    for run in filter(is_whole, dump.runs):
        found: dict[str, Changed] = {}
        for before, after in pairs(run):
            same = same_bits(run, before.row, after.row)
            compared += same is not None
            if same is False:
                found.setdefault(after.row.arg, Changed.of(run, before, after))
                if after.row.phase == "before" or len(found) == _MOST_FINDINGS:
                    break  # later differences may follow from this one
        changed += found.values()
    return changed, compared


def examine_corruption(dump: Dump, watched: Dump | None = None) -> Examined:
    """Findings for launches that received another value than was written. `watched` is the dump of
    another run, in which the values that changed were recorded after each launch."""
    changed, compared = changed_values(dump)
    others = () if watched is None else changed_values(watched)[0]
    again = {(one.run.name, one.name): one for one in others}
    findings = tuple(_finding(again.get((one.run.name, one.name), one)) for one in changed)
    ruled_out = ""
    if compared and not findings:
        verb = "was received as it had" if compared == 1 else "were received as they had"
        what = f"{counted(compared, 'value')} {verb} been written"
        ruled_out = f"values that change between launches: {what}"
    return Examined(findings, ruled_out)


def _finding(one: Changed) -> Finding:
    """What may have changed a value, and how certain that is."""
    run, before, after, name = one.run, one.before, one.after, one.name
    step, phase = after.step, after.row.phase
    first = "the inputs" if before.step.launch is None else f"#{before.step.launch}"
    only = one.between[0] if len(one.between) == 1 else None
    certainty: Certainty = "likely"
    index = None if only is None else only.launch
    launch = located(run)[0].get(index)
    memory = {name, dataflow.buffer_of(run.launch_row(index), name)}
    if launch is not None and any({x.name, x.buffer} & memory for x in launch.args):
        certainty = "shown"
        what = f"changes {name}, which it is only given to read"
    elif only is step:
        what = f"changes {name}, which it is not given"
    elif only is not None:
        what = (
            f"changes {name}, which it is not given: what launch {step} {step.kernel} receives "
            f"is not what {first} left there"
        )
    elif phase == "after":
        what = (
            f"reads {name}, which is not what {first} left there: it, or a launch in between, "
            "changed it, and none was to write it"
        )
    else:
        certainty = "shown"
        what = (
            f"receives {name} otherwise than {first} left it, and no launch in between was "
            "given that memory"
        )
    had = {"inputs": "left", "before": "received", "after": "left"}
    sides = ((first, before.row), (step, after.row))
    text = [f"{name} as {who} {had[row.phase]} it: {statistics(row)}" for who, row in sides]
    others: tuple[RunStep, ...] = ()
    if before.step is not step:
        others = one.between[:_NAMED]
        names = ", ".join(f"#{x.launch} {x.kernel}" for x in others)
        text.append(f"launches in between: {names or 'none'}")
    shown = "shown by the values that were recorded on both sides"
    indices = tuple(x.launch for x in others if x.launch is not None)
    at = only or step
    return finding_at(
        run, at, "corrupted", what, shown, certainty, text=tuple(text), others=indices
    )
