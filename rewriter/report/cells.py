"""The cells of the table of launches in a page, and of each value of a launch."""

from __future__ import annotations

from typing import NamedTuple

from rewriter.core.text import counted, figure
from rewriter.dump.rows import known
from rewriter.report.tensor_error import error_of
from rewriter.report.types import ReportedLaunch, ReportedRun, ReportedValue

_STATIC = 50  # rows in the page itself, for readers without JavaScript


class Column(NamedTuple):
    """A column of the table of launches; `key` is what the script calls it."""

    key: str
    label: str
    numeric: bool = False


COLUMNS = (
    Column("order", "#"),
    Column("kernel", "Kernel"),
    Column("kind", "Kind"),
    Column("nodes", "Source nodes"),
    Column("name", "Writes"),
    Column("type", "Type"),
    *(Column(x.lower(), x, True) for x in ("Min", "Max", "Mean", "Std", "NaN", "Inf")),
)
COMPARED = (
    *COLUMNS[:6],
    Column("state", "State"),
    Column("error", "Max |a - b|", True),
    Column("allowed", "Allowed", True),
    Column("mismatched", "Mismatched", True),
)


def rows(run: ReportedRun, columns: tuple[Column, ...]) -> list[list[tuple[Column, str]]]:
    """The first rows of the table, as the script makes them."""
    made: list[list[tuple[Column, str]]] = []
    for launch in run.launches:
        for cells in _launch_rows(launch):
            made.append([(column, cells.get(column.key, "")) for column in columns])
        if len(made) >= _STATIC:
            break
    return made[:_STATIC]


def _launch_rows(launch: ReportedLaunch) -> list[dict[str, str]]:
    facts = {
        "order": launch.label,
        "kernel": launch.kernel,
        "kind": launch.place.kind,
        "nodes": ", ".join(launch.place.source_nodes),
    }
    results, difference = launch.results, launch.difference
    if not launch.is_launch:
        values = results if difference is None else difference.tensors
        cells = {**facts, "name": counted(len(values), "value", grouped=True)}
        return [cells if difference is None else {**cells, "state": difference.state}]
    if difference is None:
        return [{**facts, **of_value(result)} for result in results] or [facts]
    return [
        {
            **facts,
            "name": tensor.name,
            "type": ReportedValue(tensor.a).type,
            "state": tensor.state,
            "error": number(how.error),
            "allowed": number(how.allowed),
            "mismatched": number(None if tensor.metrics is None else tensor.metrics.mismatched),
        }
        for tensor, how in ((result, error_of(result)) for result in difference.results)
    ] or [{**facts, "state": difference.state}]


def of_value(value: ReportedValue) -> dict[str, str]:
    cells = {
        "dump": value.dump,
        "phase": value.row.phase,
        "role": value.row.role,
        "name": value.row.arg,
        "expr": value.expr,
        "type": value.type,
        "value": value.value,
    }
    if (row := value.measured) is not None:
        cells |= {
            "min": number(known(row.min)),
            "max": number(known(row.max)),
            "mean": number(known(row.mean)),
            "std": number(known(row.std)),
            "nan": f"{row.count('nan'):,}",
            "inf": f"{row.count('inf'):,}",
        }
    return cells


def number(value: float | int | None) -> str:
    """Integers in full, in groups of three digits; floats with four significant ones."""
    return figure(value, grouped=True)
