"""Dumps and comparisons for the tests of the report, of short rows: `dumps.py` writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dumps
from dumps import Row
from rewriter.comparison.dumps.types import (
    Blame,
    Comparison,
    Extreme,
    LaunchComparison,
    Metrics,
    RunComparison,
    State,
    TensorComparison,
    Tolerance,
)
from rewriter.dump.documents import Manifest
from rewriter.dump.launched import OUTPUTS, RecordedLaunch
from rewriter.dump.rows import TensorRow, read_row


def row(
    launch: int | None,
    phase: str,
    arg: str,
    *,
    role: str = "out",
    kernel: str = "",
    size: float = 1.0,
    **more: Any,
) -> Row:
    """A tensor of 256 elements, of which the finite ones go from -size to size."""
    start = {} if launch is None else {"launch": launch, "kernel": kernel or f"kernel_{launch}"}
    about = {"shape": [8, 32], "stride": [32, 1], "numel": 256}
    ends = {"min": -size, "max": size, "mean": size / 16, "std": size / 2}
    return {**start, "phase": phase, **dumps.value(arg, role), **about, **ends, **more}


def step(launch: int, *, nan: int = 0, given: int = 0, size: float = 1.0, **more: Any) -> list[Row]:
    """A launch that reads one tensor, with `given` NaN, and writes another, with `nan`."""
    more = {"size": size, **more}
    read = row(launch, "before", f"buf{launch - 1}", role="in", nan=given, **more)
    made = row(launch, "after", f"buf{launch}", nan=nan, **more)
    return [read, {**read, "phase": "after"}, made]


def write_run(folder: Path, rows: Iterable[Row], table: Sequence[Row] | None = None) -> Path:
    """One run, in `folder`. Without a table, the launches of the rows are in it."""
    rows = list(rows)
    folder.mkdir(parents=True)
    if table is None:
        kernels = {r["launch"]: r["kernel"] for r in rows if "launch" in r}
        table = [entry(index, kernel) for index, kernel in kernels.items()]
    dumps.write_call(folder, table, rows, artifact="model.py", started=1.7e9)
    return folder


def entry(index: int, kernel: str) -> Row:
    """A row of the table: a launch that reads the buffer before its own."""
    read, facts = ["in", f"buf{index - 1}"], {"origins": ["aten.add"]}
    labels = {"before": [read], "after": [read, ["out", f"buf{index}"]]}
    return dumps.launch(index, kernel, source_nodes=[f"node_{index}"], **facts, **labels)[0]


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


def layered(rows: Sequence[Row], size: int = 4) -> list[Row]:
    """A table in which the first launch of every few reads a parameter of its own."""
    kernels = {r["launch"]: r["kernel"] for r in rows}
    table = [entry(index, kernel) for index, kernel in kernels.items()]
    for at, one in enumerate(table[::size]):
        one["before"] = [*one["before"], ["in", f"primals_{at}"]]
    return table


def names_of_layers(count: int = 3) -> Row:
    """What `names.json` has of the parameters of `layered`."""
    inputs = {f"primals_{at}": [f"blocks.{at}.up.weight", "", "parameter"] for at in range(count)}
    wrapper = {"source_nodes": {}, "inputs": inputs, "lines": {}, "computes": {}}
    return {"format": "rewriter.names", "version": 1, "wrappers": {"0" * 64: wrapper}}


def compared(count: int, culprit: int) -> Comparison:
    """A comparison by hand: equal but for rounding up to the culprit, then ever more wrong.

    The last launch writes NaN in A alone, and A has one launch that B lacks.
    """
    launches = [_compared(index, culprit, last=index == count - 1) for index in range(count)]
    alone = LaunchComparison(a=_place(count, count), b=None, state="unknown", inputs="unknown")
    return Comparison(
        a=Path("dumps/new.dump"),
        b=Path("dumps/expected.dump"),
        manifest_a=Manifest(artifact="model.py", torch="2.14.0", device="cpu"),
        manifest_b=Manifest(artifact="model.py", torch="2.13.0", device="cpu"),
        runs=(RunComparison("rank0/run0", "rank0/run0", (*launches, alone)),),
        unpaired=("A rank0/run1",),
    )


def _compared(index: int, culprit: int, *, last: bool) -> LaunchComparison:
    def state(of: int) -> State:
        return "equal" if of < culprit else "non-finite" if last and of == index else "numeric"

    blame: Blame = "" if index < culprit else "culprit" if index == culprit else "downstream"
    producer = _place(index - 1, index - 1)
    return LaunchComparison(
        a=_place(index, index),
        b=_place(index, index),
        state=state(index),
        inputs=state(index - 1),
        blame=blame,
        reads=(_tensor(index, "before", state(index - 1), error=_error(index - 1, culprit)),),
        results=(_tensor(index, "after", state(index), error=_error(index, culprit)),),
        producers=(producer,) if blame == "downstream" else (),
        reasons=("its inputs are equal within tolerance",) if blame == "culprit" else (),
    )


def _error(index: int, culprit: int) -> float:
    return 0.0 if index < 3 else 1e-7 if index < culprit else 1e-3 * (index - culprit + 1)


def _place(index: int, position: int) -> RecordedLaunch:
    kernel = f"cpp_fused_add_{index}"
    nodes, origins = (f"node_{index}",), ("aten.add",)
    return RecordedLaunch(
        "rank0/run0", position, index, 0, kernel, "cpp", "call", index, nodes, origins
    )


def _tensor(index: int, phase: str, state: State, *, error: float) -> TensorComparison:
    role = "in" if phase == "before" else "out"
    name = f"buf{index - 1}" if phase == "before" else f"buf{index}"
    nan = int(state == "non-finite")
    a = row(index, phase, name, role=role, nan=nan)
    extreme = Extreme(error, (1, 7), 1.0 + error, 1.0)
    metrics = Metrics(
        numel=256,
        identical=error == 0,
        max_abs=extreme,
        max_rel=extreme,
        mean_abs=error / 2,
        rms=error / 2,
        mean_a=0.1,
        mean_b=0.1,
        cosine=1.0,
        snr=math.inf if error == 0 else -20 * math.log10(error),
        rms_b=1.0,
        gain=0.0,
        ulp=int(error * 2**23),
        mismatched=0 if state == "equal" else 12,
        nan_a=nan,
        nan_b=0,
        inf=0,
        nonfinite=Extreme(math.nan, (0, 0), math.nan, 1.0) if nan else None,
        atol_needed=error,
        rtol_needed=error,
    )
    b = {**a, "nan": 0}
    rows = read_row(a), read_row(b)
    assert isinstance(rows[0], TensorRow)
    assert isinstance(rows[1], TensorRow)
    return TensorComparison(phase, state, "tensors", *rows, Tolerance(1.3e-6, 1e-5), metrics)


def beginnings() -> Comparison:
    """A comparison by hand whose culprits are the inputs, a launch that is equal within its
    tolerance, one without a counterpart, and the outputs."""
    comparison = compared(8, 4)
    (run,) = comparison.runs
    launches = list(run.launches)
    launches[2] = replace(launches[2], blame="culprit", reasons=("an error begins here",))
    launches[5] = replace(
        launches[5], b=None, blame="culprit", results=(), reasons=("what reads it differs",)
    )
    inputs = _end("", "inputs", reasons=("the inputs of the call differ",))
    outputs = _end(OUTPUTS, "after", reasons=())
    ended = (inputs, *launches, outputs)
    return replace(comparison, runs=(replace(run, launches=ended),))


def _end(kernel: str, phase: str, reasons: tuple[str, ...]) -> LaunchComparison:
    place = RecordedLaunch("rank0/run0", 0, None, 0, kernel, "", "", 0, (), ())
    tensor = _tensor(0, phase, "numeric", error=0.02)
    return LaunchComparison(
        place, place, "numeric", "unknown", "culprit", False, (), (tensor,), (), reasons
    )
