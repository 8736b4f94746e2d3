"""What a Python wrapper was made for: what it asserts of its inputs, and its harness.

`codegen_input_size_asserts` and `codegen_input_symbol_assignment` in
torch/_inductor/codegen/wrapper.py write what is read here; since torch 2.13 an input is asserted
where it is first used, since 2.15 several at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rewriter.locate.inputs import SYMBOL, Harness, combine, dimension, shape
from rewriter.locate.types import InputSpec

_PARTITION = "partition_"


def input_specs(
    module: Sequence[ast.stmt],
    entry: ast.FunctionDef | ast.AsyncFunctionDef,
    names: Sequence[str],
    harness: Harness,
) -> tuple[InputSpec, ...]:
    """What is known of each input of `entry`, one function of the module."""
    # A partition has the graph's own names; its inputs may be the entry's.
    partitions = [
        node
        for node in module
        if isinstance(node, ast.FunctionDef) and node.name.startswith(_PARTITION)
    ]
    asserted: dict[str, InputSpec] = {}
    symbols: dict[str, str] = {}
    for function in (entry, *partitions):
        for statement in _statements(function.body):
            symbols = _symbol(statement, names) | symbols
            for known in _asserted(statement):
                if known.name in names:
                    before = asserted.get(known.name, InputSpec(known.name, "tensor"))
                    asserted[known.name] = _merged(before, known)
    return combine(names, harness.examples, asserted, symbols)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The simple statements of a body, in order, also of what stands under a `with`."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.Try)):
            yield from _statements(statement.body)
        else:
            yield statement


def _asserted(statement: ast.stmt) -> Iterator[InputSpec]:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return
    callee = call.func.id
    if callee == "assert_size_stride" and len(call.args) >= 3:
        yield from _of_sizes(*call.args[:3])
    elif callee == "assert_size_stride_grouped" and len(call.args) >= 3:
        columns = [
            part.elts if isinstance(part, (ast.Tuple, ast.List)) else () for part in call.args[:3]
        ]
        for name, size, stride in zip(*columns, strict=False):
            yield from _of_sizes(name, size, stride)
    elif callee == "assert_alignment" and len(call.args) >= 2:
        bytes_ = dimension(ast.unparse(call.args[1]))
        if isinstance(call.args[0], ast.Name) and bytes_.isdecimal():
            yield InputSpec(call.args[0].id, "tensor", alignment=int(bytes_))


def _of_sizes(name: ast.expr, size: ast.expr, stride: ast.expr) -> Iterator[InputSpec]:
    if isinstance(name, ast.Name):
        yield InputSpec(name.id, "tensor", size=shape(size), stride=shape(stride))


def _merged(before: InputSpec, known: InputSpec) -> InputSpec:
    """The first assertion counts: a later one may be of what took over the name."""
    return replace(
        before,
        size=known.size if before.size is None else before.size,
        stride=known.stride if before.stride is None else before.stride,
        alignment=before.alignment or known.alignment,
    )


def _symbol(statement: ast.stmt, names: Sequence[str]) -> dict[str, str]:
    """`s77 = arg2_1`, or `s0 = arg0_1_size[0]`, which is the symbol of `arg0_1[0]`."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return {}
    target, value = statement.targets[0].id, statement.value
    if not SYMBOL.match(target):
        return {}
    place = ast.unparse(value).replace("_size[", "[")
    name, _, rest = place.partition("[")
    is_input = name in names and (not rest or rest[:-1].isdecimal())
    return {place: target} if is_input else {}
