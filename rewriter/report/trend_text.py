"""Trends as a table: for the terminal, and for the page with a drawing for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.core.text import counted, figure
from rewriter.diagnosis.history import ordinal
from rewriter.report.trends import Trend, Trends, levels, sparkline

_WIDTH, _HEIGHT = 160, 24
_SHOWN = 40  # rows on a terminal
_DRAWN = 200  # in a page
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


def table(found: Trends) -> list[list[str]]:
    """The rows that vary most, with a head."""
    shown = found.most(_SHOWN)
    several = len(found.calls) > 1
    head = ["launch", "kernel", "model", "value", title(found), "first", "last", "min", "max"]
    rows = [[*([] if not several else ["graph"]), *head]]
    for trend in shown:
        launch = [f"#{trend.launch}", trend.kernel, trend.model]
        cells = [*launch, trend.arg, sparkline(trend.values), *_figures(trend)]
        rows.append([*([found.titles[trend.artifact]] if several else []), *cells])
    return rows


def drawn(found: Trends) -> list[dict[str, Any]]:
    """The rows of the page, each with the path of its drawing."""
    return [
        {
            "graph": found.titles[trend.artifact],
            "model": trend.model,
            "launch": trend.launch,
            "kernel": trend.kernel,
            "arg": trend.arg,
            "path": path(trend),
            "crosses": crosses(trend),
            "figures": _figures(trend),
        }
        for trend in found.most(_DRAWN)
    ]


def path(trend: Trend) -> str:
    """The line of a trend, in a box of 160 by 24."""
    points, pen = [], "M"
    heights = levels(trend.values, _WIDTH // 2)
    for at, level in enumerate(heights):
        if level is None:
            pen = "M"
            continue
        x = (at + 0.5) * _WIDTH / len(heights)
        points.append(f"{pen}{x:.1f} {2 + (1 - level) * (_HEIGHT - 4):.1f}")
        points += ["h0"] if pen == "M" else []  # one point alone is a dot
        pen = "L"
    return "".join(points)


def crosses(trend: Trend) -> str:
    """Marks where a value is not finite or is missing."""
    heights = levels(trend.values, _WIDTH // 8)
    return "".join(
        f"M{(at + 0.5) * _WIDTH / len(heights) - 3:.1f} {_HEIGHT / 2 - 3:g}l6 6m0 -6l-6 6"
        for at, level in enumerate(heights)
        if level is None
    )


def _figures(trend: Trend) -> list[str]:
    known = trend.known
    ends = [trend.values[0], trend.values[-1]]
    return [*map(figure, ends), figure(min(known, default=None)), figure(max(known, default=None))]
