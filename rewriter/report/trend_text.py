"""Trends as a table, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.core.text import counted, figure
from rewriter.diagnosis.history import ordinal
from rewriter.report.trends import Trend, Trends, sparkline

_SHOWN = 40  # rows on a terminal
_NAMES = {"time": "time in µs", "magnitude": "max |x|", "nan": "NaN", "inf": "Inf"}


def title(found: Trends) -> str:
    """What is shown."""
    return f"{_NAMES.get(found.statistic, found.statistic)} over calls"


def summary(found: Trends, shown: int) -> Iterator[str]:
    """What was read, and what is not shown."""
    for name, total in found.total.items():
        calls = found.calls[name]
        part = "" if len(calls) == total else f", {len(calls):,} of them read"
        first, last = map(ordinal, found.spans[name])
        many = counted(total, "call", grouped=True)
        yield f"{found.titles[name]}: {many}{part}, the {first} to the {last}"
    same = sum(not trend.change for trend in found.rows)
    if same:
        yield f"{counted(same, 'value', grouped=True)} the same in all calls"
    if left := len(found.rows) - same - shown:
        yield f"{left:,} that vary less are not shown"


def table(found: Trends, most: int = _SHOWN) -> list[list[str]]:
    """The rows that vary most, with a head. The last cells are the trend, and four figures."""
    shown = found.most(most)
    several = len(found.calls) > 1
    head = ["launch", "kernel", "model", "value", title(found), "first", "last", "min", "max"]
    rows = [[*([] if not several else ["graph"]), *head]]
    for trend in shown:
        launch = [f"#{trend.launch}", trend.kernel, trend.model]
        cells = [*launch, trend.arg, sparkline(trend.values), *_figures(trend)]
        rows.append([*([found.titles[trend.artifact]] if several else []), *cells])
    return rows


def _figures(trend: Trend) -> list[str]:
    known = trend.known
    ends = [trend.values[0], trend.values[-1]]
    return [*map(figure, ends), figure(min(known, default=None)), figure(max(known, default=None))]
