"""Writes small dumps by hand, as a probed program would: for tests of what reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rewriter.dump import names

Row = dict[str, Any]


def value(arg: str, role: str = "in", mean: float = 0.0, **fields: Any) -> Row:
    """What the events say of a tensor of 4 by 8 whose values are around `mean`."""
    row = {
        "arg": arg,
        "role": role,
        "dtype": "float32",
        "shape": [4, 8],
        "stride": [8, 1],
        "device": "cpu",
        "numel": 32,
        "min": mean - 1,
        "max": mean + 1,
        "mean": mean,
        "std": 0.5,
        "nan": 0,
        "inf": 0,
    }
    return {**row, **fields}


def launch(
    index: int,
    kernel: str,
    reads: Sequence[Row] = (),
    writes: Sequence[Row] = (),
    *,
    iteration: int | None = None,
    when: str = "both",
    **facts: Any,
) -> tuple[Row, list[Row]]:
    """The row of the table and the events of one launch."""
    base: Row = {"launch": index, "kernel": kernel}
    again = {} if iteration is None else {"iteration": iteration}
    rows = []
    if when != "after":
        rows += [{**base, "phase": "before", **again, **row} for row in reads]
    if when != "before":
        kept = [row for row in reads if row["role"] == "in"]
        rows += [{**base, "phase": "after", **again, **row} for row in (*kept, *writes)]
    table = {
        **base,
        "kind": "cpp",
        "scope": "Runner.call",
        "line": 100 + index,
        "source_nodes": [],
        "origins": [],
        "repeats": iteration is not None,
        **facts,
    }
    return table, rows or [{**base, "phase": "before", **again}]


def each_once(
    launches: Sequence[tuple[Row, list[Row]]], inputs: Sequence[Row] = ()
) -> list[tuple[Row, list[Row]]]:
    """The same launches as the probes record them unless they are asked for all arguments.

    What a launch reads is recorded where it was made; what nobody made is recorded with what the
    launch writes.
    """
    made = {row["arg"] for row in inputs}
    result = []
    for table, rows in launches:
        results = [row for row in rows if row["phase"] == "after" and row.get("role") != "in"]
        read = {row["arg"]: row for row in reversed(rows) if row.get("role") in ("in", "inout")}
        read = {name: row for name, row in reversed(read.items()) if row["phase"] == "before"}
        elsewhere = [[x["role"], x["arg"]] for x in read.values() if x["arg"] in made]
        given = [x for x in read.values() if x["arg"] not in made and x["role"] == "in"]
        made |= {row["arg"] for row in results}
        after = [*({**row, "phase": "after"} for row in given), *results]
        facts = {**table, "reads": elsewhere} if elsewhere else table
        base = {key: rows[0][key] for key in ("launch", "kernel", "iteration") if key in rows[0]}
        result.append((facts, after or [{**base, "phase": "after"}]))
    return result


def write(
    dump: Path,
    launches: Sequence[tuple[Row, list[Row]]] = (),
    *,
    inputs: Sequence[Row] = (),
    rank: int = 0,
    run: int = 0,
    artifact: str = "output_code.py",
    outputs: Sequence[str] = (),
    wrapper: str | bytes = "",
    graph: str = "",
    tensors: Mapping[str, torch.Tensor] = {},
    manifest: Mapping[str, Any] = {},
    **facts: Any,
) -> Path:
    """Add one call of a wrapper to a dump: what it returns, the text and the graph of the wrapper,
    and the files of tensors by their names. `manifest` are further facts of the dump, `facts` of
    the call."""
    path = dump / f"rank{rank}" / f"run{run}"
    path.mkdir(parents=True)
    about = {"format": "rewriter.dump", "version": 1, "artifact": artifact, "torch": "2.13.0"}
    (dump / "manifest.json").write_text(json.dumps({**about, **manifest}))
    table = {row["launch"]: row for row, _ in launches}
    if outputs:
        facts["outputs"] = {launches[0][0]["scope"]: [*outputs]}
    if wrapper:
        source = wrapper.encode() if isinstance(wrapper, str) else wrapper
        (dump / artifact).write_bytes(source)
    if graph:
        facts.setdefault("sha256", hashlib.sha256(source).hexdigest() if wrapper else "ab" * 32)
        names.write_graphs(dump, {facts["sha256"]: graph})
    rows = [{"phase": "inputs", **row} for row in inputs]
    rows += [row for _, found in launches for row in found]
    write_call(path, [*table.values()], rows, artifact=artifact, **{"pid": 1, **facts})
    for name, tensor in tensors.items():
        (path / name).parent.mkdir(exist_ok=True)
        torch.save(tensor, path / name)
    return dump


def write_call(path: Path, table: Sequence[Row], rows: Iterable[Row], **facts: Any) -> None:
    """The files of a call, in a folder that is there: its table of launches, and its rows."""
    base = {"format": "rewriter.run", "version": 1}
    (path / "run.json").write_text(json.dumps({**base, "launches": table, **facts}))
    _write_rows(path, rows)


def change_facts(dump: Path, *, rank: int = 0, run: int = 0, **changed: Any) -> None:
    """Change facts of a call."""
    path = dump / f"rank{rank}" / f"run{run}" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def change_rows(dump: Path, change: Callable[[list[Row]], Any], *, run: int = 0) -> None:
    """Change the rows of a call: `change` does so in place."""
    path = dump / "rank0" / f"run{run}"
    rows = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    change(rows)
    _write_rows(path, rows)


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    (path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
