"""The tables of launch shapes in `tests/locate/shapes`, as parameters of tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parents[1] / "locate" / "shapes"


def text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def rows(table: str, *columns: str) -> pytest.MarkDecorator:
    """The rows of a TOML file, whose names are the ids; a column that a row lacks is None."""
    found: dict[str, dict[str, Any]] = tomllib.loads(text(f"{table}.toml"))
    return pytest.mark.parametrize(
        columns,
        [pytest.param(*map(row.get, columns), id=name) for name, row in found.items()],
    )


def bodies(*tables: str) -> pytest.MarkDecorator:
    """`(frame, launches, body)` of each row of text files.

    A row begins with `== id | frame`. Lines that begin with `> ` are launches that are found in it.
    """
    found = []
    for table in tables:
        for row in text(f"{table}.txt").rstrip("\n").removeprefix("== ").split("\n== "):
            head, _, lines = row.partition("\n")
            name, _, frame = head.rpartition(" | ")
            launches = [one.removeprefix("> ") for one in lines.split("\n") if one[:2] == "> "]
            body = "\n".join(one for one in lines.split("\n") if one[:2] != "> ")
            found.append(pytest.param(frame, launches, body, id=name))
    return pytest.mark.parametrize(("frame", "launches", "body"), found)
