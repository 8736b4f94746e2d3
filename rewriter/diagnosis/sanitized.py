"""What the runs of `rewriter sanitize` show, as findings; and what each check covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from rewriter.core.documents import Count
from rewriter.core.text import counted, of_elements, some
from rewriter.diagnosis.evidence import finding_at, located, piece_lines
from rewriter.diagnosis.fill_patterns import Filling
from rewriter.diagnosis.fills import (
    Difference,
    FillComparison,
    LeftUnwritten,
    UnwrittenRead,
)
from rewriter.diagnosis.findings import Certainty, Finding, FindingKind
from rewriter.diagnosis.returned import inputs_written, outputs_of
from rewriter.diagnosis.ruling import Examined
from rewriter.dump import dataflow, launched
from rewriter.dump.dataflow import NoResult
from rewriter.dump.reading import Dump, RunDump, open_dump
from rewriter.dump.rows import CoverageRow, MemoryRow, TensorRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of
from rewriter.locate.types import MemoryEvent
from rewriter.locate.vocabulary import kind_of

Check = Literal["bounds", "poison", "stale", "corrupt", "race"]
CHECKS: tuple[Check, ...] = ("bounds", "poison", "stale", "corrupt", "race")
_NAMED = 4
# What the numbers of a probe count.
_DONE = {
    "bounds": "buffers with guard bands",
    "poison": "buffers filled where they are allocated",
    "stale": "buffers filled where they are freed",
}
# Of one.
_ONE = {
    "buffers with guard bands": "buffer with guard bands",
    "buffers filled where they are allocated": "buffer filled where it is allocated",
    "buffers filled where they are freed": "buffer filled where it is freed",
    "launches compared": "launch compared",
    "values with a fingerprint": "value with a fingerprint",
}
_READS: Mapping[Filling, tuple[FindingKind, str]] = {
    "poison": ("unwritten", "computes from uninitialised memory"),
    "stale": ("stale", "computes from freed memory"),
    "bounds": ("bounds", "computes from memory outside of its buffers"),
}
_BY_FILLINGS = "shown by two runs that differ in what such memory is filled with"
_THE_SAME = (
    "reads of uninitialised memory are only found in calls that are the same in both runs: "
    "seed the random numbers of the program, such as by torch.manual_seed(0)"
)


@dataclass(frozen=True)
class Coverage:
    """What one check looked at, and what it could not look at: numbers by what they count."""

    check: Check
    covered: Mapping[str, Count] = field(default_factory=dict)
    left_out: Mapping[str, Count] = field(default_factory=dict)


def of_rows(dumps: Sequence[Dump], checks: set[Check]) -> Examined:
    """What the probes wrote to the dump: stores into the bands beside buffers."""
    stores: dict[object, list[tuple[RunDump, MemoryRow]]] = {}
    for dump in dumps:
        for run in dump.runs:
            for row in run.memory:
                if isinstance(row, MemoryRow):
                    key = (run.sha256, row.launch, row.probe, row.buffer, row.side)
                    stores.setdefault(key, []).append((run, row))
    if stores:
        runs = [(same[0], {run.name for run, _ in same}) for same in stores.values()]
        return Examined(tuple(_repeated(_of_row(*first), names) for first, names in runs))
    compared = sum(
        any(isinstance(x, CoverageRow) and x.probe == "bounds" and x.launches for x in run.memory)
        for dump in dumps[:1]
        for run in dump.runs
    )
    if "bounds" not in checks or not compared:
        return Examined()
    right = "stores outside of the buffers that the wrapper allocates: no band beside one changed"
    return Examined(ruled_out=f"{right} in {counted(compared, 'call')}")


def of_fills(
    compared: FillComparison,
    reads: Sequence[UnwrittenRead | LeftUnwritten],
    varying: Sequence[Difference] = (),
    unsteady: UnwrittenRead | None = None,
) -> Examined:
    """Launches that read uninitialised memory, and those that leave it in what the call returns.
    `varying` are not judged, since their results vary from run to run; `unsteady` is the first of
    them if nothing in its kernel explains why."""
    notes = tuple(f"not compared with the second filling: {why}" for why in compared.apart)
    if compared.apart and not reads:
        notes += (_THE_SAME,)
    if varying:
        run, launch, _ = varying[0].place
        them = f"{counted(len(varying), 'launch')}, the first of them #{launch} of {run}"
        notes += (f"not the same in two runs with the same filling, so not judged: {them}",)
    if unsteady is not None:
        return Examined((_of_unsteady(unsteady),), notes=notes)
    if reads:
        same: dict[object, list[UnwrittenRead | LeftUnwritten]] = {}
        for read in reads:
            name = "" if isinstance(read, UnwrittenRead) else read.name
            wrapper, launch = read.difference.pair.first.sha256, read.difference.place[1]
            same.setdefault((wrapper, launch, name), []).append(read)
        findings = []
        for first, *others in same.values():
            found = _of_read(first) if isinstance(first, UnwrittenRead) else _of_left(first)
            places = {finding.difference.place for finding in (first, *others)}
            findings.append(_repeated(found, places))
        return Examined(tuple(findings), notes=notes)
    carried = len(compared.differences) - len(varying)
    leave = "leaves" if carried == 1 else "leave"
    also = f"; {counted(carried, 'launch')} {leave} some of it as it is" if carried else ""
    verb = "computes" if compared.launches == 1 else "compute"
    ruled_out = (
        f"reads of uninitialised memory: {counted(compared.launches, 'launch')} of "
        f"{counted(compared.calls, 'call')} {verb} the same whatever it holds{also}"
    )
    return Examined(ruled_out=ruled_out if compared.calls else "", notes=notes)


def of_outputs(plain: Path, probed: Sequence[Path]) -> Examined:
    """Whether calls return, and leave in their inputs, what they do where no memory is filled."""
    known = [dict(_outputs(open_dump(path))) for path in (plain, *probed)]
    common = {key for key in known[0] if all(key in run and run[key][0] for run in known)}
    if not common:
        return Examined(notes=("what the calls return was not recorded: see the launches",))
    changed = [key for key in common if len({run[key][0] for run in known}) > 1]
    if changed:
        return Examined(notes=(f"outputs differ with what memory holds: {_named(changed)}",))
    unsure = {key for run in known for key in run if key not in common}
    unsure |= {key for key in common if len({run[key] for run in known}) > 1}
    unsure |= {key for key in common for run in known if not all(map(all, run[key]))}
    if unsure:
        rest = len(common - unsure)
        note = f"not known whether outputs changed of which not all was recorded: {_named(unsure)}"
        also = f"; the same in all runs: {counted(rest, 'output')}" if rest else ""
        return Examined(notes=(note + also,))
    number = len(common)
    same = "the output of the call is" if number == 1 else f"{number} outputs are"
    note = (
        f"outputs unchanged: {same} the same in all runs, bit by bit, whatever such memory holds; "
        "whether the values are right is not known"
    )
    return Examined(notes=(note,))


def _named(keys: Iterable[_Key]) -> str:
    return some([f"{name} of call {call}" for _, call, name in sorted(keys)], _NAMED)


def coverage(dumps: Sequence[Dump], checks: set[Check]) -> tuple[Coverage, ...]:
    """What each check looked at, over all calls of the runs."""
    covered: dict[str, Counter[str]] = {check: Counter() for check in CHECKS}
    left_out: dict[str, Counter[str]] = {check: Counter() for check in CHECKS}
    for probes, run in ((dump.manifest.probes, run) for dump in dumps for run in dump.runs):
        known = [x for x in run.memory if isinstance(x, CoverageRow) and x.probe in covered]
        for row in known:
            covered[row.probe][_DONE[row.probe]] += row.done
            covered[row.probe]["launches compared"] += row.launches or 0
            left_out[row.probe].update(row.why)
        if not known and run.steps:
            # The probes write what they did when a call ends.
            for check in _DONE.keys() & (probes or ()):
                left_out[check]["calls that did not end"] += 1
        if known and "bounds" in checks and (inputs := len(launched.tensors(run.inputs))):
            left_out["bounds"]["inputs and weights, which the caller allocates"] += inputs
        others = sum(kind_of(row.kind).allocates for row in run.facts.launches)
        if others:
            for check in ("bounds", "poison"):
                left_out[check]["results that a library allocates"] += others
        if "corrupt" in checks:
            values = [row for row in run.events() if isinstance(row, TensorRow)]
            covered["corrupt"]["values with a fingerprint"] += sum(bool(x.digest) for x in values)
            left_out["corrupt"]["values without one"] += sum(not x.digest for x in values)
    return tuple(
        Coverage(check, +covered[check], +left_out[check])
        for check in CHECKS
        if check in checks and (covered[check] or left_out[check])
    )


def share(dumps: Sequence[Dump], known: Sequence[Coverage], left: int = 0) -> Examined:
    """How many of the launches that ran were looked at: by the guard bands, if there are any, and
    with two fillings, but for those that are `left`."""
    ran = sum(dump.launches for dump in dumps)
    seen = [x.covered.get("launches compared", 0) for x in known if x.check == "bounds"]
    return Examined(checked=max(0, min([ran - left, *seen])), launches=ran)


def coverage_lines(known: Sequence[Coverage]) -> list[str]:
    """In words: a line for each check."""
    lines = []
    for check in known:
        ones = ((n, _ONE.get(what, what) if n == 1 else what) for what, n in check.covered.items())
        parts = [f"{number:,} {what}" for number, what in ones if number]
        rest = [f"{why} ({number:,})" for why, number in check.left_out.items() if number]
        without = f"; not: {', '.join(rest)}" if rest else ""
        lines.append(f"{check.check}: {', '.join(parts) or 'nothing'}{without}")
    return lines


def _repeated(finding: Finding, places: Set[object]) -> Finding:
    """The first finding about a launch, which stands for those in other calls and iterations."""
    if len(places) == 1:
        return finding
    again = f"the same {counted(len(places) - 1, 'time')} more, in later calls or turns of a loop"
    return replace(finding, text=(*finding.text, again))


def _of_row(run: RunDump, row: MemoryRow) -> Finding:
    facts = run.launch_row(row.launch)
    text = [f"{row.buffer}: {line}" for line in _life(_history(run), row.buffer, row.allocated)]
    side = "before" if row.side == "before" else "behind"
    where = f"{counted(row.distance, 'element')} {side}" if row.distance else f"directly {side}"
    value = f" {row.value}" if row.value else ""
    many = f"; {counted(row.count, 'element')} of the band in all" if row.count > 1 else ""
    what = f"stores{value} out of bounds: {where} {row.buffer}{many}"
    since = -1 if row.since is UNSET else row.since
    streams = {launch.index: launch.stream for launch in located(run)[0].values()}
    own = streams.get(row.launch)
    # Bands are compared on the stream of the launch, and others go on meanwhile.
    beside = [x for x, stream in streams.items() if own is not None and stream != own]
    between = range(since + 1, row.launch)
    for which, launches in (
        ("between this and the last comparison", between),
        ("on other streams, which may have run at the same time", beside),
    ):
        if launches:
            text.append(f"launches {which}: {', '.join(f'#{x}' for x in launches[:_NAMED])}")
    text += piece_lines(run)
    others = (*between, *beside)
    certainty: Certainty = "likely" if others else "shown"
    return Finding(
        "bounds", what, "shown by the memory beside it", certainty, run.artifact, run.name,
        row.launch, 0, facts.kernel or row.kernel, facts.line,
        run.names.lines.get(row.launch, ()), tuple(text), others,
    )  # fmt: skip


def _of_read(read: UnwrittenRead) -> Finding:
    run, step = read.difference.pair.first, read.difference.steps[0]
    history, nodes = _history(run), flow_of(run).nodes
    fillings = {filling for filling, _ in read.given.values()}
    order: tuple[Filling, ...] = ("stale", "poison")
    filling: Filling = next((each for each in order if each in fillings), "bounds")
    kind, what = _READS[filling]
    named = [name for name, (by, _) in read.given.items() if by == filling]
    if named:
        what += f": {', '.join(named[:_NAMED])}"
    text = [
        read.element,
        f"{of_elements(read.count, read.numel)} that it writes differ",
    ]
    for name, (by, count) in read.given.items():
        held = {"poison": "are uninitialised", "stale": "were freed", "bounds": "lie outside"}[by]
        text.append(f"{counted(count, 'element', grouped=True)} of {name} {held}")
        writer = nodes[step.position].writer(name) if by == "poison" else None
        if writer is not None and not (place := nodes[writer.step].place).is_inputs:
            text.append(
                f"      launch {place} writes {name} and left them out: the fault may be there"
            )
        text += (f"      {line}" for line in _life(history, name, None))
    return finding_at(run, step, kind, what, _BY_FILLINGS, text=tuple(text))


def _of_unsteady(one: UnwrittenRead) -> Finding:
    text = (
        one.element,
        f"{of_elements(one.count, one.numel)} that it writes differ",
        "its inputs were the same in both runs: it may return memory that it allocates and does "
        "not write, or keep a state",
    )
    run, step = one.difference.pair.first, one.difference.steps[0]
    what = "writes other values in each run, though its inputs are the same"
    return finding_at(run, step, "varies", what, "shown by two runs", "likely", text=text)


def _of_left(left: LeftUnwritten) -> Finding:
    run, step = left.difference.pair.first, left.difference.steps[0]
    of_all = of_elements(left.count, left.numel)
    held = {"poison": "it is uninitialised", "stale": "it was freed"}[left.filling]
    text = [
        f"{left.first} is the first: {held}",
        "the call returns it, and no launch writes it later",
    ]
    text += (f"{left.name}: {line}" for line in _life(_history(run), left.name, None))
    what = f"does not write {of_all} of {left.name}, which the call returns"
    return finding_at(run, step, "unwritten", what, _BY_FILLINGS, text=tuple(text))


_Key = tuple[str, int, str]  # of an output: the wrapper, the call and the name
# The fingerprints of what it holds, and of what it may hold; an empty one is not known.
_Fingerprints = tuple[tuple[str, ...], tuple[str, ...]]


def _outputs(dump: Dump) -> Iterator[tuple[_Key, _Fingerprints]]:
    """The fingerprints of what calls leave to their caller, by wrapper, call and name."""
    for run in dump.runs:
        flow = flow_of(run)
        last = dataflow.outputs(flow.nodes)
        if last is None:
            continue
        call = run.sha256, run.call_index or 0
        for name, returned in zip(run.facts.outputs[last.place.scope], last.returned, strict=True):
            if isinstance(returned, NoResult) and not returned.is_known:
                yield (*call, name), ((), ())
        for output in (*outputs_of(run, flow.nodes), *inputs_written(run, flow.nodes)):
            holds, may_hold = (
                tuple(row.digest if (row := flow.origin(source)) else "" for source in sources)
                for sources in (output.holds, output.may_hold)
            )
            yield (*call, output.name), (holds, may_hold)


def _history(run: RunDump) -> tuple[MemoryEvent, ...]:
    wrapper = wrapper_of(run)
    return () if wrapper is None else wrapper.located.memory


def _life(history: Sequence[MemoryEvent], buffer: str, allocated: int | None) -> Iterator[str]:
    """Where a buffer is allocated, its memory reused, and freed."""
    for event in history:
        if event.buffer != buffer and event.of != buffer:
            continue
        if allocated is not None and event.action == "allocate" and event.index != allocated:
            continue
        if event.action == "allocate":
            yield f"allocated in line {event.line}"
        elif event.action == "reuse":
            yield f"line {event.line}: {event.buffer} takes over the memory of {event.of}"
        else:
            yield f"freed in line {event.line}"
