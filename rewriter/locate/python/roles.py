"""Tells which arguments a launch reads and writes, as far as the call and its kernel declare it.

There is one resolver for each value of `roles` in the grammar. A resolver returns, for each
argument as written, the declared role and the declared type; `None` if these are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewriter.locate import operators
from rewriter.locate.arguments import INPUT, UNKNOWN, DeclaredArgument
from rewriter.locate.kernels import Parameter
from rewriter.locate.python.call import WrittenArgument
from rewriter.locate.python.signature import Signatures
from rewriter.locate.python.statements import head

# Keyword arguments of a launch that are not passed to the kernel; the last three are Metal's.
_LAUNCH_KEYWORDS = frozenset({"stream", "grid", "threads", "group_size", "error_buf_idx"})


@dataclass(frozen=True)
class KernelCall:
    """A launch as its resolver sees it; `returns`: the statement keeps a result."""

    callee: str
    arguments: Sequence[WrittenArgument]
    returns: bool


def by_signature(called: KernelCall, signatures: Signatures) -> list[DeclaredArgument]:
    """From the kernel's parameters; if the arguments do not fit them, nothing is known."""
    parameters = signatures.of(head(called.callee))
    positional = [argument for argument in called.arguments if not argument.keyword]
    if parameters is None or not _fits(positional, parameters):
        parameters = ()
    declared = iter([DeclaredArgument(p.role, p.type) for p in parameters])
    result = []
    for argument in called.arguments:
        if argument.keyword in _LAUNCH_KEYWORDS:
            result.append(DeclaredArgument("in", "other"))
        elif not argument.keyword:
            result.append(
                next(declared, UNKNOWN if not parameters else DeclaredArgument("in", None))
            )
        else:
            result.append(INPUT)
    return result


def _fits(arguments: Sequence[WrittenArgument], parameters: Sequence[Parameter]) -> bool:
    """Whether no number is passed as a pointer, and every parameter gets an argument."""
    return len(arguments) >= len(parameters) and not any(
        parameter.type == "tensor" and argument.is_number
        for argument, parameter in zip(arguments, parameters, strict=False)
    )


def by_out(called: KernelCall, signatures: Signatures) -> list[DeclaredArgument]:
    """`out=`, `out0=`, … are written, all others are read."""
    return [
        DeclaredArgument("out", "tensor") if argument.keyword.startswith("out") else INPUT
        for argument in called.arguments
    ]


def by_schema(called: KernelCall, signatures: Signatures) -> list[DeclaredArgument]:
    """From the operator's schema if it mutates, or else from its name: `op_` mutates its first
    argument.

    If an operator has no known schema and its result is not kept, it runs for its mutations: data
    flow decides which arguments these may be.
    """
    name = called.callee.removeprefix("torch.ops.").replace("inductor_ops.", "inductor.", 1)
    written = operators.written(name)
    if written is not None:
        return [
            DeclaredArgument("inout", None) if _is_written(written, position, argument) else INPUT
            for position, argument in enumerate(called.arguments)
        ]
    if called.returns:
        return [INPUT for _ in called.arguments]
    return [UNKNOWN for _ in called.arguments]


def _is_written(written: Sequence[int | str], position: int, argument: WrittenArgument) -> bool:
    return (argument.keyword or position) in written


PythonResolver = Callable[[KernelCall, Signatures], list[DeclaredArgument]]

RESOLVERS: dict[str, PythonResolver] = {
    "signature": by_signature,
    "out": by_out,
    "schema": by_schema,
}
