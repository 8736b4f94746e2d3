"""Reads the functions of a wrapper that make example inputs: `rewriter/runtime/host/harness.py`."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from rewriter.locate.inputs import Harness
from rewriter.locate.python.arithmetic import dimension
from rewriter.locate.python.module import Block, Module
from rewriter.locate.python.statements import Statement
from rewriter.locate.types import InputSpec
from rewriter.runtime.host.harness import HARNESSES


def read_harness(module: Module) -> Harness:
    """The example inputs: tensors are made by `rand_strided`, numbers are literals."""
    examples: dict[str, InputSpec] = {}
    constants = set()
    for function in module.body:
        if not isinstance(function, Block) or function.name not in HARNESSES:
            continue
        for part in module.each(function.body):
            if isinstance(part, Statement) and isinstance(part.node, cst.Assign):
                value = part.node.value
                if name := part.name(part.node.targets[0].target):
                    examples[name] = _example(name, part, value, examples)
                    is_literal = isinstance(value, (cst.BaseNumber, cst.BaseString, cst.Name))
                    if is_literal and not part.names(value):
                        constants.add(name)
    return Harness(examples, frozenset(constants))


def shape(statement: Statement, node: cst.BaseExpression) -> tuple[str, ...] | None:
    """The members of a tuple or list of dimensions."""
    if not isinstance(node, (cst.Tuple, cst.List)):
        return None
    return tuple(dimension(statement.code(element.value)) for element in node.elements)


def _example(
    name: str, statement: Statement, value: cst.BaseExpression, before: dict[str, InputSpec]
) -> InputSpec:
    match value:
        case cst.Integer():
            return InputSpec(name, "int")
        case cst.Float():
            return InputSpec(name, "float")
        case cst.Call(args=[first, second, *more]):
            callee = statement.callee(value)
            if callee == "rand_strided":
                given = {x.keyword.value: x.value for x in value.args if x.keyword}
                dtype, device = given.get("dtype"), given.get("device")
                return InputSpec(
                    name,
                    "tensor",
                    dtype=statement.code(dtype).removeprefix("torch.") if dtype else "",
                    device=statement.string(device) or "",
                    size=shape(statement, first.value),
                    stride=shape(statement, second.value),
                )
            if callee == "torch.as_strided" and more:
                base = before.get(statement.code(first.value), InputSpec(name, "tensor"))
                size, stride = shape(statement, second.value), shape(statement, more[0].value)
                return replace(base, name=name, size=size, stride=stride)
    return InputSpec(name)
