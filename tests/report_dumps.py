"""Dumps written by hand, for the tests of the report: what a runtime writes, without a model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row(
    launch: int | None,
    phase: str,
    arg: str,
    *,
    role: str = "out",
    kernel: str = "",
    size: float = 1.0,
    nan: int = 0,
    inf: int = 0,
    **more: Any,
) -> Row:
    """A tensor of 256 elements, of which the finite ones go from -size to size."""
    start = {} if launch is None else {"launch": launch, "kernel": kernel or f"kernel_{launch}"}
    return {
        **start,
        "phase": phase,
        "arg": arg,
        "role": role,
        "dtype": "float32",
        "shape": [8, 32],
        "stride": [32, 1],
        "device": "cpu",
        "numel": 256,
        "min": -size,
        "max": size,
        "mean": size / 16,
        "std": size / 2,
        "nan": nan,
        "inf": inf,
        **more,
    }


def step(launch: int, *, nan: int = 0, given: int = 0, size: float = 1.0, **more: Any) -> list[Row]:
    """A launch that reads one tensor, with `given` NaN, and writes another, with `nan`."""
    read = row(launch, "before", f"buf{launch - 1}", role="in", nan=given, size=size, **more)
    return [
        read,
        {**read, "phase": "after"},
        row(launch, "after", f"buf{launch}", nan=nan, size=size, **more),
    ]


def write_run(folder: Path, rows: Iterable[Row], table: Sequence[Row] | None = None) -> Path:
    """One run, in `folder`. Without a table, the launches of the rows are in it."""
    rows = list(rows)
    folder.mkdir(parents=True)
    if table is None:
        kernels = {r["launch"]: r["kernel"] for r in rows if "launch" in r}
        table = [entry(index, kernel) for index, kernel in kernels.items()]
    facts = {
        "format": "rewriter.run",
        "version": 1,
        "artifact": "model.py",
        "started": 1.7e9,
        "launches": table,
    }
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    text = "".join(json.dumps(r) + "\n" for r in rows)
    (folder / "events.jsonl").write_text(text, encoding="utf-8")
    return folder


def entry(index: int, kernel: str) -> Row:
    return {
        "launch": index,
        "kernel": kernel,
        "kind": "cpp",
        "scope": "Runner.call",
        "line": 100 + index,
        "source_nodes": [f"node_{index}"],
        "origins": ["aten.add"],
        "repeats": False,
        "before": [["in", f"buf{index - 1}"]],
        "after": [["in", f"buf{index - 1}"], ["out", f"buf{index}"]],
    }


def write_dump(root: Path, *runs: Iterable[Row], **manifest: Any) -> Path:
    """A dump whose runs are calls of one process."""
    for number, rows in enumerate(runs):
        write_run(root / f"rank0/run{number}", rows)
    facts = {
        "format": "rewriter.dump",
        "version": 1,
        "artifact": "model.py",
        "sha256": "0" * 64,
        "rewriter": "0.1.0",
        "probes": ["save"],
        "torch": "2.13.0",
        "device": "cpu",
        "command": "rewriter run model.py --probe save",
        **manifest,
    }
    (root / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
    return root


def many(count: int, first_nan: int) -> list[Row]:
    """A long run in which values grow, and NaN begins at a launch and stays."""
    return [
        r
        for index in range(count)
        for r in step(
            index,
            kernel=f"triton_poi_fused_add_{index % 97}",
            size=math.exp(4 * index / count),
            nan=3 if index >= first_nan else 0,
            given=3 if index > first_nan else 0,
        )
    ]
