"""Reads the parameters of a kernel from the kernel's own source.

C++: `const` and Inductor's own names (`in_ptr0`, `out_ptr0`, `in_out_ptr0`) say what is written:
see torch/_inductor/codegen/cpp.py and common.py (`KernelArgs`). Metal: the address space. Kernels
that Python holds, such as those of Triton, are read by `kernel_functions.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rewriter.core.scan import last_word, spans
from rewriter.core.types import Role, Type


@dataclass(frozen=True)
class Parameter:
    """One parameter that a launch passes; `None` stands for facts that the source does not give."""

    name: str
    role: Role | None
    type: Type | None


def role_by_name(name: str) -> Role | None:
    """The role that a parameter's name gives it, if it is one of Inductor's names."""
    prefixes: tuple[tuple[str, Role], ...] = (
        ("in_out_ptr", "inout"),
        ("out_ptr", "out"),
        ("in_ptr", "in"),
    )
    return next((role for prefix, role in prefixes if name.startswith(prefix)), None)


_METAL_FUNCTION = re.compile(r"kernel void \w+\(")
_METAL_BODY = re.compile(r"\)\s*\{")


def metal(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of the Metal kernel that `text` defines; `None` if it defines none."""
    span = next(spans(_METAL_FUNCTION, _METAL_BODY, text), None)
    if span is None:
        return None
    parameters = []
    for written in text[span[0].end() : span[1].start()].split(","):
        name = last_word(written)
        # The device supplies positions in the grid and the buffer for errors.
        if not name or "[[" in written or name == "error_buf":
            continue
        if "*" not in written:
            parameters.append(Parameter(name, "in", "scalar"))
        else:
            role: Role = "in" if written.split()[0] == "constant" else "out"
            parameters.append(Parameter(name, role_by_name(name) or role, "tensor"))
    return tuple(parameters)


_CPP_FUNCTION = re.compile(r"(?:void|int)\s+(?P<name>\w+)\s*\(")
# A template without fused operations: `cutlass_1a2b3c4d`.
_HASHED = re.compile(r"[a-z]+_[0-9a-f]{8}")
_CLOSED = re.compile(r"\)")
_ADDED_TO = re.compile(r"atomic_add\(&(\w+)\[")


def cpp(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of the C++ kernel that `text` declares; `None` if it declares none."""
    declared = next(
        (
            text[head.end() : end.start()]
            for head, end in spans(_CPP_FUNCTION, _CLOSED, text)
            if head["name"] == "kernel"
            or "_fused" in head["name"][1:]
            or _HASHED.fullmatch(head["name"])
        ),
        None,
    )
    if declared is None:
        return None
    added_to = set(_ADDED_TO.findall(text))
    parameters = []
    for written in filter(None, (part.strip() for part in declared.split(","))):
        name = last_word(written)
        if not name:
            return None
        kind = written.removesuffix(name).rstrip().removesuffix("__restrict__").rstrip()
        if not kind.endswith("*"):
            parameters.append(Parameter(name, "in", "scalar"))
        elif " ".join(kind.split()).startswith("const "):
            parameters.append(Parameter(name, "in", "tensor"))
        else:
            updated = name.startswith("in_") or name in added_to
            parameters.append(Parameter(name, "inout" if updated else "out", "tensor"))
    return tuple(parameters)
