"""Tells which arguments a launch reads and writes, as far as the call and its kernel declare it.

There is one resolver for each value of `roles` in the grammar. A resolver returns, for each
argument as written, the declared role and the declared type; `None` if these are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rewriter.locate import operators
from rewriter.locate.arguments import INPUT, UNKNOWN, DeclaredArgument
from rewriter.locate.kernels import Parameter
from rewriter.locate.python.call import WrittenArgument
from rewriter.locate.python.signature import Signatures
from rewriter.locate.python.statements import head

# Keyword arguments of a launch that are not passed to the kernel; the last three are Metal's.
_LAUNCH_KEYWORDS = frozenset({"stream", "grid", "threads", "group_size", "error_buf_idx"})


Arguments = Sequence[WrittenArgument]
# Takes the callee, its arguments, whether its result is kept, and the kernels' parameters.
PythonResolver = Callable[[str, Arguments, bool, Signatures], list[DeclaredArgument]]


def by_signature(
    callee: str, arguments: Arguments, is_kept: bool, signatures: Signatures
) -> list[DeclaredArgument]:
    """From the kernel's parameters; if the arguments do not fit them, nothing is known."""
    parameters = signatures.of(head(callee))
    positional = [argument for argument in arguments if not argument.keyword]
    if parameters is None or not _fits(positional, parameters):
        parameters = ()
    declared = iter([DeclaredArgument(p.role, p.type) for p in parameters])
    result = []
    for argument in arguments:
        if argument.keyword in _LAUNCH_KEYWORDS:
            result.append(DeclaredArgument("in", "other"))
        elif argument.keyword:
            result.append(INPUT)
        else:
            result.append(next(declared, INPUT if parameters else UNKNOWN))
    return result


def _fits(arguments: Arguments, parameters: Sequence[Parameter]) -> bool:
    """Whether no number is passed as a pointer, and every parameter gets an argument."""
    return len(arguments) >= len(parameters) and not any(
        parameter.type == "tensor" and argument.is_number
        for argument, parameter in zip(arguments, parameters, strict=False)
    )


def by_out(
    callee: str, arguments: Arguments, is_kept: bool, signatures: Signatures
) -> list[DeclaredArgument]:
    """`out=`, `out0=`, … are written, all others are read."""
    out = DeclaredArgument("out", "tensor")
    return [out if argument.keyword.startswith("out") else INPUT for argument in arguments]


def by_schema(
    callee: str, arguments: Arguments, is_kept: bool, signatures: Signatures
) -> list[DeclaredArgument]:
    """From the operator's schema if it mutates, or else from its name: `op_` of PyTorch mutates its
    first argument.

    If an operator has no known schema and its result is not kept, it runs for its mutations: data
    flow decides which arguments these may be, until the program tells (`runtime/plain.py`).
    """
    name = operator_of(callee)
    written = operators.written(name)
    places = [argument.keyword or place for place, argument in enumerate(arguments)]
    if written is None:
        unknown = INPUT if is_kept else UNKNOWN
        asks = not operators.is_torchs(name)
        return [replace(unknown, parameter=str(x)) if asks else unknown for x in places]
    update = DeclaredArgument("inout", None)
    return [update if place in written else INPUT for place in places]


def operator_of(callee: str) -> str:
    """`namespace.op.overload` of what a wrapper calls."""
    return callee.removeprefix("torch.ops.").replace("inductor_ops.", "inductor.", 1)


RESOLVERS: dict[str, PythonResolver] = {
    "signature": by_signature,
    "out": by_out,
    "schema": by_schema,
}
