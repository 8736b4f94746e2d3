"""What is worth saying of a run: where NaN and infinities begin, where values grow, where it ended.

Findings are sentences for people; a "finding" is a fault, a "note" may be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rewriter.core import text as words
from rewriter.core.dtypes import LARGEST
from rewriter.report.types import Finding, ReportedLaunch, ReportedRun, ReportedValue

# The types that a network overflows. Of the others, masks hold the largest values.
_NARROW = {
    "f16": LARGEST["float16"],
    "f8e4m3fn": LARGEST["float8_e4m3fn"],
    "f8e4m3fnuz": LARGEST["float8_e4m3fnuz"],
    "f8e5m2": LARGEST["float8_e5m2"],
}
_NEAR = 0.5  # of the largest value
_JUMP = 1000.0  # growth of the magnitude in one launch that is worth a note
_LISTED = 5

_WORDS = {"nan": "NaN", "inf": "Infinity"}


def of_run(
    run: str,
    launches: Sequence[ReportedLaunch],
    *,
    cut: bool = False,
    overflow: tuple[ReportedLaunch, ReportedLaunch] | None = None,
) -> tuple[Finding, ...]:
    """The findings of one run, faults first. `cut` says that its last line is incomplete,
    `overflow` which launch made infinities that another one turned into the first NaN."""
    nan = _non_finite(run, launches, "nan")
    infinities = _non_finite(run, launches, "inf")
    if overflow is not None:
        infinities = [found for found in infinities if found.launch is not overflow[0]]
    found = [
        *_ended(run, launches, cut),
        *(_overflow(run, launches, *overflow) if overflow else ()),
        *nan,
        *(_noted(found) if nan or _is_constant(found) else found for found in infinities),
        *_near_overflow(run, launches),
        *_jump(run, launches),
        *_unmeasured(run, launches),
        *_files(run, launches),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "finding"))


def merged(per_run: Iterable[Sequence[Finding]]) -> tuple[Finding, ...]:
    """The findings of several runs: one that many share is there once, with their number."""
    first: dict[tuple[object, ...], Finding] = {}
    for findings in per_run:
        for finding in findings:
            where = finding.launch
            key = (finding.kind, where and where.index, where and where.kernel)
            if key in first:
                first[key] = replace(first[key], times=first[key].times + 1)
            else:
                first[key] = finding
    return tuple(sorted(first.values(), key=lambda finding: finding.severity != "finding"))


def verdict(findings: Sequence[Finding], runs: Sequence[ReportedRun]) -> str:
    """One sentence for the top of the page."""
    total = sum(run.count for run in runs)
    what = counted(total, "launch", "launches")
    if len(runs) > 1:
        what += f" in {len(runs):,} runs"
    if faults := [finding for finding in findings if finding.severity == "finding"]:
        return faults[0].short or faults[0].text
    if not any(
        _measured(step.results) or _measured(step.read) for run in runs for step in run.launches
    ):
        return f"{what}, no values recorded."
    if infinite := next((x for x in findings if x.kind == "inf" and x.launch is not None), None):
        return f"No NaN in what was recorded of {what}; {infinite.short.rstrip('.')}, as masks do."
    return f"No NaN and no infinity in what was recorded of {what}."


def counted(number: int, one: str, many: str) -> str:
    return words.counted(number, one, many, grouped=True)


def total(readings: Iterable[ReportedValue], what: str) -> int:
    """How many elements are NaN ("nan") or infinite ("inf")."""
    return sum(
        getattr(reading.statistics, what) for reading in readings if reading.statistics is not None
    )


def magnitude(readings: Iterable[ReportedValue]) -> float | None:
    """The largest absolute value of several tensors."""
    known = [
        size
        for reading in readings
        if reading.statistics and (size := reading.statistics.magnitude) is not None
    ]
    return max(known, default=None)


def _ended(run: str, launches: Sequence[ReportedLaunch], cut: bool) -> list[Finding]:
    last = launches[-1] if launches else None
    if last is not None and last.unfinished:
        if not any(reading.phase == "after" for reading in last.readings):
            text = f"The record ends inside {last}: it was running when the program stopped."
        else:
            text = f"The record ends inside {last}: what it wrote is not there in full."
        return [Finding("unfinished", "finding", text, run, last)]
    if cut:
        where = "in its first line" if last is None else f"in the line after {last}"
        text = f"The record is cut short {where}: what followed is lost."
        return [Finding("cut", "finding", text, run, last)]
    return []


def _non_finite(run: str, launches: Sequence[ReportedLaunch], what: str) -> list[Finding]:
    """Where the first are, and where more begin."""
    word = _WORDS[what]
    holders = [launch for launch in launches if total(launch.results, what)]
    readers = (launch for launch in launches if total(launch.read, what))
    reader, first = next(readers, None), holders[0] if holders else None
    findings = []
    if reader and (first is None or reader.position < first.position):
        # Nobody saw it written: by a launch without probes, or in an input that was not recorded.
        short = f"{word} is first seen in what {reader} reads"
        text = f"{short}: {_holding(reader.read, what)}; what wrote it was not recorded."
        findings.append(Finding(what, "finding", text, run, reader, short=f"{short}."))
    if first is not None:
        short, text = _begins(launches, first, what)
        if len(holders) > 1:
            reached = counted(len(holders) - 1, "later launch", "later launches")
            text += f" {reached} wrote {'it' if what == 'nan' else 'one'}, too."
        findings.append(Finding(what, "finding", text, run, first, short=f"{short}."))
    again = [
        launch
        for launch in holders[1:]
        if _measured(launch.read) and not total(launch.read, "nan") + total(launch.read, "inf")
    ]
    if again:
        named = ", ".join(str(launch) for launch in again[:_LISTED])
        more = f", … ({len(again):,} in all)" if len(again) > _LISTED else ""
        text = f"{word} begins anew, from finite inputs, at {named}{more}."
        findings.append(Finding(f"{what}-again", "finding", text, run, again[0]))
    return findings


def _overflow(
    run: str, launches: Sequence[ReportedLaunch], first: ReportedLaunch, maker: ReportedLaunch
) -> list[Finding]:
    """Infinities that became NaN: the earlier of the two is the cause."""
    _, text = _begins(launches, first, "inf")
    text += f" {maker} read them, and no NaN, and wrote the first NaN."
    short = f"Infinities of {first} become NaN at {maker}."
    return [Finding("inf", "finding", text, run, first, short=short)]


def _noted(finding: Finding) -> Finding:
    """Infinities that nothing turned into NaN, as a mask has them, are no fault by themselves."""
    return replace(finding, severity="note")


def _is_constant(finding: Finding) -> bool:
    """Whether infinities were not computed: they came in, or their launch reads no such number."""
    return finding.launch is not None and not finding.launch.computes


def _begins(
    launches: Sequence[ReportedLaunch], first: ReportedLaunch, what: str
) -> tuple[str, str]:
    """The text about the first launch that writes NaN or infinities, short and in full."""
    word, tensors = _WORDS[what], _holding(first.results, what)
    if first.index is None:
        short = f"{word} is in the inputs of the call"
        return short, f"{short}: {tensors}."
    short = f"{word} first appears at {first}"
    return short, f"{short}: {tensors}; {_given(launches, first, what)}."


def _holding(readings: Sequence[ReportedValue], what: str) -> str:
    parts = [
        f"{getattr(reading.statistics, what):,} of "
        f"{counted(reading.statistics.numel, 'element', 'elements')} of {reading.name}"
        for reading in readings
        if reading.statistics is not None and getattr(reading.statistics, what)
    ]
    more = f" and {len(parts) - _LISTED} more" if len(parts) > _LISTED else ""
    return ", ".join(parts[:_LISTED]) + more


def _given(launches: Sequence[ReportedLaunch], first: ReportedLaunch, what: str) -> str:
    read = first.read
    if total(read, what):
        return f"it was given {'NaN' if what == 'nan' else 'infinities'}, " + _holding(read, what)
    if what == "nan" and total(read, "inf"):
        return f"what it read had none, but infinities ({_holding(read, 'inf')})"
    if what == "inf" and total(read, "nan"):
        return f"what it read had none, but NaN ({_holding(read, 'nan')})"
    if _measured(read):
        return "what it read had none"
    recorded = any(_measured(launch.results) for launch in launches[: first.position])
    return "what it read was not recorded" + (
        ", and nothing recorded earlier had any" if recorded else ""
    )


def _measured(readings: Sequence[ReportedValue]) -> bool:
    return any(reading.statistics is not None for reading in readings)


def _near_overflow(run: str, launches: Sequence[ReportedLaunch]) -> list[Finding]:
    """The result that comes nearest to the largest value of its type."""
    nearest: tuple[float, ReportedLaunch, ReportedValue] | None = None
    for launch in launches:
        for reading in launch.results if launch.index is not None else ():
            largest, size = _NARROW.get(reading.dtype), magnitude([reading])
            if largest and size is not None and (nearest is None or size / largest > nearest[0]):
                nearest = (size / largest, launch, reading)
    if nearest is None or nearest[0] < _NEAR:
        return []
    share, launch, reading = nearest
    text = (
        f"{reading.name} of {launch} comes to {share:.0%} of the largest {reading.dtype}, "
        f"{_NARROW[reading.dtype]:g}."
    )
    return [Finding("near-overflow", "note", text, run, launch)]


def _jump(run: str, launches: Sequence[ReportedLaunch]) -> list[Finding]:
    """The launch that raised the magnitude most, if by much."""
    largest: tuple[float, ReportedLaunch, float, float] | None = None
    for launch in launches:
        if launch.index is None:
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
    return [Finding("jump", "note", text, run, launch)]


def floating(readings: Sequence[ReportedValue]) -> list[ReportedValue]:
    """Those of floating-point and complex types: the size of an index is no magnitude."""
    return [
        reading
        for reading in readings
        if reading.dtype[:1] in ("f", "b", "c") and reading.dtype != "b8"
    ]


def _unmeasured(run: str, launches: Sequence[ReportedLaunch]) -> list[Finding]:
    steps = [launch for launch in launches if launch.index is not None and not launch.unfinished]
    missing = [launch for launch in steps if not _measured(launch.results)]
    if not missing or len(missing) == len(steps):
        return []
    of = counted(len(steps), "launch", "launches")
    text = f"Nothing was recorded of what {len(missing):,} of {of} wrote, the first {missing[0]}."
    return [Finding("unmeasured", "note", text, run, missing[0])]


def _files(run: str, launches: Sequence[ReportedLaunch]) -> list[Finding]:
    """Files that do not hold what was recorded."""
    wrong = [
        (launch, reading) for launch in launches for reading in launch.readings if reading.note
    ]
    if not wrong:
        return []
    launch, reading = wrong[0]
    more = f" The same of {len(wrong) - 1:,} more." if len(wrong) > 1 else ""
    text = f"{reading.name} of {launch} has no histogram: {reading.note}.{more}"
    return [Finding("file", "note", text, run, launch)]
