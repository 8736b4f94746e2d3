"""The inputs that a Python wrapper was compiled for, from its assertions and its harness.

`codegen_input_size_asserts` and `codegen_input_symbol_assignment` in
torch/_inductor/codegen/wrapper.py write the statements. Since torch 2.13 an input is asserted where
it is first used, since 2.15 several at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rewriter.core.python_pieces import Module
from rewriter.locate.inputs import SYMBOL, Harness, combine, dimension, shape
from rewriter.locate.types import InputSpec


class InputFacts:
    """The facts about inputs in the statements of one function, which are read in order."""

    def __init__(self) -> None:
        self._asserted: dict[str, InputSpec] = {}
        self._symbols: dict[str, str] = {}

    def read(self, statement: ast.stmt) -> None:
        """Read a simple statement that runs in every call; it may be inside a `with`."""
        if isinstance(statement, ast.Assign):
            for place, symbol in _symbol(statement):
                self._symbols.setdefault(place, symbol)
        elif isinstance(statement, ast.Expr):
            for known in _asserted(statement):
                self._assert(known)

    def add(self, other: InputFacts) -> None:
        """Add the facts of a later function: a partition uses the graph's names."""
        for known in other._asserted.values():
            self._assert(known)
        self._symbols = other._symbols | self._symbols

    def specs(self, names: Sequence[str], harness: Harness) -> tuple[InputSpec, ...]:
        """The known facts about each of these inputs."""
        inputs = set(names)
        return combine(
            names,
            harness.examples,
            {name: known for name, known in self._asserted.items() if name in inputs},
            {
                place: symbol
                for place, symbol in self._symbols.items()
                if place.partition("[")[0] in inputs
            },
        )

    def _assert(self, known: InputSpec) -> None:
        before = self._asserted.get(known.name, InputSpec(known.name, "tensor"))
        self._asserted[known.name] = _merged(before, known)


def read_facts(module: Module, function: ast.FunctionDef) -> InputFacts:
    """Read the facts about inputs in a function."""
    facts = InputFacts()

    def read(block: Sequence[ast.stmt]) -> None:
        for statement in module.statements(block):
            if isinstance(statement, (ast.With, ast.Try)):
                read(statement.body)
            else:
                facts.read(statement)

    read(function.body)
    return facts


def _asserted(statement: ast.Expr) -> Iterator[InputSpec]:
    call = statement.value
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
    """The first assertion counts: at a later one, another value may have taken over the name."""
    return replace(
        before,
        size=known.size if before.size is None else before.size,
        stride=known.stride if before.stride is None else before.stride,
        alignment=before.alignment or known.alignment,
    )


def _symbol(statement: ast.Assign) -> Iterator[tuple[str, str]]:
    """`s77 = arg2_1`, or `s0 = arg0_1_size[0]`, where `s0` is the symbol of `arg0_1[0]`."""
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Name) and SYMBOL.match(target.id)):
        return
    place = ast.unparse(value).replace("_size[", "[")
    name, _, rest = place.partition("[")
    if name.isidentifier() and (not rest or rest[:-1].isdecimal()):
        yield place, target.id
