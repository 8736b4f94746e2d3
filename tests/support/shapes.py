"""The tables of launch shapes in `tests/locate/shapes`, as parameters of tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rewriter.locate.types import Argument

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parents[1] / "locate" / "shapes"


def text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def table(name: str) -> dict[str, dict[str, Any]]:
    """A TOML file: its rows by their names."""
    return tomllib.loads(text(f"{name}.toml"))


def rows(name: str, *columns: str) -> pytest.MarkDecorator:
    """The rows of a TOML file, whose names are the ids; a column that a row lacks is None."""
    return pytest.mark.parametrize(
        columns,
        [pytest.param(*map(row.get, columns), id=id_) for id_, row in table(name).items()],
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


def real_launches() -> pytest.MarkDecorator:
    """`(name, index, lines)` of each launch of a real wrapper in `real.txt`.

    A wrapper's name begins a line. A launch has three: where it is, its kind and its kernel; its
    arguments; source nodes <- original ATen.
    """
    name, found = "", []
    lines = text("real.txt").rstrip("\n").split("\n")
    for number, line in enumerate(lines):
        if not line.startswith(" "):
            name = line
        elif line.startswith("  #"):
            index = int(line.split()[0].removeprefix("#"))
            row = name, index, lines[number : number + 3]
            found.append(pytest.param(*row, id=f"{name}#{index}"))
    return pytest.mark.parametrize(("name", "index", "lines"), found)


def argument(one: Argument) -> str:
    """`role [type] name [= expression] [@ buffer]`, less what can be told from the rest."""
    type_ = "" if one.type == "tensor" else f"{one.type} "
    expr = "" if one.expr == one.name else f" = {one.expr}"
    buffer = "" if one.buffer in (one.name, "") else f" @ {one.buffer}"
    return f"{one.role} {type_}{one.name}{expr}{buffer}"
