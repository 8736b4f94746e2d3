"""Draws a run as inline SVG: sizes or errors along its launches, on a log scale.

Colours and strokes are those of the page's style sheet. Nothing is told by colour alone: series
differ by their dashes and dots, NaN and infinities by the shape and the lane of their marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from rewriter.diagnosis.history import ordinal
from rewriter.dump.rows import NonFinite, finite
from rewriter.report import findings
from rewriter.report.tensor_error import worst_error
from rewriter.report.types import CallOverview, ReportedLaunch, ReportedRun, ReportedValue

WIDTH, _LEFT, _RIGHT, _HEIGHT, _BELOW = 960, 64, 16, 200, 40
_LEGEND, _LANE, _ZERO = 26, 18, 22  # heights of the rows above and below the scale
_COLUMNS = 440  # beyond so many launches a column shows the range and the median of several
_DOTTED = 120  # launches up to which each has a dot
_APART = 9  # between two marks of a lane
_CHARACTER = 6.8  # the width of one in a label, about
_MARKS, _TICKS = 3, 8
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """A line. `values` has one value for each launch, `None` where there is none; none is < 0."""

    name: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Lane:
    """Marks above the scale, for what has no place on it: "cross" or "triangle"."""

    name: str
    shape: str
    positions: Sequence[int]


@dataclass(frozen=True)
class PlotMark:
    """A vertical line with a label."""

    position: int
    text: str


@dataclass(frozen=True)
class Plot:
    """What is drawn for a run, or for many. `description` says the same in words. `runs` are the
    numbers of the runs that the positions stand for, empty where these are launches."""

    title: str
    description: str
    series: tuple[Series, ...]
    lanes: tuple[Lane, ...]
    marks: tuple[PlotMark, ...]
    labels: tuple[str, ...]
    runs: tuple[int, ...] = ()
    of: str = "launches"

    @property
    def axis(self) -> str:
        return f"{self.of}, in the order in which they ran"


def of_run(run: ReportedRun) -> Plot | None:
    """The plot of a run; `None` where it has no number to show."""
    launches = [launch for launch in run.launches if launch.is_launch]
    compared = any(launch.difference is not None for launch in launches)
    plot = _errors(run, launches) if compared else _magnitudes(run, launches)
    drawn = any(value is not None for series in plot.series for value in series.values)
    return plot if drawn or any(lane.positions for lane in plot.lanes) else None


def of_calls(calls: Sequence[CallOverview], numbers: Sequence[int], name: str) -> Plot | None:
    """How the calls of one wrapper went on: the largest magnitude of what each wrote. `numbers` are
    those of the runs in the report, empty where it has not all of them; `None` where there is no
    number to show."""
    largest = [call.magnitude for call in calls]
    lanes = (
        Lane("NaN", "cross", [at for at, call in enumerate(calls) if call.nan]),
        Lane("Inf", "triangle", [at for at, call in enumerate(calls) if call.inf]),
    )
    known = [value for value in largest if value is not None]
    if not known and not any(lane.positions for lane in lanes):
        return None
    size = f"max |x| from {min(known):.3g} to {max(known):.3g}" if known else "no values"
    return Plot(
        f"Magnitude over the calls of {name}",
        f"{findings.counted(len(calls), 'call', 'calls')}: {size}; {_with(lanes)}.",
        (Series("max |x| of what a call wrote", "main", largest),),
        tuple(lane for lane in lanes if lane.positions),
        (),
        tuple(f"{ordinal(x.call or at)} call, {x.run}" for at, x in enumerate(calls, 1)),
        tuple(numbers),
        "calls",
    )


def _magnitudes(run: ReportedRun, launches: Sequence[ReportedLaunch]) -> Plot:
    largest = [findings.magnitude(findings.floating(launch.results)) for launch in launches]
    spread = [_spread(launch) for launch in launches]
    lanes = _not_finite([launch.results for launch in launches])
    known = [value for value in largest if value is not None]
    size = f"max |x| from {min(known):.3g} to {max(known):.3g}" if known else "no values"
    count = findings.counted(len(launches), "launch", "launches")
    return Plot(
        "Magnitude of what each launch wrote",
        f"{count}: {size}; {_with(lanes)}.",
        (Series("max |x|", "main", largest), Series("standard deviation", "second", spread)),
        tuple(lane for lane in lanes if lane.positions),
        _marks(run, launches, ("nan", "inf", "unfinished", "cut")),
        tuple(map(str, launches)),
    )


def _not_finite(written: Sequence[Sequence[ReportedValue]]) -> tuple[Lane, ...]:
    """Where NaN and infinities were written."""
    kinds: tuple[tuple[str, str, NonFinite], ...] = (
        ("NaN", "cross", "nan"), ("Inf", "triangle", "inf")
    )  # fmt: skip
    return tuple(
        Lane(name, shape, [at for at, values in enumerate(written) if findings.total(values, of)])
        for name, shape, of in kinds
    )


def _errors(run: ReportedRun, launches: Sequence[ReportedLaunch]) -> Plot:
    worst = [launch.difference and worst_error(launch.difference) for launch in launches]
    errors = [each.error if each else None for each in worst]
    lanes = (
        Lane(
            "NaN, Inf",
            "cross",
            [at for at, step in enumerate(launches) if _state(step) == "non-finite"],
        ),
        Lane(
            "differs otherwise",
            "triangle",
            [
                at
                for at, step in enumerate(launches)
                if _state(step) == "structural"
                or (_state(step) == "numeric" and errors[at] is None)
            ],
        ),
    )
    known = [value for value in errors if value is not None]
    size = f"max |a - b| from {min(known):.3g} to {max(known):.3g}" if known else "no errors known"
    marks = _marks(run, launches, ("culprit",)) or _marks(run, launches, ("differs",))
    named = "".join(f" Marked: {mark.text}." for mark in marks)
    count = findings.counted(len(launches), "launch", "launches")
    return Plot(
        "Error of what each launch wrote",
        f"{count}: {size}; {_with(lanes)}.{named}",
        (
            Series("max |a - b|", "main", errors),
            Series(
                "allowed: atol + rtol · max |b|",
                "limit",
                [tensor.allowed if tensor else None for tensor in worst],
            ),
        ),
        tuple(lane for lane in lanes if lane.positions),
        marks,
        tuple(map(str, launches)),
    )


def _state(launch: ReportedLaunch) -> str:
    return launch.difference.state if launch.difference else ""


def _with(lanes: Sequence[Lane]) -> str:
    return ", ".join(f"{lane.name} at {len(lane.positions):,}" for lane in lanes)


def _spread(launch: ReportedLaunch) -> float | None:
    known = [
        abs(float(std))
        for row in findings.floating(launch.results)
        if (std := finite(row.std)) is not None
    ]
    return max(known, default=None)


def _marks(
    run: ReportedRun, launches: Sequence[ReportedLaunch], kinds: Sequence[str]
) -> tuple[PlotMark, ...]:
    where = {launch.position: at for at, launch in enumerate(launches)}
    words = {"nan": "first NaN", "inf": "first Inf", "unfinished": "ends", "cut": "ends"}
    marks = [
        PlotMark(
            where[finding.launch.position],
            f"{words.get(finding.kind, finding.kind)}: {finding.launch}",
        )
        for finding in run.findings
        if finding.kind in kinds and finding.launch and finding.launch.position in where
    ]
    return tuple(marks[:_MARKS])


def svg(plot: Plot, name: str) -> str:
    """The plot as an `<svg>`; `name` is unique in the page and starts its ids."""
    return "".join(_Drawing(plot, name).parts())


class _Drawing:
    """Lays out one plot, from above: legend, lanes, scale, zeros, axis."""

    def __init__(self, plot: Plot, name: str) -> None:
        self._plot, self._name = plot, name
        self._count = len(plot.labels)
        values = [v for series in plot.series for v in series.values if v is not None]
        positive = [value for value in values if value > 0]
        self._low = math.floor(math.log10(min(positive, default=1.0)))
        self._high = math.ceil(math.log10(max(positive, default=10.0)))
        if self._high == self._low:
            self._high += 1
        self._scaled = bool(positive)
        self._top = _LEGEND + _LANE * len(plot.lanes) + 6
        self._bottom = self._top + (_HEIGHT if self._scaled else 40)
        self._zero = self._bottom + (_ZERO if 0.0 in values else 0)
        self._height = self._zero + _BELOW

    def parts(self) -> Iterator[str]:
        plot, name = self._plot, self._name
        yield (
            f'<svg viewBox="0 0 {WIDTH} {self._height}" role="img" class="plot" '
            f'aria-labelledby="{name}-title {name}-desc" data-left="{_LEFT}" '
            f'data-right="{_RIGHT}" data-width="{WIDTH}" data-count="{self._count}" '
            f'data-runs="{",".join(map(str, plot.runs))}">'
            f'<title id="{name}-title">{escape(plot.title)}</title>'
            f'<desc id="{name}-desc">{escape(plot.description)}</desc>'
        )
        yield from self._axes()
        yield from self._legend()
        for at, lane in enumerate(plot.lanes):
            yield self._lane(lane, _LEGEND + _LANE * at + _LANE / 2)
        for series in plot.series:
            yield from self._line(series)
        for at, mark in enumerate(plot.marks):
            yield self._mark(mark, self._top + 14 + 16 * at)
        yield "</svg>"

    def _x(self, position: float) -> float:
        room = WIDTH - _LEFT - _RIGHT
        return _LEFT + room * ((position + 0.5) / max(self._count, 1))

    def _y(self, value: float) -> float:
        if value <= 0:
            return self._zero - 6
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._bottom - share * (self._bottom - self._top)

    def _axes(self) -> Iterator[str]:
        right = WIDTH - _RIGHT
        if self._scaled:
            step = max(1, math.ceil((self._high - self._low) / _TICKS))
            for power in range(self._low, self._high + 1, step):
                y = round(self._y(10.0**power), 1) if power > -308 else self._bottom
                yield (
                    f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
                    f'<text class="tick" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">'
                    f"{_power(power)}</text>"
                )
        if self._zero > self._bottom:
            yield (
                f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{self._zero - 6}" '
                f'y2="{self._zero - 6}"/>'
                f'<text class="tick" x="{_LEFT - 8}" y="{self._zero - 2}" '
                'text-anchor="end">0</text>'
            )
        yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{self._zero}" y2="{self._zero}"/>'
        taken = 0.0  # up to where labels stand; names of runs are too wide for each to have one
        for position in _round_positions(self._count):
            x = round(self._x(position), 1)
            yield f'<line class="axis" x1="{x}" x2="{x}" y1="{self._zero}" y2="{self._zero + 4}"/>'
            label = _cut(self._plot.labels[position].split(" ")[0], 12)
            half = len(label) * _CHARACTER / 2
            if x - half < taken:
                continue
            taken = x + half + _CHARACTER
            yield (
                f'<text class="tick" x="{x}" y="{self._zero + 17}" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
        yield (
            f'<text class="tick" x="{right}" y="{self._zero + 33}" text-anchor="end">'
            f"{self._plot.axis}</text>"
        )

    def _legend(self) -> Iterator[str]:
        x = _LEFT
        for series in self._plot.series:
            if all(value is None for value in series.values):
                continue
            yield (
                f'<path class="line {series.style}" d="M{x} 10h28"/>'
                f'<text class="label" x="{x + 34}" y="14">{escape(series.name)}</text>'
            )
            x += 34 + 7 * len(series.name) + 24

    def _lane(self, lane: Lane, y: float) -> str:
        draw = {"cross": "m-3.5 -3.5l7 7m0 -7l-7 7", "triangle": "m-4 3.5h8l-4 -7z"}[lane.shape]
        columns: list[int] = []
        for position in lane.positions:
            x = round(self._x(position))
            if not columns or x >= columns[-1] + _APART:
                columns.append(x)
        path = "".join(f"M{x} {y:g}{draw}" for x in columns)
        return (
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:g}" text-anchor="end">'
            f"{escape(lane.name.split()[0].strip(','))}</text>"
            f'<path class="mark {lane.shape}" d="{path}">'
            f"<title>{escape(lane.name)} at {len(lane.positions):,}</title></path>"
        )

    def _line(self, series: Series) -> Iterator[str]:
        if self._count > _COLUMNS:
            columns = list(self._columns(series.values))
            if series.style == "main":
                yield self._area(series, columns)
            points = [(x, median(column) if column else None) for x, column in columns]
        else:
            points = [(self._x(at), value) for at, value in enumerate(series.values)]
        path, pen = [], "M"
        for x, value in points:
            if value is None:
                pen = "M"
                continue
            # One point alone is a dot: a line without length, whose ends are round.
            path.append(f"{pen}{x:.1f} {self._y(value):.1f}{'h0' if pen == 'M' else ''}")
            pen = "L"
        yield f'<path class="line {series.style}" d="{"".join(path)}"/>'
        if self._count <= _DOTTED and series.style != "limit":
            for at, value in enumerate(series.values):
                if value is not None:
                    said = f"{self._plot.labels[at]}: {series.name} {value:.4g}"
                    yield (
                        f'<circle class="dot {series.style}" r="3" cx="{self._x(at):.1f}" '
                        f'cy="{self._y(value):.1f}"><title>{escape(said)}</title></circle>'
                    )

    def _columns(self, values: Sequence[float | None]) -> Iterator[tuple[float, list[float]]]:
        """The values of neighbouring launches, together."""
        for column in range(_COLUMNS):
            start = column * self._count // _COLUMNS
            end = (column + 1) * self._count // _COLUMNS
            known = [value for value in values[start:end] if value is not None]
            yield self._x((start + end - 1) / 2), known

    def _area(self, series: Series, columns: list[tuple[float, list[float]]]) -> str:
        """From the smallest to the largest of each column: no launch is lost among the others."""
        half = self._x(0.5 * self._count / _COLUMNS) - self._x(0)
        path = "".join(
            f"M{x - half:.1f} {self._y(max(column)) - 0.5:.1f}H{x + half:.1f}"
            f"V{self._y(min(column)) + 0.5:.1f}H{x - half:.1f}Z"
            for x, column in columns
            if column
        )
        return (
            f'<path class="area {series.style}" d="{path}">'
            f"<title>{escape(series.name)}: from the smallest to the largest</title></path>"
        )

    def _mark(self, mark: PlotMark, y: float) -> str:
        x = round(self._x(mark.position), 1)
        left = x > WIDTH * 0.6
        return (
            f'<line class="culprit" x1="{x}" x2="{x}" y1="{self._top}" y2="{self._zero}"/>'
            f'<text class="culprit" x="{x + (-6 if left else 6)}" y="{y}" '
            f'text-anchor="{"end" if left else "start"}">{escape(_cut(mark.text))}</text>'
        )


def _power(power: int) -> str:
    if 0 <= power <= 3:
        return str(10**power)
    return f"10{str(power).translate(_SUPERSCRIPT)}"


def _round_positions(count: int) -> range:
    """About ten round numbers below `count`."""
    step = next(
        (
            factor * 10**power
            for power in range(12)
            for factor in (1, 2, 5)
            if count <= 12 * factor * 10**power
        ),
        max(count, 1),
    )
    return range(0, count, step)


def _cut(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
