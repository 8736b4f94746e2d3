"""What the script of a page gets of a report: numbers of six digits, strings once, and no reading
that repeats another: 10,000 launches are a few megabytes then.

An object is a list of values, without names. `FIELDS` says which value stands where: rows are made
by it here, and the page has it for the script, which reads them by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rewriter.comparison.dumps.types import (
    Extreme,
    LaunchComparison,
    TensorComparison,
)
from rewriter.core.types import Json
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.rows import TensorRow, known
from rewriter.report.tensor_error import error_of
from rewriter.report.types import ReportedRun, ReportedValue, Tiles

TEXT = "text"  # the number of one of the strings
TEXTS = "texts"  # a list of those


def _fields(names: str, text: str = "", texts: str = "") -> dict[str, str]:
    """Fields in their order, and what is said of each: `""` of all that is no string."""
    how = {**dict.fromkeys(text.split(), TEXT), **dict.fromkeys(texts.split(), TEXTS)}
    return {name: how.get(name, "") for name in names.split()}


FIELDS: dict[str, dict[str, str]] = {
    "launch": _fields("fact iteration readings given difference"),
    "input": _fields("name step made", text="name made"),
    "fact": _fields(
        "index kernel kind scope line nodes origins source model computes layer",
        text="kernel kind scope nodes origins layer",
        texts="model computes",
    ),
    "reading": _fields("label statistics value file digest bins tiles"),
    "label": _fields(
        "phase role name type expr device dump numel magnitude",
        text="phase role name type expr device",
    ),
    "statistics": _fields("min max mean std nan inf"),
    "tiles": _fields("rows columns means wrong first tile"),
    "bins": _fields("low high counts left_out"),
    "difference": _fields(
        "state inputs blame moved only other reasons producers tensors",
        text="state inputs blame other",
        texts="reasons producers",
    ),
    "tensor": _fields(
        "name phase written state basis note error allowed estimated type metrics",
        text="name phase state basis note type",
    ),
    "metrics": _fields(
        "max_abs max_rel rms snr cosine ulp mismatched atol_needed rtol_needed nan_a nan_b inf"
    ),
    "extreme": _fields("error a b index"),
}
_ORDER = {kind: tuple(fields.items()) for kind, fields in FIELDS.items()}
_EXACT = 2**53  # integers beyond are no numbers of JavaScript's


class Strings(dict[Any, int]):
    """Numbers strings, or other values, from 0; the first is `empty`."""

    def __init__(self, empty: Any = "") -> None:
        super().__init__({empty: 0})

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class Tables:
    """What the runs of a page share, so that each has little of its own: strings, what is known of
    a launch and of an argument before it runs, and the sources of kernels."""

    def __init__(self) -> None:
        self.strings, self.sources = Strings(), Strings()
        self.facts, self.labels = Strings(()), Strings(())

    def json(self) -> Json:
        return {
            "fields": {kind: list(fields.items()) for kind, fields in FIELDS.items()},
            "strings": list(self.strings),
            "facts": list(self.facts),
            "labels": list(self.labels),
            "sources": list(self.sources),
        }

    def row(self, kind: str, /, **values: Any) -> list[Any]:
        """An object as the list of its values. Those that are left out come last."""
        made = []
        for name, how in _ORDER[kind]:
            if name not in values:
                break
            value = values[name]
            if how == TEXT:
                value = self.strings[value]
            elif how == TEXTS:
                value = tuple(self.strings[text] for text in value)
            made.append(value)
        assert len(made) == len(values), f"{kind} has other fields than {list(values)}"
        return made

    def of(self, kind: str, value: object) -> list[Any]:
        """A value whose attributes are the fields: numbers, lists of them, and extremes."""
        return self.row(kind, **{name: self._part(getattr(value, name)) for name in FIELDS[kind]})

    def _part(self, part: Any) -> Any:
        if isinstance(part, Extreme):
            return self.of("extreme", part)
        return [*map(_short, part)] if isinstance(part, tuple) else _short(part)


def compact(run: ReportedRun, tables: Tables) -> list[Any]:
    """The launches of a run for the page's script."""
    launches = []
    for launch in run.launches:
        place = launch.place
        fact = tables.row(
            "fact",
            index=place.launch,
            kernel=launch.kernel,
            kind=place.kind,
            scope=place.scope,
            line=place.line,
            nodes=", ".join(place.source_nodes),
            origins=", ".join(place.origins),
            source=tables.sources[launch.source],
            model=tuple(map(str, place.lines)),
            computes=place.computes,
            layer=launch.layer,
        )
        difference = launch.difference
        how = {} if difference is None else {"difference": _difference(difference, tables)}
        launches.append(
            tables.row(
                "launch",
                fact=tables.facts[tuple(fact)],
                iteration=place.iteration,
                readings=[_reading(value, tables) for value in distinct(launch.values)],
                given=[tables.row("input", name=x, step=at, made=y) for x, at, y in launch.given],
                **how,
            )
        )
    return launches


def distinct(values: Sequence[ReportedValue]) -> list[ReportedValue]:
    """Without what is the same after a launch that only reads it."""
    before = {
        (value.dump, *_measured(value.measured))
        for value in values
        if value.row.phase == "before" and value.measured is not None
    }
    return [
        value
        for value in values
        if not (
            value.row.phase == "after"
            and value.row.role == "in"
            and value.measured is not None
            and (value.dump, *_measured(value.measured)) in before
        )
    ]


def _measured(row: TensorRow) -> tuple[object, ...]:
    return row.arg, row.numel, *row.statistics.values(), row.of


def _reading(value: ReportedValue, tables: Tables) -> list[Any]:
    row, tensor, measured = value.row, value.tensor, value.measured
    label = tables.row(
        "label",
        phase=row.phase,
        role=row.role,
        name=row.arg,
        type=value.type,
        expr="" if value.expr == row.arg else value.expr,
        device="" if tensor is None else tensor.device,
        dump=value.dump,
        numel=None if measured is None else measured.numel,
        magnitude=int(measured is not None and measured.of == "magnitude"),
    )
    made = tables.row(
        "reading",
        label=tables.labels[tuple(label)],
        statistics=0 if measured is None else _statistics(measured, tables),
        value=value.value,
        file="" if tensor is None else tensor.file,
        digest="" if tensor is None else tensor.digest,
        bins=0 if value.bins is None else tables.of("bins", value.bins),
        tiles=0 if value.tiles is None else _tiles(value.tiles, tables),
    )
    while made[-1] in (0, ""):
        made.pop()
    return made


def _statistics(row: TensorRow, tables: Tables) -> list[Any]:
    made = tables.row(
        "statistics",
        min=_short(known(row.min)),
        max=_short(known(row.max)),
        mean=_short(known(row.mean)),
        std=_short(known(row.std)),
        nan=row.count("nan"),
        inf=row.count("inf"),
    )
    while made[-1] == 0 and len(made) > len(("min", "max", "mean", "std")):
        made.pop()
    return made


def _tiles(tiles: Tiles, tables: Tables) -> list[Any]:
    means = [None if mean is None else _short(mean, 4) for mean in tiles.means]
    return tables.row("tiles", **{**vars(tiles), "means": means})


def _difference(difference: LaunchComparison, tables: Tables) -> list[Any]:
    return tables.row(
        "difference",
        state=difference.state,
        inputs=difference.inputs,
        blame=difference.blame or "",
        moved=int(difference.moved),
        only="" if difference.matched else "A" if difference.a else "B",
        other=_other(difference.b) if difference.a and difference.b else "",
        reasons=difference.reasons,
        producers=[str(producer) for producer in difference.producers],
        tensors=[
            *(_tensor(tensor, tables, written=0) for tensor in difference.reads),
            *(_tensor(tensor, tables, written=1) for tensor in difference.results),
        ],
    )


def _other(place: RecordedLaunch) -> str:
    """Where a launch stands in dump B."""
    return f"{place}, line {place.line}" if place.launch is not None else str(place)


def _tensor(tensor: TensorComparison, tables: Tables, *, written: int) -> list[Any]:
    metrics, how = tensor.metrics, error_of(tensor)
    return tables.row(
        "tensor",
        name=tensor.name,
        phase=tensor.phase,
        written=written,
        state=tensor.state,
        basis=tensor.basis,
        note=tensor.note,
        error=_short(how.error),
        allowed=_short(how.allowed),
        estimated=int(how.estimated),
        type=ReportedValue(tensor.a).type,
        metrics=0 if metrics is None or metrics.identical else tables.of("metrics", metrics),
    )


def _short(number: float | None, digits: int = 6) -> float | str | None:
    """So many digits of a float; an integer that JavaScript would round is a string."""
    if isinstance(number, bool) or number is None:
        return number
    if isinstance(number, int):
        return number if abs(number) <= _EXACT else str(number)
    if not math.isfinite(number):
        return str(number)
    short = float(f"{number:.{digits}g}")
    # `2.0` is a digit more than `2`; of a zero the sign would be lost.
    return int(short) if short.is_integer() and 0 < abs(short) < 1e6 else short
