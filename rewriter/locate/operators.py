"""Which arguments an operator of PyTorch writes, from its schema or from its name."""

from __future__ import annotations

import json
from functools import cache

from rewriter.locate import declarations


def written(name: str) -> list[int | str] | None:
    """Positions and names of the arguments that `namespace.op.overload` writes, other than `out`.

    By the schema that PyTorch ships, or else by the name: `op_` mutates its first argument. `None`
    if neither tells.
    """
    known = mutating_operators().get(name)
    base = name.split(".")[1] if "." in name else name
    if known is None and base.endswith("_") and not base.startswith("__"):
        return [0]
    return known


@cache
def mutating_operators() -> dict[str, list[int | str]]:
    """Operators of PyTorch that write arguments other than by `out=` or by the `op_` convention.

    Keys are `namespace.op.overload`; values are positions and names of the arguments written.
    `fixtures/operators.py` makes the file from torch's own schemas.
    """
    path = declarations.folder() / "mutating_operators.json"
    table: dict[str, list[int | str]] = json.loads(path.read_text(encoding="utf-8"))
    return table
