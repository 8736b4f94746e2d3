"""The inputs that a Python wrapper was compiled for, from its assertions and its harness.

`codegen_input_size_asserts` and `codegen_input_symbol_assignment` in
torch/_inductor/codegen/wrapper.py write the statements. Since torch 2.13 an input is asserted where
it is first used, since 2.15 several at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import libcst as cst

from rewriter.locate.inputs import SYMBOL, Harness, combine
from rewriter.locate.python.arithmetic import dimension
from rewriter.locate.python.harness import shape
from rewriter.locate.python.statements import Statement, elements
from rewriter.locate.types import InputSpec


class InputFacts:
    """The facts about inputs in the statements of one function, which are read in order."""

    def __init__(self) -> None:
        self._asserted: dict[str, InputSpec] = {}
        self._symbols: dict[str, str] = {}

    def read(self, statement: Statement) -> None:
        """Read a simple statement that runs in every call; it may be inside a `with`."""
        match statement.node:
            case cst.Assign(targets=[cst.AssignTarget(cst.Name() as target), *_], value=value):
                self._symbol(statement, statement.name(target), value)
            case cst.Expr(value=cst.Call(func=cst.Name(value=callee), args=args)):
                self._assert(_asserted(statement, callee, [arg.value for arg in args]))

    def _symbol(self, statement: Statement, name: str, value: cst.BaseExpression) -> None:
        """`s77 = arg2_1`, or `s0 = arg0_1_size[0]`, where `s0` is the symbol of `arg0_1[0]`."""
        if SYMBOL.match(name) and isinstance(value, (cst.Name, cst.Subscript)):
            place = statement.code(value).replace("_size[", "[")
            base, _, rest = place.partition("[")
            if base.isidentifier() and (not rest or rest[:-1].isdecimal()):
                self._symbols.setdefault(place, name)

    def add(self, other: InputFacts) -> None:
        """Add the facts of a later function: a partition uses the graph's names."""
        self._assert(other._asserted.values())
        self._symbols = other._symbols | self._symbols

    def _assert(self, facts: Iterable[InputSpec]) -> None:
        """The first assertion counts: at a later one, the name may have another value."""
        for known in facts:
            before = self._asserted.get(known.name, InputSpec(known.name, "tensor"))
            self._asserted[known.name] = replace(
                before,
                size=known.size if before.size is None else before.size,
                stride=known.stride if before.stride is None else before.stride,
                alignment=before.alignment or known.alignment,
            )

    def specs(self, names: Sequence[str], harness: Harness) -> tuple[InputSpec, ...]:
        """The known facts about each of these inputs."""
        inputs = set(names)
        symbols = {x: y for x, y in self._symbols.items() if x.partition("[")[0] in inputs}
        return combine(names, harness.examples, self._asserted, symbols)


def _asserted(
    statement: Statement, callee: str, given: Sequence[cst.BaseExpression]
) -> Iterator[InputSpec]:
    columns: Iterable[Sequence[cst.BaseExpression]] = ()
    match callee, given:
        case "assert_size_stride", [_, _, _, *_]:
            columns = [given[:3]]
        case "assert_size_stride_grouped", [_, _, _, *_]:
            columns = zip(*map(elements, given[:3]), strict=False)
        case "assert_alignment", [cst.Name() as name, bytes_, *_]:
            alignment = dimension(statement.code(bytes_))
            if alignment.isdecimal():
                yield InputSpec(statement.name(name), "tensor", alignment=int(alignment))
    for of, *dimensions in columns:
        if isinstance(of, cst.Name):
            size, stride = (shape(statement, expression) for expression in dimensions)
            yield InputSpec(statement.name(of), "tensor", size=size, stride=stride)
