"""What an operator of the program changed of what it was given, where its schema is not known.

A wrapper in Python asks for the schema when it runs; a C++ wrapper has none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import structs

from rewriter.core.types import Phase
from rewriter.dump import saved
from rewriter.dump.documents import LaunchRow
from rewriter.dump.rows import EventRow, TensorRow
from rewriter.locate.operators import is_torchs


def without_schema(facts: LaunchRow) -> bool:
    """Whether nothing says which arguments a launch writes: then any may be."""
    name = facts.kernel.removeprefix("torch.ops.")
    return facts.kind == "custom_op" and not facts.schema and not is_torchs(name)


def updates(run: Path, facts: LaunchRow, rows: list[EventRow]) -> list[EventRow]:
    """The rows of a launch: of an operator without a schema, what was read before it and is another
    value after it counts as updated. `run` is the directory of the call."""
    if not without_schema(facts):
        return rows
    before, after = (_read(rows, phase) for phase in ("before", "after"))
    both = ((before[name], after[name]) for name in before.keys() & after.keys())
    return updating(rows, {a.arg for a, b in both if saved.same_bits(run, a, b) is False})


def updating(rows: list[EventRow], names: Collection[str]) -> list[EventRow]:
    """The rows of a launch that updates arguments of these names."""
    return [
        structs.replace(row, role="inout")
        if isinstance(row, TensorRow) and row.arg in names
        else row
        for row in rows
    ]


def _read(rows: Sequence[EventRow], phase: Phase) -> dict[str, TensorRow]:
    read = (row for row in rows if isinstance(row, TensorRow) and row.role == "in")
    return {row.arg: row for row in read if row.phase == phase}
