"""Finds what to tell about a run: where NaN and infinities begin, values grow, or the run ended.

Findings are sentences for people; a "finding" is a fault, a "note" may be one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from rewriter.core.dtypes import LARGEST, short_dtype
from rewriter.core.text import counted, of_elements, some
from rewriter.diagnosis.findings import Finding
from rewriter.dump.allowed import Allowed
from rewriter.dump.rows import NonFinite, TensorRow
from rewriter.report.types import (
    CallOverview,
    ReportedFinding,
    ReportedLaunch,
    ReportedRun,
    ReportedValue,
)

# The types that a network overflows. Of the others, masks hold the largest values.
_NARROW = ("float16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")
_NEAR = 0.5  # of the largest value
_JUMP = 1000.0  # growth of the magnitude in one launch that is worth a note
_LISTED = 5
_SHOWN = 3  # lines of the evidence of a diagnosis

_NO_RESULT = "Nothing that the call returns or updates has one"
NON_FINITE = ("nan", "inf", "nan-again", "inf-again")
_WORDS = {"nan": "NaN", "inf": "Infinity"}


def of_run(
    run: str,
    launches: Sequence[ReportedLaunch],
    *,
    cut: bool,
    overflow: tuple[ReportedLaunch, ReportedLaunch] | None,
    absorbed: Collection[NonFinite],
    allowed: Allowed,
) -> tuple[ReportedFinding, ...]:
    """The findings of one run, faults first. `cut` says that its last line is incomplete,
    `overflow` which launch made infinities that another one turned into the first NaN, `absorbed`
    of which no result has any that a launch computed. What is `allowed` is no finding."""
    nan = _non_finite(run, launches, "nan", allowed)
    overflows = list(_overflow(run, launches, *overflow)) if overflow else []
    if "nan" in absorbed:
        nan, overflows = (
            [_without_result(found) for found in nan],
            [_noted(found) for found in overflows],
        )
    infinities = _non_finite(run, launches, "inf", allowed)
    if overflow is not None:
        infinities = [found for found in infinities if found.launch is not overflow[0]]
    has_nan = any(found.severity == "finding" for found in nan)
    found = [
        *_ended(run, launches, cut),
        *overflows,
        *nan,
        *(
            _noted(found) if has_nan or "inf" in absorbed or _is_constant(found) else found
            for found in infinities
        ),
        *_near_overflow(run, launches),
        *_jump(run, launches),
        *_unmeasured(run, launches),
        *_files(run, launches),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "finding"))


def of_diagnosis(
    run: str, launches: Sequence[ReportedLaunch], diagnosed: Sequence[Finding]
) -> Iterator[ReportedFinding]:
    """What a diagnosis found of launches of this run, but for what the values show themselves."""
    at = {(x.place.launch, x.place.iteration): x for x in launches if x.is_launch}
    for finding in diagnosed:
        if finding.run in (run, "") and finding.kind not in ("nan", "crash", "hang"):
            launch = at.get((finding.launch, finding.iteration))
            what = sentence(finding.headline)
            shown = "; ".join(x.strip() for x in finding.text[:_SHOWN])
            kind = "wrong" if finding.kind == "differs" else finding.kind
            found = ReportedFinding(
                kind, "finding", f"{what} {shown}".strip(), run, launch, short=what
            )
            yield replace(found, severity="note") if finding.certainty == "possible" else found


def merged(per_run: Iterable[Sequence[ReportedFinding]]) -> tuple[ReportedFinding, ...]:
    """The findings of several runs: one that many share is there once, with their number."""
    first: dict[tuple[object, ...], ReportedFinding] = {}
    for findings in per_run:
        for finding in findings:
            where = finding.launch
            place = (where and where.place.launch, where and where.kernel)
            key = (finding.kind, finding.severity, *place)
            if key in first:
                first[key] = replace(first[key], times=first[key].times + 1)
            else:
                first[key] = finding
    return tuple(sorted(first.values(), key=lambda finding: finding.severity != "finding"))


def verdict(
    findings: Sequence[ReportedFinding],
    runs: Sequence[ReportedRun],
    calls: Sequence[CallOverview] = (),
) -> str:
    """One sentence for the top of the page; `calls` are all of the dump, where `runs` are not."""
    total = sum(call.launches for call in calls) or sum(run.count for run in runs)
    what = counted(total, "launch", grouped=True)
    if len(runs) > 1 or calls:
        what += f" in {len(calls) or len(runs):,} runs"
    if faults := [finding for finding in findings if finding.severity == "finding"]:
        first = faults[0]
        nan = next((finding for finding in faults if finding.kind == "nan"), None)
        if first.kind == "inf" and nan is not None:
            # Infinities of an earlier call that became no NaN are not what the verdict is about.
            first = next(finding for finding in faults if finding.run == nan.run)
        return first.short or first.text
    if not any(
        measured(step.results) or measured(step.read) for run in runs for step in run.launches
    ):
        return f"{what}, no values recorded."
    if skipped := next((x for x in findings if x.kind == "skipped"), None):
        return skipped.text
    if nan := next((x for x in findings if x.kind == "nan"), None):
        return f"{nan.short} {_NO_RESULT}."
    if infinite := next((x for x in findings if x.kind == "inf" and x.launch is not None), None):
        return f"No NaN in what was recorded of {what}; {infinite.short.rstrip('.')}, as masks do."
    return f"No NaN and no infinity in what was recorded of {what}."


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def measured(values: Iterable[ReportedValue]) -> list[TensorRow]:
    """The rows of those with statistics."""
    return [row for value in values if (row := value.measured) is not None]


def total(values: Iterable[ReportedValue], what: NonFinite) -> int:
    """How many elements are NaN ("nan") or infinite ("inf")."""
    return sum(row.count(what) for row in measured(values))


def magnitude(rows: Iterable[TensorRow]) -> float | None:
    """The largest absolute value of several tensors."""
    return max((size for row in rows if (size := row.magnitude) is not None), default=None)


def _ended(run: str, launches: Sequence[ReportedLaunch], cut: bool) -> list[ReportedFinding]:
    last = launches[-1] if launches else None
    if last is not None and last.unfinished:
        if not any(value.row.phase == "after" for value in last.values):
            text = f"The record ends inside {last}: it was running when the program stopped."
        else:
            text = f"The record ends inside {last}: what it wrote is not there in full."
        return [ReportedFinding("unfinished", "finding", text, run, last)]
    if cut:
        where = "in its first line" if last is None else f"in the line after {last}"
        text = f"The record is cut short {where}: what followed is lost."
        return [ReportedFinding("cut", "finding", text, run, last)]
    return []


def _holds(launch: ReportedLaunch, what: NonFinite, allowed: Allowed) -> bool:
    """Whether a launch wrote such values, other than those that are allowed there."""
    kernel = launch.kernel if launch.is_launch else ""
    rows = (row for row in measured(launch.results) if row.count(what))
    return any(not allowed.covers(kernel, row.arg) for row in rows)


def _non_finite(
    run: str, launches: Sequence[ReportedLaunch], what: NonFinite, allowed: Allowed
) -> list[ReportedFinding]:
    """Where the first are, and where more begin."""
    word = _WORDS[what]
    holders = [launch for launch in launches if _holds(launch, what, allowed)]
    readers = (launch for launch in launches if total(launch.read, what))
    reader, first = next(readers, None), holders[0] if holders else None
    findings = []
    writer = next((launch for launch in launches if total(launch.results, what)), None)
    if reader and (writer is None or reader.position < writer.position):
        # Nobody saw it written: by a launch without probes, or in an input that was not recorded.
        short = f"{word} is first seen in what {reader} reads"
        text = f"{short}: {_holding(reader.read, what)}; what wrote it was not recorded."
        findings.append(ReportedFinding(what, "finding", text, run, reader, short=f"{short}."))
    if first is not None:
        short, text = _begins(launches, first, what)
        if len(holders) > 1:
            reached = counted(len(holders) - 1, "later launch", "later launches", grouped=True)
            text += f" {reached} wrote {'it' if what == 'nan' else 'one'}, too."
        findings.append(ReportedFinding(what, "finding", text, run, first, short=f"{short}."))
    again = [
        launch
        for launch in holders[1:]
        if measured(launch.read) and not total(launch.read, "nan") + total(launch.read, "inf")
    ]
    if again:
        named = some([*map(str, again)], _LISTED)
        text = f"{word} begins anew, from finite inputs, at {named}."
        findings.append(ReportedFinding(f"{what}-again", "finding", text, run, again[0]))
    return findings


def _overflow(
    run: str, launches: Sequence[ReportedLaunch], first: ReportedLaunch, maker: ReportedLaunch
) -> list[ReportedFinding]:
    """Infinities that became NaN: the earlier of the two is the cause."""
    _, text = _begins(launches, first, "inf")
    text += f" {maker} read them, and no NaN, and wrote the first NaN."
    short = f"Infinities of {first} become NaN at {maker}."
    return [ReportedFinding("inf", "finding", text, run, first, short=short)]


def _noted(finding: ReportedFinding) -> ReportedFinding:
    """Infinities that nothing turned into NaN, as a mask has them, are no fault by themselves."""
    return replace(finding, severity="note")


def _without_result(finding: ReportedFinding) -> ReportedFinding:
    """NaN that get into nothing which a call returns or updates are no fault by themselves."""
    return replace(_noted(finding), text=f"{finding.text} {_NO_RESULT}.")


def _is_constant(finding: ReportedFinding) -> bool:
    """Whether infinities were not computed: they came in, or their launch reads no such number."""
    return finding.launch is not None and not finding.launch.computes


def _begins(
    launches: Sequence[ReportedLaunch], first: ReportedLaunch, what: NonFinite
) -> tuple[str, str]:
    """The text about the first launch that writes NaN or infinities, short and in full."""
    word, tensors = _WORDS[what], _holding(first.results, what)
    if not first.is_launch:
        short = f"{word} is in the inputs of the call"
        return short, f"{short}: {tensors}."
    short = f"{word} first appears at {first}"
    return short, f"{short}: {tensors}; {_given(launches, first, what)}."


def _holding(values: Sequence[ReportedValue], what: NonFinite) -> str:
    parts = [
        f"{of_elements(count, row.size)} of {value.in_model or row.arg}"
        for value in values
        if (row := value.measured) is not None and (count := row.count(what))
    ]
    return some(parts, _LISTED)


def _given(launches: Sequence[ReportedLaunch], first: ReportedLaunch, what: NonFinite) -> str:
    read = first.read
    if total(read, what):
        held = "NaN" if what == "nan" else "infinities"
        return f"its inputs hold {held}, {_holding(read, what)}"
    if what == "nan" and total(read, "inf"):
        return f"what it read had none, but infinities ({_holding(read, 'inf')})"
    if what == "inf" and total(read, "nan"):
        return f"what it read had none, but NaN ({_holding(read, 'nan')})"
    if measured(read):
        return "what it read had none"
    recorded = any(measured(launch.results) for launch in launches[: first.position])
    return "what it read was not recorded" + (
        ", and nothing recorded earlier had any" if recorded else ""
    )


def _near_overflow(run: str, launches: Sequence[ReportedLaunch]) -> list[ReportedFinding]:
    """The result that comes nearest to the largest value of its type."""
    nearest: tuple[float, ReportedLaunch, TensorRow] | None = None
    for launch in launches:
        for row in measured(launch.results) if launch.is_launch else ():
            share = (row.magnitude or 0.0) / LARGEST[row.dtype] if row.dtype in _NARROW else 0.0
            if share >= _NEAR and (nearest is None or share > nearest[0]):
                nearest = (share, launch, row)
    if nearest is None:
        return []
    share, launch, row = nearest
    text = (
        f"{row.arg} of {launch} comes to {share:.0%} of the largest {short_dtype(row.dtype)}, "
        f"{LARGEST[row.dtype]:g}."
    )
    return [ReportedFinding("near-overflow", "note", text, run, launch)]


def _jump(run: str, launches: Sequence[ReportedLaunch]) -> list[ReportedFinding]:
    """The launch that raised the magnitude most, if by much."""
    largest: tuple[float, ReportedLaunch, float, float] | None = None
    for launch in launches:
        if not launch.is_launch:
            continue
        before, after = magnitude(floating(launch.read)), magnitude(floating(launch.results))
        if before and after and (largest is None or after / before > largest[0]):
            largest = (after / before, launch, before, after)
    if largest is None or largest[0] < _JUMP:
        return []
    _, launch, before, after = largest
    text = (
        f"The largest jump in magnitude is at {launch}: "
        f"from max |x| {before:.4g} in what it read to {after:.4g} in what it wrote."
    )
    return [ReportedFinding("jump", "note", text, run, launch)]


def floating(values: Iterable[ReportedValue]) -> list[TensorRow]:
    """Those measured of floating-point and complex types: the size of an index is no magnitude."""
    return [row for row in measured(values) if row.is_floating]


def _unmeasured(run: str, launches: Sequence[ReportedLaunch]) -> list[ReportedFinding]:
    steps = [launch for launch in launches if launch.is_launch and not launch.unfinished]
    missing = [launch for launch in steps if not measured(launch.results)]
    if not missing or len(missing) == len(steps):
        return []
    of = counted(len(steps), "launch", grouped=True)
    text = f"Nothing was recorded of what {len(missing):,} of {of} wrote, the first {missing[0]}."
    return [ReportedFinding("unmeasured", "note", text, run, missing[0])]


def _files(run: str, launches: Sequence[ReportedLaunch]) -> list[ReportedFinding]:
    """Files that do not hold what was recorded."""
    wrong = [(launch, value) for launch in launches for value in launch.values if value.note]
    if not wrong:
        return []
    launch, value = wrong[0]
    more = f" The same of {len(wrong) - 1:,} more." if len(wrong) > 1 else ""
    text = f"{value.row.arg} of {launch} has no histogram: {value.note}.{more}"
    return [ReportedFinding("file", "note", text, run, launch)]
