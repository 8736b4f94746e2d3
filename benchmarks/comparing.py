"""How fast `compare` is: against `cmp` of the same files, and for many events against reading them.

It measures CPU seconds of all threads, since wall time says little on a shared machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.rows import Row

EVENTS = 50_000


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where dumps are")
    parser.add_argument("--bytes", type=float, default=2e9, help="of both dumps together")
    parser.add_argument("--files", type=int, default=64)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="rewriter-comparing-", dir=args.folder) as folder:
        made = [
            *tensors(Path(folder), args.files, int(args.bytes / 2)),
            *small(Path(folder)),
            *events(Path(folder)),
        ]
    return rows.report(made, args, bytes=args.bytes)


def tensors(folder: Path, files: int, size: int) -> list[Row]:
    """Compare saved tensors that are equal, and tensors of which every element differs."""
    import torch

    elements = size // files // 4
    one = torch.randn(elements)
    for name, factor in (("a", 1.0), ("equal", 1.0), ("different", 1 + 1e-6)):
        run = _run(folder / name, files, elements, saved=True)
        for number in range(files):
            torch.save((one + number) * factor, run / f"{number}.pt")
    cmp = _spent(lambda: _cmp(folder, "a", "equal", files))
    made = []
    for name in ("equal", "different"):
        other = folder / name
        compared = _spent(lambda other=other: _compare(folder / "a", other))  # type: ignore[misc]
        target = 2 if name == "equal" else 4
        made.append(Row(f"tensors, {name}, against cmp; CPU", compared, cmp, target, "s"))
    return made


def small(folder: Path) -> list[Row]:
    """Compare many small files."""
    import torch

    files, elements = 2000, 256
    for name in ("small-a", "small-b"):
        run = _run(folder / name, files, elements, saved=True)
        for number in range(files):
            torch.save(torch.full((elements,), float(number)), run / f"{number}.pt")
    compared = _spent(lambda: _compare(folder / "small-a", folder / "small-b"))
    cmp = _spent(lambda: _cmp(folder, "small-a", "small-b", files))
    return [Row(f"{files:,} small tensors, against cmp; CPU", compared, cmp, None, "s")]


def events(folder: Path) -> list[Row]:
    """Compare many rows that have statistics and no saved tensors."""
    for name in ("many-a", "many-b"):
        _run(folder / name, EVENTS, 64, saved=False)
    compared = _spent(lambda: _compare(folder / "many-a", folder / "many-b"))

    def read() -> None:
        for name in ("many-a", "many-b"):
            lines = (folder / name / "rank0/run0/events.jsonl").read_bytes().splitlines()
            for line in lines:
                json.loads(line)

    return [Row(f"{EVENTS:,} events, against json.loads; CPU", compared, _spent(read), None, "s")]


def _run(dump: Path, launches: int, elements: int, *, saved: bool) -> Path:
    """Write a dump of one call, with one result for each launch. Returns the run's directory."""
    run = dump / "rank0/run0"
    run.mkdir(parents=True)
    (dump / "manifest.json").write_text('{"format": "rewriter.dump", "version": 1}')
    table: list[dict[str, Any]] = [
        {
            "launch": number,
            "kernel": f"kernel_{number}",
            "kind": "triton",
            "scope": "call",
            "line": number + 1,
            "source_nodes": [],
            "origins": ["add"],
            "repeats": False,
        }
        for number in range(launches)
    ]
    facts = {"format": "rewriter.run", "version": 1, "artifact": "w.py", "launches": table}
    (run / "run.json").write_text(json.dumps(facts))
    with (run / "events.jsonl").open("w") as file:
        for number in range(launches):
            value = {
                "dtype": "float32",
                "shape": [elements],
                "stride": [1],
                "device": "cpu",
                "numel": elements,
                "min": -3.0 - number,
                "max": 3.0 + number,
                "mean": 0.001 * number,
                "std": 1.0 + number,
                "nan": 0,
                "inf": 0,
            }
            base = {"launch": number, "phase": "after", "kernel": f"kernel_{number}"}
            row = {**base, "arg": f"buf{number}", "role": "out", **value}
            if saved:
                row["file"] = f"{number}.pt"
            file.write(json.dumps(row) + "\n")
    return run


def _compare(a: Path, b: Path) -> None:
    from rewriter.comparison.dumps.compare import compare
    from rewriter.comparison.dumps.tolerance import Tolerances

    assert compare(a, b, tolerances=Tolerances(rtol=1e-3, atol=1e-5)).equal


def _cmp(folder: Path, a: str, b: str, files: int) -> None:
    """Run `cmp` on the files of two equal dumps; on others it would stop at a difference."""
    for number in range(files):
        pair = [str(folder / name / f"rank0/run0/{number}.pt") for name in (a, b)]
        subprocess.run(["cmp", "-s", *pair], check=True)


def _spent(act: Callable[[], object]) -> float:
    before = os.times()
    act()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


if __name__ == "__main__":
    sys.exit(main())
