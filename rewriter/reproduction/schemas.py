"""The operator that a function of the C shim calls, by the rules of torchgen/gen_aoti_c_shim.py.

torch is imported when it is asked for: its schemas are those of the installed version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from rewriter.locate.names import shim

_VERSION = re.compile(r"_v\d+$")
# Written by hand (torch/csrc/inductor/aoti_torch/c/shim.h), under names of their own.
_BY_HAND = {
    "index_put_out": "aten::index_put_",
    "_mm_plus_mm_out": "",
    "scatter_out": "aten::scatter_.src",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operator. `type` is torch's own description of its type."""

    name: str
    type: Any
    by_name: bool
    is_out: bool


@dataclass(frozen=True)
class Operator:
    """An operator as Python calls it. `path` is such as `torch.ops.aten.addmm.out`.

    `results` is how many tensors it returns, `None` for a list of them. `is_random` says that it
    draws from torch's generator.
    """

    path: str
    parameters: tuple[Parameter, ...]
    results: int | None
    is_random: bool


def of_shim(function: str) -> Operator | None:
    """The operator behind `aoti_torch_cpu_addmm_out`; `None` where torch has none."""
    name = shim().sub("", function)
    if name in _BY_HAND:
        return of_name(_BY_HAND[name])
    table = _by_shim_name()
    found = table.get(name) or table.get(_VERSION.sub("", name))
    return None if found is None else of_name(found)


@cache
def of_name(name: str) -> Operator | None:
    """The operator of a name such as `aten::addmm.out`; `None` where it is not registered."""
    import torch

    base, _, overload = name.partition(".")
    for schema in torch._C._jit_get_schemas_for_operator(base):
        if schema.overload_name in (overload, "" if overload == "default" else overload):
            return _operator(schema)
    return None


@cache
def _by_shim_name() -> dict[str, str]:
    import torch
    import torch._inductor.lowering  # registers mkldnn's operators where they are

    names: dict[str, str] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        overload = schema.overload_name
        if space not in ("aten", "mkldnn", "mkl", "quantized", "onednn"):
            continue
        full = f"{schema.name}.{overload or 'default'}"
        ending = f"_{overload}" if overload else ""
        for prefix in ("", f"{space}_") if space != "aten" else ("",):
            known = names.setdefault(f"{prefix}{name}{ending}", full)
            if space == "aten" and not known.startswith("aten"):
                names[f"{prefix}{name}{ending}"] = full
    return names


def _operator(schema: Any) -> Operator:
    import torch

    space, _, name = schema.name.partition("::")
    overload = schema.overload_name or "default"
    path = f"torch.ops.{space}.{name}.{overload}"
    kinds = [return_.real_type.kind() for return_ in schema.returns]
    several = kinds == ["ListType"]
    try:
        operator = getattr(getattr(getattr(torch.ops, space), name), overload)
        is_random = torch.Tag.nondeterministic_seeded in operator.tags
    except (AttributeError, RuntimeError):
        is_random = False
    parameters = tuple(
        Parameter(argument.name, argument.real_type, argument.kwarg_only, bool(argument.is_out))
        for argument in schema.arguments
    )
    return Operator(path, parameters, None if several else len(kinds), is_random)
