"""Whether what launches received is what was written.

Each value is recorded where it is written, and once more where it is read: by each launch, or, with
`--args ends`, behind the last one. Where the two differ and no launch in between was to write that
memory, something else did: a store out of bounds of another launch, memory that was freed or reused
too early, or a kernel that still ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from rewriter.core.text import counted
from rewriter.core.types import Phase
from rewriter.diagnosis.evidence import located
from rewriter.diagnosis.findings import Certainty, Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.dump import dataflow, saved
from rewriter.dump.documents import LaunchRow
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.locate.types import Launch

_MOST = 1 << 26  # elements that are compared
_MOST_FINDINGS = 8  # of a call


@dataclass(frozen=True)
class _Seen:
    """A value as it was recorded last: by which step, and its row."""

    step: RunStep
    row: TensorRow


@dataclass(frozen=True)
class Changed:
    """A value that something wrote which was not to: it was `before`, and then `row` at `step`.
    `between` are the launches that may have done it: with one look at each end of a value, that at
    the second one, too."""

    run: RunDump
    before: _Seen
    step: RunStep
    row: TensorRow
    between: tuple[RunStep, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The call, and the variable."""
        return self.run.name, self.row.arg

    @property
    def is_range(self) -> bool:
        """Whether a look at it behind each launch would tell more."""
        return self.row.phase == "after" and len(self.between) > 1


def changed_values(dump: Dump) -> tuple[list[Changed], int]:
    """The values that changed, and how many were compared."""
    changed: list[Changed] = []
    compared = 0
    for run in filter(_is_whole, dump.runs):
        found: dict[str, Changed] = {}
        for before, step, row in _pairs(run):
            same = _equal(run, before.row, row)
            compared += same is not None
            if same is False:
                found.setdefault(row.arg, _changed(run, before, step, row))
                if row.phase == "before" or len(found) == _MOST_FINDINGS:
                    break  # what comes after it follows from it
        changed += found.values()
    return changed, compared


def examine_corruption(dump: Dump, watched: Dump | None = None) -> Examined:
    """The launches that received something else than what was written there; `watched` is of a
    further run, which looked at what changed behind each launch."""
    changed, compared = changed_values(dump)
    again = {} if watched is None else {one.key: one for one in changed_values(watched)[0]}
    findings, notes = [], []
    for one in changed:
        if one.key not in again and watched is not None and one.before.step.launch is None:
            # The start of a call may know it from an earlier one: whoever wrote it since, as no
            # write that torch knows of, is another program's.
            notes.append(f"{one.row.arg} of {one.run.name} did not change when watched: no finding")
            continue
        findings.append(_finding(again.get(one.key, one)))
    ruled_out = ""
    if compared and not findings:
        verb = "was received as it had" if compared == 1 else "were received as they had"
        what = f"{counted(compared, 'value')} {verb} been written"
        ruled_out = f"values that change between launches: {what}"
    return Examined(tuple(findings), ruled_out, notes=tuple(notes))


def _changed(run: RunDump, before: _Seen, step: RunStep, row: TensorRow) -> Changed:
    between: tuple[RunStep, ...] = (step,)
    if before.step is not step:
        last = step.position + (row.phase == "after")
        steps = run.steps[before.step.position + 1 : last]
        between = tuple(one for one in steps if one.launch is not None)
    return Changed(run, before, step, row, between)


def _is_whole(run: RunDump) -> bool:
    """Whether all launches of its wrapper were recorded, and all calls in it are known."""
    wrapper = wrapper_of(run)
    return (
        wrapper is not None
        and not wrapper.unrecognised
        and run.table.keys() >= {launch.index for launch in wrapper.launches}
    )


def _pairs(run: RunDump) -> Iterator[tuple[_Seen, RunStep, TensorRow]]:
    """What was recorded of a value last, and what a launch received, under one name of one scope,
    where nothing recorded wrote to that memory in between."""
    launches, _ = located(run)
    text = _text(run)
    renamed = _renamed(text)
    last: dict[tuple[str, str], _Seen] = {}
    waits: set[str] = set()
    for step in run.steps:
        facts = run.launch_row(step.launch)
        scope = "" if step.launch is None else facts.scope
        rows = dataflow.tensors(run.rows(step))
        roots = {row.arg: _root(facts, row.arg) for row in rows}
        writes = {roots[row.arg] for row in rows if row.role != "in"}
        given = {row.arg: row for row in rows if row.phase == "before"}
        if facts.repeats:
            last.clear()  # names mean another value each time
            continue
        if facts.kind == "collective":  # what it is given arrives later
            waits.update(dataflow.variable(row.arg) for row in rows)
        launch = launches.get(-1 if step.launch is None else step.launch)
        views = _views(launch, facts)
        written = set()
        for row in rows:
            name = row.arg
            root = roots[name]
            is_read = row.phase == "after" and row.role == "in" and root not in writes
            if is_read and name in given and root not in waits and _alike(given[name], row):
                yield _Seen(step, given[name]), step, row
            # A view of it may show a part: only whole variables are told by their names.
            if (name, row.phase) in views:
                if row.role != "in":
                    written.add(root)
                continue
            # Of another function the same names are other variables.
            key = _first(renamed, name) if name in facts.buffers else name
            known = last.get((scope, key)) or last.get(("", key))
            is_end = is_read and name not in given and facts.kind != "custom_op"
            if (
                (row.phase == "before" or is_end)
                and known is not None
                and _alike(known.row, row)
                and root not in waits
                and not _updated(text, run, known.step, step, name)
            ):
                yield known, step, row
            if row.phase == "before" or step.launch is None:
                last[scope, key] = _Seen(step, row)
            if row.phase == "after" and row.role != "in":
                written.add(root)
        for seen in list(last):
            variable = dataflow.variable(seen[1])
            if {seen[1], facts.buffers.get(variable, variable)} & written:
                del last[seen]
        for row in rows:
            if row.phase == "after" and (row.arg, "after") not in views:
                name = row.arg
                key = _first(renamed, name) if name in facts.buffers else name
                last[scope, key] = _Seen(step, row)


def _views(launch: Launch | None, facts: LaunchRow) -> set[tuple[str, Phase]]:
    """The names, and phases, under which a launch is given views."""
    if launch is None:
        return set()
    found: set[tuple[str, Phase]] = set()
    given = {one.name for one in launch.args if not one.is_whole}
    handed: tuple[tuple[Phase, object], ...] = (("before", facts.before), ("after", facts.after))
    for phase, labels in handed:
        # What stands there without an expression is shown as a whole, however it was given.
        rows = labels if isinstance(labels, tuple) else ()
        whole = {name for _, name, *expression in rows if not expression}
        found |= {(name, phase) for name in given - whole}
    return found


def _root(facts: LaunchRow, name: str) -> str:
    variable = dataflow.variable(name)
    return facts.buffers.get(variable, variable)


def _text(run: RunDump) -> list[str]:
    wrapper = wrapper_of(run)
    return [] if wrapper is None else wrapper.source.decode("utf-8", "replace").split("\n")


def _renamed(text: list[str]) -> dict[str, str]:
    """Which buffer each one took the memory of as a whole: `buf5 = buf4; del buf4  # reuse`, or
    `buf1 = buf0`."""
    one = re.compile(r"(?m)^\s*(?:auto )?(\w+) = (?:std::move\()?(\w+)\)?(?:;|$)")
    found = one.findall("\n".join(text))
    return {name: before for name, before in found if name != before}


def _first(renamed: dict[str, str], name: str) -> str:
    """The name under which memory was allocated."""
    seen = {name}
    while (before := renamed.get(name)) is not None and before not in seen:
        seen.add(before)
        name = before
    return name


def _updated(text: list[str], run: RunDump, before: RunStep, step: RunStep, name: str) -> bool:
    """Whether a line in between, which is no launch, updates a buffer: `buf0.zero_()`."""
    first, last = run.launch_row(before.launch).line, run.launch_row(step.launch).line
    between = text[first:last]
    updates = re.compile(rf"\b{re.escape(name)}\b.*\w_\(|\w_\(.*\b{re.escape(name)}\b")
    return any(updates.search(line) for line in between)


def _alike(a: TensorRow, b: TensorRow) -> bool:
    return (a.dtype, a.shape, a.stride) == (b.dtype, b.shape, b.stride)


def _equal(run: RunDump, a: TensorRow, b: TensorRow) -> bool | None:
    """Whether two records are of the same bits; `None` where that cannot be told."""
    if a.digest and b.digest:
        return a.digest == b.digest
    if a.is_measured and b.is_measured and a.statistics != b.statistics:
        return False
    if not (a.file and b.file) or a.size > _MOST or not a.size:
        return None
    import torch

    tensors = []
    for row in (a, b):
        if (tensor := saved.load_row(run.path, row)) is None:
            return None
        tensors.append(tensor.contiguous().view(-1).view(torch.uint8))
    return bool(torch.equal(*tensors))


def _finding(one: Changed) -> Finding:
    run, before, step, row = one.run, one.before, one.step, one.row
    first = "the inputs" if before.step.launch is None else f"#{before.step.launch}"
    received = f"as {step} {'left' if row.phase == 'after' else 'received'} it"
    names = ", ".join(f"#{x.launch} {x.kernel}" for x in one.between[:6]) or "none"
    only = one.between[0] if len(one.between) == 1 else None
    place, certainty = only or step, "likely"
    if only is not None and _is_given(run, only, row.arg):
        certainty = "shown"
        what = f"changes {row.arg}, which it is only given to read"
    elif only is step:
        what = f"changes {row.arg}, which it is not given"
    elif only is not None:
        what = (
            f"changes {row.arg}, which it is not given: what launch {step} {step.kernel} receives "
            f"is not what {first} left there"
        )
    elif row.phase == "after":
        what = (
            f"reads {row.arg}, which is not what {first} left there: it, or a launch in between, "
            "changed it, and none was to write it"
        )
    else:
        certainty = "shown"
        what = (
            f"receives {row.arg} otherwise than {first} left it, and no launch in between was "
            "given that memory"
        )
    facts = run.launch_row(place.launch)
    return Finding(
        "corrupted",
        what,
        "shown by the values that were recorded on both sides",
        cast("Certainty", certainty),
        run.artifact,
        run.name,
        place.launch,
        place.iteration,
        place.kernel,
        facts.line,
        tuple(run.names.lines.get(-1 if place.launch is None else place.launch, ())),
        (
            f"{row.arg} as {first} {'received' if before.row.phase == 'before' else 'left'} it: "
            f"{_words(before.row)}",
            f"{row.arg} {received}: {_words(row)}",
            *([] if before.step is step else [f"launches in between: {names}"]),
        ),
        () if before.step is step else tuple(x.launch or 0 for x in one.between[:6]),
    )


def _is_given(run: RunDump, step: RunStep, name: str) -> bool:
    """Whether a launch is given the memory of a variable."""
    wrapper = wrapper_of(run)
    if wrapper is None or step.launch is None:
        return False
    buffer = _root(run.launch_row(step.launch), name)
    known = (x.args for x in wrapper.located.launches if x.index == step.launch)
    return any({x.name, x.buffer} & {name, buffer} for args in known for x in args)


def _words(row: TensorRow) -> str:
    from rewriter.diagnosis.verdict_text import statistics

    return statistics(row)
