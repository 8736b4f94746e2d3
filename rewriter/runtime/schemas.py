"""What the operators of a user write, as only the program that has registered them can tell."""

from __future__ import annotations

from typing import Any

import torch


def declare(launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of launches, each operator's with its schema, and roles as the schema has them.

    The row of such a launch names the `parameters` that its values are, by position or by name. A
    parameter that is written is `inout`, or `out` where the memory had no value before.
    """
    return [_declared(row) if row.get("parameters") else row for row in launches]


def _declared(row: dict[str, Any]) -> dict[str, Any]:
    operator: Any = torch.ops
    try:
        for name in row["kernel"].removeprefix("torch.ops.").split("."):
            operator = getattr(operator, name)
        schema = operator._schema
    except (AttributeError, RuntimeError):  # a library that was not imported, or a packet
        return row
    written = {
        known
        for position, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
        for known in (str(position), one.name)
    }
    parameters = row["parameters"]

    def label(entry: list[str]) -> list[str]:
        if (own := parameters.get(entry[1])) is None:
            return entry  # a result
        if not written.intersection(own):
            return ["in", *entry[1:]]
        return ["out" if entry[0] == "out" else "inout", *entry[1:]]

    phases = [phase for phase in ("before", "after", "reads") if phase in row]
    roles: dict[str, Any] = {phase: list(map(label, row[phase])) for phase in phases}
    return {**row, **roles, "schema": str(schema)}
