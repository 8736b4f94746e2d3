"""What `rewriter run -- COMMAND` reads from a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rewriter.dump.summary import DumpSummary, summarise


def write(dump: Path, rank: int, number: int, artifact: str, rows: list[dict[str, Any]]) -> Path:
    path = dump / f"rank{rank}" / f"run{number}"
    path.mkdir(parents=True)
    (dump / "manifest.json").write_text("{}")
    (path / "run.json").write_text(json.dumps({"artifact": artifact}))
    events = path / "events.jsonl"
    events.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return events


def value(launch: int, phase: str, nan: int = 0, inf: int = 0, **more: Any) -> dict[str, Any]:
    row = {"launch": launch, "phase": phase, "kernel": "k", "arg": "buf0", "role": "out"}
    return {**row, "dtype": "float32", "shape": [4], "numel": 4, "nan": nan, "inf": inf, **more}


def test_nothing_recorded(tmp_path: Path) -> None:
    assert summarise(tmp_path) == DumpSummary()


def test_calls_launches_and_the_first_of_each_kind(tmp_path: Path) -> None:
    time = {"launch": 0, "phase": "after", "time": {"start_us": 1.0, "duration_us": 2.0}}
    write(tmp_path, 0, 0, "a.py", [value(0, "before"), value(0, "after"), value(1, "after"), time])
    # The tenth call comes after the second, and NaN where it was before is not the first.
    write(tmp_path, 0, 10, "a.py", [value(0, "after", nan=9)])
    # What is made of no number is a mask.
    mask = value(2, "after", inf=1)
    given = value(3, "before", role="in")
    rows = [mask, given, value(3, "after", inf=2), value(4, "after", nan=1)]
    write(tmp_path, 0, 2, "b.py", rows)
    seen = summarise(tmp_path)
    assert seen.calls == {"a.py": 2, "b.py": 1}
    assert seen.launches == 2 + 1 + 3
    assert [(x.kind, x.artifact, x.run, x.row.launch) for x in seen.findings] == [
        ("nan", "b.py", "rank0/run2", 4),
        ("inf", "b.py", "rank0/run2", 3),
    ]
