"""What was written into a dump is as its types, and the schemas of these, say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dump_schemas
from rewriter.cli import main
from rewriter.dump.documents import Manifest, RunFacts
from rewriter.dump.rows import (
    EventRow,
    MissingRow,
    ScalarRow,
    SchemaError,
    TensorRow,
    read,
    read_row,
    to_json,
)

RELEASES = Path(__file__).parents[2] / "fixtures" / "releases"
DUMPS = sorted(path.parent for path in RELEASES.glob("*/dumps/*/manifest.json"))
OF_LAUNCH = ("launch", "phase", "kernel", "iteration")
ROW = {"launch": 3, "phase": "after", "kernel": "k", "arg": "buf0", "role": "out"}
TENSOR = {**ROW, "dtype": "float32", "shape": [4, 8], "stride": [8, 1], "device": "cpu"}


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_dumps_of_releases_are_as_the_schemas_say(dump: Path) -> None:
    dump_schemas.check(dump)


@pytest.mark.parametrize(
    "wrong",
    [
        {**TENSOR, "unknown": 1},
        {**TENSOR, "min": "infinity"},
        {**TENSOR, "shape": [-1]},
        {**ROW, "type": "int", "value": 3},
        {**ROW, "type": "int", "numel": 1},
        {"launch": 3, "kernel": "k"},
        {"phase": "during"},
        {**TENSOR, "launch": None},
        {"phase": "after", "time": {"start_us": 1}},
    ],
    ids=str,
)
def test_what_the_schema_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        dump_schemas.validator("events.json").validate(wrong)


def test_unknown_fields_are_ignored() -> None:
    assert read_row({**TENSOR, "unknown": [1, {}]}) == read_row(TENSOR)
    assert read({"artifact": "x.py", "later": 1}, Manifest) == Manifest(artifact="x.py")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"launch": 0, "phase": "before", "kernel": "k"}, EventRow),
        (TENSOR, TensorRow),
        ({**ROW, "type": "int", "value": "3"}, ScalarRow),
        ({"phase": "inputs", "arg": "x", "role": "in", "unexpected": "is None"}, MissingRow),
    ],
    ids=["launch", "tensor", "scalar", "missing"],
)
def test_a_row_is_written_as_it_was_read(row: dict[str, Any], kind: type[EventRow]) -> None:
    dump_schemas.check_row(row)
    assert type(read_row(row)) is kind


@pytest.mark.parametrize(
    "statistics",
    [
        {"min": "-inf", "max": "inf", "mean": "nan", "std": None},
        {"min": -(10**40), "max": 10**40, "mean": 0.5, "std": 0},
        {"min": 3, "max": 3.0, "mean": -0.0, "std": 1e-300},
    ],
    ids=["not finite", "large", "of both kinds"],
)
def test_statistics_stay_what_they_are(statistics: dict[str, Any]) -> None:
    row = {**TENSOR, "numel": 32, **statistics, "nan": 1, "inf": 0}
    written = to_json(read_row(row))
    assert json.dumps(written) == json.dumps(row)
    assert read_row(row) == read_row(json.loads(json.dumps(row)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({**TENSOR, "shape": 3}, "shape 3"),
        ({**TENSOR, "shape": [True]}, r"shape\[0\] True"),
        ({**TENSOR, "numel": -1}, "numel -1"),
        ({**TENSOR, "numel": 1.0}, "numel 1.0"),
        ({**TENSOR, "max": float("inf")}, "max inf"),
        ({**TENSOR, "launch": 1 << 63}, "launch 9223372036854775808"),
        ({**TENSOR, "device": None}, "device None"),
        ({"phase": "after", "time": {"start_us": "0"}}, "time.start_us '0'"),
        ({**ROW, "dtype": "float32"}, "a row without 'shape'"),
        (ROW, "a row without 'type'"),
        ({"pid": True}, "pid True"),
        ({"launches": [{"launch": 0}, {"launch": 1, "kernel": 5}]}, r"launches\[1\].kernel 5"),
        ({"launches": [{"launch": 0, "before": [["in"]]}]}, r"launches\[0\].before\[0\] \['in'\]"),
        ({"launches": [{}]}, r"launches\[0\] \{\} without 'launch'"),
        ({"format": "rewriter.package"}, "format 'rewriter.package'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError, match=f"^{named}$"):
        read_row(wrong) if {"phase", "role"} & wrong.keys() else read(wrong, RunFacts)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_rows_are_printed_as_they_were_recorded(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`compare --json` has each row of the events, less what it says of the launch."""
    recorded = [
        {name: field for name, field in json.loads(line).items() if name not in OF_LAUNCH}
        for events in dump.glob("rank*/run*/events.jsonl")
        for line in events.read_text(encoding="utf-8").splitlines()
    ]
    assert main(["compare", str(dump), str(dump), "--json"]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    printed = [
        tensor["a"]
        for launch in launches
        if launch["a"]["kernel"] != "outputs"
        for tensor in (*launch["reads"], *launch["results"])
    ]
    assert printed
    assert [row for row in printed if row not in recorded] == []
