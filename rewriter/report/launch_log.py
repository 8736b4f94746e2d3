"""A dump as a log of tritonparse: a line of JSON for each kernel, and for each launch.

The fields are those of its schemas (tritonparse/validation/schemas). A wrapper does not have the
grids of its kernels, so `grid` is empty, nor what the compiler did, so `file_content` is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from msgspec import UNSET

from rewriter.core.types import Json
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import ScalarRow, TensorRow
from rewriter.report.types import Sources

_NUMBERS = {"int": int, "float": float}


def events(runs: Sequence[RunDump], sources: Sources) -> Iterator[Json]:
    """The lines: a kernel stands in front of its first launch. A tensor that was recorded before
    and after a launch has the values from after it."""
    seen: set[str] = set()
    for run in runs:
        for (launch, kernel), values in _launches(run).items():
            made = _launch(run, launch, kernel, values)
            metadata = made["compilation_metadata"]
            if metadata["hash"] not in seen:
                seen.add(metadata["hash"])
                code = sources(run).get(kernel)
                source = {"file_path": run.artifact, "start_line": 1, "code": code}
                yield {
                    **{name: made[name] for name in ("pid", "timestamp", "stack")},
                    "event_type": "compilation",
                    "payload": {
                        "metadata": metadata,
                        "file_content": {},
                        "file_path": {},
                        **({"python_source": source} if code else {}),
                    },
                }
            yield made


def _launches(run: RunDump) -> dict[tuple[int, str], dict[str, Json]]:
    """The arguments of each launch of a call, by its number and kernel, in the order of their
    events. Of a launch in a loop they are those of its last turn."""
    found: dict[tuple[int, str], dict[str, Json]] = {}
    for row in run.events():
        launch, _ = row.which
        if launch is None:
            continue
        arguments = found.setdefault((launch, run.launch_row(launch).kernel or row.kernel), {})
        if isinstance(row, TensorRow):
            arguments[row.arg] = _tensor(row)
        elif isinstance(row, ScalarRow) and row.value is not UNSET:
            number = _NUMBERS.get(row.type, str)
            arguments[row.arg] = {"type": row.type, "value": number(row.value)}
    return found


def _launch(run: RunDump, launch: int, kernel: str, arguments: dict[str, Json]) -> Json:
    text = f"{kernel} {run.sha256}"
    return {
        "event_type": "launch",
        "pid": run.facts.pid or 0,
        "timestamp": datetime.fromtimestamp(run.started or 0, timezone.utc).isoformat(),
        "name": kernel,
        "grid": [],
        "stack": [
            {"filename": x.file, "line": x.line, "name": x.function, "loc": x.code}
            for x in run.names.lines.get(launch, ())
        ],
        "compilation_metadata": {
            "hash": hashlib.sha256(text.encode()).hexdigest(),
            "name": kernel,
        },
        "extracted_args": arguments,
        "rank": run.rank,
        "call": run.call_index,
        "launch": launch,
    }


def _tensor(row: TensorRow) -> Json:
    return {
        "type": "tensor",
        "dtype": f"torch.{row.dtype}",
        "shape": list(row.shape),
        "numel": row.size,
        **({} if row.stride is UNSET else {"stride": list(row.stride)}),
        **({"device": row.device} if row.device else {}),
        **{name: value for name, value in row.numbers.items() if value is not None},
    }
