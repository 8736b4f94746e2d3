"""Which arguments an operator of PyTorch writes, from its schema or from its name."""

from __future__ import annotations

import json
import re
from functools import cache

from rewriter.locate import declarations

# Those of torch itself: their schemas are known, and a name that ends with `_` tells what it does.
NAMESPACES = frozenset(
    {
        "aten", "prims", "inductor", "quantized", "_quantized", "mkldnn", "onednn", "rngprims",
        "_c10d_functional", "c10d_functional", "c10d", "symm_mem",
    }
)  # fmt: skip

# Of their first argument they use the shape alone: they allocate one like it, or draw all of its
# elements. `torch.empty(n).normal_()` becomes `aten.normal_functional`.
_TAKES_SHAPE = re.compile(
    r"(?:torch\.ops\.aten\.|aoti_torch_[a-z]+_)"
    r"(?:new_\w+|\w+_like|normal_(?:functional)?|bernoulli(?:_|[._]p)|"
    r"(?:uniform|exponential|geometric|cauchy|log_normal|random)_?)(?:_[a-z]\w*)?(?:\.\w+)?"
)


def takes_shape(kernel: str) -> bool:
    """Whether a launch of an operator reads no element of its first argument."""
    return _TAKES_SHAPE.fullmatch(kernel) is not None


def written(name: str) -> list[int | str] | None:
    """Positions and names of the arguments that `namespace.op.overload` writes, other than `out`.

    By the schema that PyTorch ships, or else by the name: `op_` of PyTorch mutates its first
    argument. `None` if neither tells.
    """
    known = mutating_operators().get(name)
    base = name.split(".")[1] if "." in name else name
    if known is None and is_torchs(name) and base.endswith("_") and not base.startswith("__"):
        return [0]
    return known


def is_pure(name: str) -> bool:
    """Whether `namespace.op.overload` is an operator of PyTorch that writes no argument."""
    return is_torchs(name) and not written(name)


def is_torchs(name: str) -> bool:
    """Whether `namespace.op.overload` is an operator of PyTorch, not one of a user or library."""
    return name.partition(".")[0] in NAMESPACES


@cache
def mutating_operators() -> dict[str, list[int | str]]:
    """Operators of PyTorch that write arguments other than by `out=` or by the `op_` convention.

    Keys are `namespace.op.overload`; values are positions and names of the arguments written.
    `fixtures/operators.py` makes the file from torch's own schemas.
    """
    path = declarations.folder() / "mutating_operators.json"
    table: dict[str, list[int | str]] = json.loads(path.read_text(encoding="utf-8"))
    return table
