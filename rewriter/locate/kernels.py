"""Reads the parameters of a kernel from the kernel's own source.

Triton: `triton_meta` has names and types; `mutated_arg_names` and Inductor's own names (`in_ptr0`,
`out_ptr0`, `in_out_ptr0`) say what is written; for kernels that people wrote, the stores in the
source do. C++: `const` and the same names. See torch/_inductor/codegen/triton.py, cpp.py and
common.py (`KernelArgs`). Metal: the address space. Kernels written in Python (Pallas, CuTe DSL,
NVIDIA's universal GEMM, FlyDSL): the parameters of the function that is called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rewriter.core import python_syntax
from rewriter.core.scan import last_word, spans
from rewriter.core.types import Role, Type

# What Inductor puts before a backslash, and the quotation marks of a docstring, where it quotes the
# source of a kernel (torch/_inductor/codegen/wrapper.py).
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """One parameter that a launch passes; `None` stands for facts that the source does not give."""

    name: str
    role: Role | None
    type: Type | None


def triton(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of the Triton kernel that `text` defines; `None` if it defines none."""
    function = _triton_kernel(text)
    if function is None:
        return None
    return _triton_function(function, _signature(function), _mutated(function))


def triton_name(text: str) -> str | None:
    """The name of the function that is launched: helpers, which it calls, may stand before it."""
    function = _triton_kernel(text)
    return None if function is None else function.name


def _triton_kernel(text: str) -> ast.FunctionDef | None:
    if "def " not in text:
        return None
    for source in (text, _ESCAPED.sub(r"\1", text)):
        try:
            tree = python_syntax.parse(source)
        except SyntaxError:
            continue
        except python_syntax.TooDeepError:
            return None
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        return next(filter(_is_launchable, functions), None)
    return None


def _is_launchable(function: ast.FunctionDef) -> bool:
    return any("triton_meta" in _keywords(decorator) for decorator in function.decorator_list)


def _keywords(decorator: ast.expr) -> dict[str, ast.expr]:
    if not isinstance(decorator, ast.Call):
        return {}
    return {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}


def _metadata(function: ast.FunctionDef, keyword: str, key: str) -> ast.expr | None:
    for decorator in function.decorator_list:
        metadata = _keywords(decorator).get(keyword)
        if isinstance(metadata, ast.Dict):
            for name, value in zip(metadata.keys, metadata.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key:
                    return value
    return None


def _signature(function: ast.FunctionDef) -> dict[str, str]:
    value = _metadata(function, "triton_meta", "signature")
    if not isinstance(value, ast.Dict):
        return {}
    return {
        key.value: str(kind.value) if isinstance(kind, ast.Constant) else ""
        for key, kind in zip(value.keys, value.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _mutated(function: ast.FunctionDef) -> frozenset[str]:
    value = _metadata(function, "inductor_meta", "mutated_arg_names")
    if value is None:
        return frozenset()
    return frozenset(str(node.value) for node in ast.walk(value) if isinstance(node, ast.Constant))


def _triton_function(
    function: ast.FunctionDef, signature: dict[str, str], mutated: frozenset[str]
) -> tuple[Parameter, ...]:
    accesses: tuple[set[str], set[str]] | None = None
    parameters = []
    for name, kind in signature.items():
        if kind == "constexpr":
            continue
        if not kind.startswith("*") and not kind.startswith("tensordesc"):
            parameters.append(Parameter(name, "in", "scalar"))
            continue
        role = "inout" if name in mutated else role_by_name(name)
        if role is None:
            # A template, or a kernel that somebody wrote: only its body says what it writes.
            loaded, stored = accesses = accesses or _accesses(function)
            role = ("inout" if name in loaded else "out") if name in stored else "in"
        parameters.append(Parameter(name, role, "tensor"))
    return tuple(parameters)


def role_by_name(name: str) -> Role | None:
    """The role that a parameter's name gives it, if it is one of Inductor's names."""
    prefixes: tuple[tuple[str, Role], ...] = (
        ("in_out_ptr", "inout"),
        ("out_ptr", "out"),
        ("in_ptr", "in"),
    )
    return next((role for prefix, role in prefixes if name.startswith(prefix)), None)


def _accesses(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """The parameters that occur in addresses of loads, and of stores or atomics.

    A name stands for the parameters in what it was assigned from. Takes two passes, because a loop
    may advance an address at its end.
    """
    carried: dict[str, set[str]] = {arg.arg: {arg.arg} for arg in function.args.args}

    def of(node: ast.AST) -> set[str]:
        reached: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                reached |= carried.get(inner.id, set())
        return reached

    loaded: set[str] = set()
    stored: set[str] = set()
    for _ in range(2):
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                operation = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                if operation == "load" and node.args:
                    loaded |= of(node.args[0])
                elif operation.startswith("atomic_") and node.args:
                    loaded |= of(node.args[0])
                    stored |= of(node.args[0])
                elif operation.startswith("store") and node.args:
                    stored |= of(node.args[0])
                    if isinstance(node.func, ast.Attribute):
                        # The method of a tensor descriptor: `o.store([...], value)`.
                        stored |= of(node.func.value)
            for target, value in _assignments(node):
                if not any(_is_load(inner) for inner in ast.walk(value)):
                    carried.setdefault(target, set()).update(of(value))
    return loaded, stored


def _is_load(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("load", "dot")
    )


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name):
                    yield inner.id, node.value
    elif (
        isinstance(node, (ast.AugAssign, ast.AnnAssign))
        and isinstance(node.target, ast.Name)
        and node.value is not None
    ):
        yield node.target.id, node.value


def stored(function: ast.FunctionDef) -> set[str]:
    """The parameters of a Triton function that it stores to."""
    return _accesses(function)[1]


# The name of the function that is called: `def pallas_fused_add_1a2b3c4d_main(…, stream=None):`.
_MAIN = "_main"
# Inputs that templates write: torch/_inductor/kernel/flex/flex_flash_attention.py.
_WRITTEN_INPUTS = frozenset({"arg_LOGSUMEXP", "arg_DK", "arg_DV"})


def python_main(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of a kernel that is written in Python; `None` if `text` has none.

    Inputs of a template are `arg_A`; `out_ptr0_alias` of Pallas is `out_ptr0`, which follows it.
    """
    try:
        tree = python_syntax.parse(text)
    except (SyntaxError, python_syntax.TooDeepError):
        return None
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.endswith(_MAIN):
            given = (one.arg for one in function.args.args if one.arg != "stream")
            return tuple(map(_python_parameter, given))
    return None


def _python_parameter(name: str) -> Parameter:
    if name in _WRITTEN_INPUTS:
        return Parameter(name, "out", "tensor")
    if name.startswith("workspace"):
        return Parameter(name, "inout", "tensor")
    if name.startswith("arg_"):
        return Parameter(name, "in", "tensor")
    role = role_by_name(name)
    # Sizes have their own names. In NVIDIA's GEMM, inputs are named as buffers are.
    return Parameter(name, role or "in", "tensor" if role else None)


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
