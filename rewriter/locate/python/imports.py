"""What a Python wrapper imports from torch."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from rewriter.core.source import Source
from rewriter.locate.python.module import parse


def imported_from_torch(source: Source) -> Iterator[str]:
    """Yield the dotted names of torch's that the module-level statements use."""
    for part in parse(source).statements():
        match part.node:
            case cst.ImportFrom(module=cst.BaseExpression() as package, names=[*names]):
                name = part.code(package)
                if name.partition(".")[0] == "torch":
                    yield from (f"{name}.{part.code(alias.name)}" for alias in names)
            case cst.Assign(value=cst.Attribute() as value):
                name = part.code(value)
                if name.startswith("torch.") and not name.startswith("torch.ops."):
                    yield name
