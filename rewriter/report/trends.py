"""How one statistic of each launch goes on over the calls of a dump."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rewriter.core import parallel
from rewriter.core.documents import Count
from rewriter.core.dtypes import is_floating
from rewriter.core.printed import printed
from rewriter.core.text import counted, figure
from rewriter.core.types import TrendStatistic
from rewriter.diagnosis.history import ordinal
from rewriter.dump.light_rows import LightRow, Number, light_rows
from rewriter.dump.names import listed
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import finite

DEFAULT: TrendStatistic = "std"
SAMPLES = 256  # calls of a wrapper that are read
_LEAST = 3  # calls that have a trend
_NAMES = {"time": "time in µs", "magnitude": "max |x|", "nan": "NaN", "inf": "Inf"}
_SIZE = 1 << 16  # the work of a call, for `parallel`
_BARS, _CROSS, _COLUMNS = "▁▂▃▄▅▆▇█", "x", 40
_WIDE = 100.0  # from the smallest to the largest value: then the scale is that of the logarithm

_OF: dict[str, Callable[[LightRow], Number]] = {
    "std": lambda row: row.std,
    "mean": lambda row: row.mean,
    "min": lambda row: row.min,
    "max": lambda row: row.max,
    "magnitude": lambda row: row.magnitude,
    "nan": lambda row: row.nan,
    "inf": lambda row: row.inf,
}


@dataclass(frozen=True)
class Trend:
    """A value of a launch over calls; empty `arg` is the launch itself. `values` are `None` where
    the statistic is not finite, or there is none."""

    artifact: str
    launch: Count
    kernel: str
    arg: str
    values: tuple[float | None, ...]
    model: str = ""  # lines of the model that the launch computes, such as `model.py:9,10`

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def change(self) -> float:
        """How much it varies, against its size: 0 for what stays as it is."""
        known = self.known
        if not known:
            return 0.0
        largest = max(abs(min(known)), abs(max(known)))
        varies = (max(known) - min(known)) / largest if largest else 0.0
        return varies + (len(known) < len(self.values))


@printed("statistic rank calls total rows")
@dataclass(frozen=True)
class Trends:
    """The trends of the wrappers that `rank` called several times. `calls` are those that were
    read, of `total`, by wrapper; `titles` say which part of the model each is, and `spans` have the
    numbers of the first and the last call, from 1."""

    statistic: TrendStatistic
    rank: Count
    calls: Mapping[str, tuple[str, ...]]
    total: Mapping[str, Count]
    rows: tuple[Trend, ...]
    titles: Mapping[str, str]
    spans: Mapping[str, tuple[int, int]]

    def most(self, count: int) -> tuple[Trend, ...]:
        """Those that vary most, in the order of their launches."""
        changed = sorted((x for x in self.rows if x.change), key=lambda trend: -trend.change)
        chosen = set(map(id, changed[:count]))
        return tuple(trend for trend in self.rows if id(trend) in chosen)

    @property
    def title(self) -> str:
        """What is shown."""
        return f"{_NAMES.get(self.statistic, self.statistic)} over calls"

    def summary(self, shown: int) -> Iterator[str]:
        """What was read, and what is not shown."""
        for name, total in self.total.items():
            calls = self.calls[name]
            part = "" if len(calls) == total else f", {len(calls):,} of them read"
            first, last = map(ordinal, self.spans[name])
            many = counted(total, "call", grouped=True)
            yield f"{self.titles[name]}: {many}{part}, the {first} to the {last}"
        if same := sum(not trend.change for trend in self.rows):
            yield f"{counted(same, 'value', grouped=True)} the same in all calls"
        if left := len(self.rows) - same - shown:
            yield f"{left:,} that vary less are not shown"

    def table(self, most: int) -> list[list[str]]:
        """The rows that vary most, below a head. The last cells are the trend, and four figures."""
        several = len(self.calls) > 1
        head = ["launch", "kernel", "model", "value", self.title, "first", "last", "min", "max"]
        rows = [["graph"] * several + head]
        for trend in self.most(most):
            ends = [trend.values[0], trend.values[-1]]
            extremes = [min(trend.known, default=None), max(trend.known, default=None)]
            cells = [f"#{trend.launch}", trend.kernel, trend.model, trend.arg]
            cells += [sparkline(trend.values), *map(figure, ends + extremes)]
            rows.append([self.titles[trend.artifact]] * several + cells)
        return rows


def trends(runs: Sequence[RunDump], statistic: TrendStatistic) -> Trends:
    """Of the calls of the first rank, or of some from the first to the last where they are many."""
    rank = min((run.rank for run in runs), default=0)
    by_wrapper: dict[tuple[str, str, object, object], list[RunDump]] = {}
    for run in runs:
        if run.rank == rank:
            key = (run.artifact, run.sha256, run.facts.pid, run.copy)
            by_wrapper.setdefault(key, []).append(run)
    calls: dict[str, tuple[str, ...]] = {}
    total: dict[str, int] = {}
    titles: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    rows: list[Trend] = []
    for (artifact, *_), called in by_wrapper.items():
        if len(called) < _LEAST:
            continue
        name, number, again = artifact, 1, ""
        while name in calls:  # loaded again, or by another process
            number += 1
            again = f" ({number})"
            name = f"{artifact}{again}"
        titles[name] = (called[0].names.of_model or artifact) + again
        spans[name] = called[0].call or 1, called[-1].call or len(called)
        chosen = _sampled(called)
        calls[name], total[name] = tuple(run.name for run in chosen), len(called)
        rows += _of_wrapper(name, chosen, statistic)
    return Trends(statistic, rank, calls, total, tuple(rows), titles, spans)


def _sampled(runs: Sequence[RunDump]) -> list[RunDump]:
    if len(runs) <= SAMPLES:
        return list(runs)
    return [runs[at * (len(runs) - 1) // (SAMPLES - 1)] for at in range(SAMPLES)]


def _of_wrapper(name: str, runs: Sequence[RunDump], statistic: TrendStatistic) -> Iterator[Trend]:
    def work(run: RunDump) -> dict[tuple[int, str, str], float | None]:
        return dict(_values(run, statistic))

    found = list(parallel.each(work, runs, [_SIZE] * len(runs)))
    keys = dict.fromkeys(key for values in found for key in values)
    for key in sorted(keys, key=lambda key: key[0]):
        launch, kernel, arg = key
        lines = listed(runs[0].names.lines.get(launch, ()))
        yield Trend(name, launch, kernel, arg, tuple(values.get(key) for values in found), lines)


def _values(
    run: RunDump, statistic: TrendStatistic
) -> Iterator[tuple[tuple[int, str, str], float | None]]:
    """Of the first run of each launch in a call."""
    rows, _ = light_rows(run) or ([], False)
    for row in rows:
        if row.launch is None or row.iteration:
            continue
        if statistic == "time":
            if row.time is not None:
                yield (row.launch, row.kernel, ""), row.time.duration_us
        elif row.is_result and is_floating(row.dtype):
            yield (row.launch, row.kernel, row.arg), finite(_OF[statistic](row))


def levels(values: Sequence[float | None], width: int) -> list[float | None]:
    """The values as heights from 0 to 1, at most `width` of them; of neighbours the largest."""
    columns = min(width, len(values))
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    is_wide = low > 0 and high / low > _WIDE
    # Half of each: the distance of two numbers may be larger than any.
    scale: Callable[[float], float] = math.log if is_wide else (lambda x: x / 2)
    made: list[float | None] = []
    for column in range(columns):
        start, end = column * len(values) // columns, (column + 1) * len(values) // columns
        some = values[start:end]
        if any(value is None for value in some):
            made.append(None)
            continue
        value = max(x for x in some if x is not None)
        span = scale(high) - scale(low)
        made.append((scale(value) - scale(low)) / span if span else 0.0)
    return made


def sparkline(values: Sequence[float | None]) -> str:
    """The values in one line of text; a cross where one is not finite or is missing."""
    top = len(_BARS) - 1
    return "".join(
        _CROSS if level is None else _BARS[round(level * top)] for level in levels(values, _COLUMNS)
    )
