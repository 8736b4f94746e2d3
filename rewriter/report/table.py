"""A dump as a table with one row for each value of each launch: for pandas, Arrow and Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from rewriter.core.errors import FAILED, RewriterError
from rewriter.dump import names
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import EventRow, ScalarRow, TensorRow

if TYPE_CHECKING:
    import pyarrow

# The columns, by the names of their types in Arrow.
_COLUMNS = {
    "string": (
        *("run", "wrapper", "graph", "kernel", "kind", "phase", "role", "arg", "device", "dtype"),
        *("value", "fingerprint", "file", "source"),
    ),
    "int64": ("rank", "pid", "call", "launch", "iteration", "line", "numel", "nan", "inf"),
    "float64": ("started", "min", "max", "mean", "std"),
    "list": ("shape", "stride"),
}


def table(dump: Dump, runs: Sequence[RunDump]) -> pyarrow.Table:
    """The table of some calls of a dump. `started` is in seconds of the wall clock, `source` the
    lines of the model; what is not known or was not recorded is null. Raises `RewriterError`
    without pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise RewriterError(
            "no-pyarrow",
            "tables are made by pyarrow, which is not installed",
            hint="Install it: pip install pyarrow.",
            code=FAILED,
        ) from error
    types = {
        "string": pyarrow.string(),
        "int64": pyarrow.int64(),
        "float64": pyarrow.float64(),
        "list": pyarrow.list_(pyarrow.int64()),
    }
    schema = pyarrow.schema([(name, types[of]) for of, each in _COLUMNS.items() for name in each])
    found = [row for run in runs for row in _rows(run)]
    return pyarrow.Table.from_pylist(found, schema.with_metadata({"dump": str(dump.path)}))


def encoded(made: pyarrow.Table, suffix: str) -> bytes:
    """The file of a table: `.parquet`, or `.arrow` (also called Feather)."""
    sink = io.BytesIO()
    if suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(made, sink)
    else:
        from pyarrow import feather

        feather.write_feather(made, sink)
    return sink.getvalue()


def _rows(run: RunDump) -> Iterator[dict[str, Any]]:
    of_call = {
        "run": run.name,
        "rank": run.rank,
        "pid": run.facts.pid or None,
        "wrapper": run.artifact,
        "graph": run.names.graph or None,
        "call": run.call_index,
        "started": run.started,
    }
    for row in run.events():
        launch, iteration = row.which
        known = run.launch_row(launch)
        lines = () if launch is None else run.names.lines.get(launch, ())
        yield {
            **of_call,
            "launch": launch,
            "iteration": iteration,
            "kernel": row.kernel or known.kernel or None,
            "kind": known.kind or None,
            "line": known.line or None,
            "source": names.listed(lines) or None,
            "phase": row.phase,
            **_value(row),
        }


def _value(row: EventRow) -> dict[str, Any]:
    if isinstance(row, ScalarRow):
        value = str(row.value) if isinstance(row.value, str) else None
        return {"arg": row.arg, "role": row.role, "dtype": row.type, "value": value}
    if not isinstance(row, TensorRow):
        return {"arg": row.name or None}
    return {
        "arg": row.arg,
        "role": row.role,
        "dtype": row.dtype,
        "shape": row.shape,
        "stride": None if row.stride is UNSET else row.stride,
        "device": row.device,
        "numel": row.size,
        "fingerprint": row.digest or None,
        "file": row.file or None,
        **row.numbers,
    }
