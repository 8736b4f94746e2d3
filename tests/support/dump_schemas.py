"""Holds the files of a dump against their types, and the schemas that are made of these."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

import schemas
from rewriter.dump.rows import read_memory_row, read_row, to_json


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(schemas.schema(f"dump/{name}"))


_DOCUMENTS = {
    *("manifest.json", "run.json", "launches.json", "names.json", "processes.json"),
    *("ended.json", "stopped.json"),
}


def check(dump: Path, *, lines: int = 200) -> None:
    """Every file is as its schema says, and every row one of the types, without a further field.

    Of long runs the first lines are held against the schema, which takes its time.
    """
    for path in (*dump.glob("*.json"), *dump.glob("rank*/run*/*.json")):
        if path.name in _DOCUMENTS:
            validator(path.name).validate(json.loads(path.read_bytes()))
    for path in dump.glob("rank*/run*/events.jsonl"):
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
            if line.endswith(b"\n"):
                check_row(json.loads(line), in_full=number < lines)

    for path in dump.glob("rank*/run*/memory.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                row = json.loads(line)
                known = read_memory_row(row)
                assert row.keys() <= set(known.__struct_fields__)
                assert row | to_json(known) == row  # which leaves out what is as it mostly is
                validator("memory.json").validate(row)


def check_row(row: dict[str, Any], *, in_full: bool = True) -> None:
    assert to_json(read_row(row)) == row
    if in_full:
        validator("events.json").validate(row)
