"""What the page has for its script: rows whose order of fields is declared once, for both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from report_dumps import compared, step, write_dump
from rewriter.dump.reading import open_dump
from rewriter.report import page_data
from rewriter.report.compared import report as compared_report
from rewriter.report.model import report as report_of
from rewriter.report.page_data import FIELDS, TEXT, TEXTS, Tables

SCRIPTS = sorted((Path(page_data.__file__).parent / "assets").glob("*.js"))


def test_the_script_reads_all_kinds_of_rows_by_their_fields() -> None:
    scripts = "".join(script.read_text(encoding="utf-8") for script in SCRIPTS)
    named = re.findall(r'\brecord\("(\w+)"', scripts)
    assert sorted(set(named)) == sorted(FIELDS)


def read(kind: str, row: list[Any], shared: dict[str, Any]) -> dict[str, Any]:
    """As `record` of the script does."""
    made = {}
    for (name, how), value in zip(shared["fields"][kind], row, strict=False):
        if how == TEXT:
            value = shared["strings"][value]
        elif how == TEXTS:
            value = [shared["strings"][one] for one in value]
        made[name] = value
    return made


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    report = report_of(open_dump(write_dump(tmp_path / "x", [*step(0), *step(1, nan=3)])))
    tables = Tables()
    (rows,) = (page_data.compact(run, tables) for run in report.runs)
    shared = json.loads(json.dumps(tables.json()))
    launch = read("launch", rows[1], shared)
    fact = read("fact", shared["facts"][launch["fact"]], shared)
    assert (fact["index"], fact["kernel"], fact["nodes"]) == (1, "kernel_1", "node_1")
    reading = read("reading", launch["readings"][-1], shared)
    label = read("label", shared["labels"][reading["label"]], shared)
    assert (label["phase"], label["role"], label["name"]) == ("after", "out", "buf1")
    statistics = read("statistics", reading["statistics"], shared)
    assert statistics == {"min": -1, "max": 1, "mean": 0.0625, "std": 0.5, "nan": 3}


def test_differences_are_read_as_they_were_written() -> None:
    report = compared_report(compared(8, 3))
    tables = Tables()
    (rows,) = (page_data.compact(run, tables) for run in report.runs)
    shared = json.loads(json.dumps(tables.json()))
    difference = read("difference", read("launch", rows[3], shared)["difference"], shared)
    assert (difference["state"], difference["blame"]) == ("numeric", "culprit")
    assert difference["reasons"] == ["its inputs are equal within tolerance"]
    tensor = read("tensor", difference["tensors"][-1], shared)
    metrics = read("metrics", tensor["metrics"], shared)
    assert (tensor["name"], metrics["mismatched"]) == ("buf3", 12)
    assert read("extreme", metrics["max_abs"], shared) == {
        "error": 0.001,
        "a": 1.001,
        "b": 1,
        "index": [1, 7],
    }
