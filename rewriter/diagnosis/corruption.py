"""Whether what launches received is what was written.

Each value is recorded where it is written, and once more where it is read. Where the two differ and
no launch in between was given that memory, something else wrote to it: a store out of bounds of
another launch, memory that was freed or reused too early, or a kernel that still ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rewriter.core.text import counted
from rewriter.diagnosis.evidence import located
from rewriter.diagnosis.findings import Certainty, Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.dump import dataflow, saved
from rewriter.dump.documents import LaunchRow
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import wrapper_of

_MOST = 1 << 26  # elements that are compared


@dataclass(frozen=True)
class _Seen:
    """A value as it was recorded last: by which step, and its row."""

    step: RunStep
    row: TensorRow


def examine_corruption(dump: Dump) -> Examined:
    """The launches that received something else than what was written there."""
    findings, compared = [], 0
    for run in filter(_is_whole, dump.runs):
        for before, step, row in _pairs(run):
            same = _equal(run, before.row, row)
            compared += same is not None
            if same is False:
                findings.append(_finding(run, before, step, row))
                break  # what comes after it follows from it
    ruled_out = ""
    if compared and not findings:
        ruled_out = (
            f"values that change between launches: {counted(compared, 'value')} were received as "
            "they had been written"
        )
    return Examined(tuple(findings), ruled_out)


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
        expressions = {one.name: one.expr for one in launch.args} if launch is not None else {}
        written = set()
        for row in rows:
            name = row.arg
            root = roots[name]
            is_read = row.phase == "after" and row.role == "in" and root not in writes
            if is_read and name in given and root not in waits and _alike(given[name], row):
                yield _Seen(step, given[name]), step, row
            # A view of it may show a part: only whole variables are told by their names.
            if expressions.get(name, name) != name:
                if row.role != "in":
                    written.add(root)
                continue
            key = _first(renamed, name)
            known = last.get((scope, key)) or last.get(("", key))
            if (
                row.phase == "before"
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
            if row.phase == "after" and expressions.get(row.arg, row.arg) == row.arg:
                last[scope, _first(renamed, row.arg)] = _Seen(step, row)


def _root(facts: LaunchRow, name: str) -> str:
    variable = dataflow.variable(name)
    return facts.buffers.get(variable, variable)


def _text(run: RunDump) -> list[str]:
    wrapper = wrapper_of(run)
    return [] if wrapper is None else wrapper.source.decode("utf-8", "replace").split("\n")


def _renamed(text: list[str]) -> dict[str, str]:
    """Which buffer each one took the memory of as a whole: `buf5 = buf4; del buf4  # reuse`."""
    found = re.findall(r"(?m)^\s*(?:auto )?(\w+) = (?:std::move\()?(\w+)\)?;", "\n".join(text))
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


def _finding(run: RunDump, before: _Seen, step: RunStep, row: TensorRow) -> Finding:
    first = "the inputs" if before.step.launch is None else f"#{before.step.launch}"
    received = f"as {step} left it" if before.step is step else f"as {step} received it"
    between = [
        one for one in run.steps[before.step.position + 1 : step.position] if one.launch is not None
    ]
    names = ", ".join(f"#{one.launch} {one.kernel}" for one in between[:6]) or "none"
    only = between[0] if len(between) == 1 else None
    certainty: Certainty
    if before.step is step:
        place, kernel, certainty = step, step.kernel, "shown"
        what = f"changes {row.arg}, which it is only given to read"
    elif only is not None:
        place, kernel = only, only.kernel
        what = (
            f"changes {row.arg}, which it is not given: what launch {step} {step.kernel} receives "
            f"is not what {first} left there"
        )
        certainty = "likely"
    else:
        place, kernel = step, step.kernel
        what = (
            f"receives {row.arg} otherwise than {first} left it, and no launch in between was "
            "given that memory"
        )
        certainty = "shown"
    facts = run.launch_row(place.launch)
    return Finding(
        "corrupted",
        what,
        "shown by the values that were recorded on both sides",
        certainty,
        run.artifact,
        run.name,
        place.launch,
        place.iteration,
        kernel,
        facts.line,
        tuple(run.names.lines.get(-1 if place.launch is None else place.launch, ())),
        (
            f"{row.arg} as {first} {'received' if before.step is step else 'left'} it: "
            f"{_words(before.row)}",
            f"{row.arg} {received}: {_words(row)}",
            *([] if before.step is step else [f"launches in between: {names}"]),
        ),
        tuple(one.launch for one in between[:6] if one.launch is not None),
    )


def _words(row: TensorRow) -> str:
    from rewriter.diagnosis.verdict_text import statistics

    return statistics(row)
