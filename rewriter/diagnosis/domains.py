"""What may make NaN among the operators that a launch computes, and the nodes that compute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rewriter.diagnosis.verdict import NonFiniteVerdict
from rewriter.diagnosis.verdict_values import VerdictArgument
from rewriter.dump.rows import TensorRow, finite
from rewriter.locate.declarations import unwritten_operators
from rewriter.model_names.graph import FxGraph

# Functions in the names of kernels and operators, and when their result is NaN.
_DOMAINS = (
    (("log", "log2", "log10"), "a logarithm of a negative number is NaN"),
    (("sqrt", "rsqrt"), "the square root of a negative number is NaN"),
    (("pow",), "a fractional power of a negative number is NaN"),
)
_POSITIVE = ("abs", "exp", "exp2", "relu", "sigmoid", "softplus", "square", "var")
_KEEPING = ("add", "amax", "clone", "expand", "mean", "mul", "sum")  # of what is positive
_WHOLE_POWER = re.compile(r"pow\.Tensor_Scalar\(\w+, -?\d*(?P<last>\d)(?:\.0)?\)")
_VARIANCE = re.compile(r"var_mean\w*\[0\]")  # the mean is the other one
_CALLED = re.compile(r"aten\.(?P<operator>\w+)\.\w+\((?P<first>[\w.-]+)?(?:, (?P<second>[\w.-]+))?")
_TINY = 1e-38  # what is added and is less may be 0 in float32
# What a kernel computes, and what becomes of it at 0: NaN, and infinities.
_DIVISIONS = ("div", "reciprocal", "rsqrt")
_LOGARITHMS = ("log", "log2", "log10")


@dataclass(frozen=True)
class Domain:
    """A note about an operator that is NaN or infinite for some values, and the nodes of the graph
    that compute it, if these are known."""

    note: str
    nodes: tuple[str, ...] = ()


def domains(
    verdict: NonFiniteVerdict,
    read: Sequence[tuple[VerdictArgument, TensorRow]],
    graph: FxGraph | None,
) -> Iterator[Domain]:
    """The operators of the launch that are NaN for some of the values that it `read`. `graph` is
    the one that its wrapper was compiled from."""
    if verdict.state not in ("made", "wrote", "infinite") or verdict.cause is not None:
        return
    calls = dict(compute.split(" = ", 1) for compute in verdict.computes if " = " in compute)
    for name, call in calls.items():
        if (match := _CALLED.match(call)) and match["operator"] in unwritten_operators():
            what = f"{name} = {call.partition('(')[0]}, which the model does not write"
            yield Domain(f"It computes with {what}: Inductor has NaN there.", (name,))
            return
    words = set(re.split(r"[._ ]", " ".join((verdict.kernel, *verdict.origins))))
    if found := _zeros(verdict, words, read, calls, graph):
        yield found
        # The derivative of a square root or a logarithm is a division.
        if "backward" in words or verdict.state == "infinite":
            return
    lowest = [(x.in_model, finite(row.min)) for x, row in read if row.is_floating]
    below = [(name, low) for name, low in lowest if low is not None and low < 0]
    for functions, why in _DOMAINS:
        computed = [word for word in functions if word in words]
        if not computed or (nodes := _risky(calls, functions, _is_positive)) is None:
            continue
        # No argument of the launch shows an operand that the launch computes itself.
        own = (f"{x} = {call}, of {of} = {calls[of]}" for x, call in nodes.items()
               if (of := _operand(call)) in calls)  # fmt: skip
        if inside := next(own, ""):
            yield Domain(f"It computes {inside}: {why}.", tuple(nodes))
        elif below:
            named = ", ".join(f"{name} goes down to {low:.4g}" for name, low in below[:3])
            note = f"By its name the kernel computes {computed[0]}: {why}, and {named}."
            yield Domain(note, tuple(nodes))


def _zeros(
    verdict: NonFiniteVerdict,
    words: set[str],
    read: Sequence[tuple[VerdictArgument, TensorRow]],
    calls: Mapping[str, str],
    graph: FxGraph | None,
) -> Domain | None:
    """What a 0 among what the launch read comes to, if the kernel divides, or takes a logarithm.

    The backward of a square root and of a norm divides by their result.
    """
    functions, why = _DIVISIONS, "what is divided by 0 is infinite"
    if verdict.state != "infinite":
        why = "0 divided by 0 is NaN, any other number infinite"
    elif words & {*_LOGARITHMS}:
        functions, why = _LOGARITHMS, "a logarithm of 0 is -Inf"
    computed = [word for word in functions if word in words]
    real = [(x, finite(row.min), finite(row.max)) for x, row in read if row.is_floating]
    zeros = [x for x, *ends in real if 0 in ends]
    if (nodes := _risky(calls, functions, _is_above_zero)) is None:
        return None
    operands = [operand for call in nodes.values() if (operand := _operand(call))]
    if graph is not None and operands:  # those that no divisor is computed from are left out
        behind = {*operands}.union(*map(graph.ancestors, operands))
        zeros = [x for x in zeros if x.name in behind or x.name not in graph.inputs]
    if not (computed and zeros):
        return None
    named = f"there is a 0 in {', '.join(x.in_model for x in zeros[:3])}"
    if len(operands) == 1 and operands[0] in calls:
        named += f", from which {operands[0]} is computed"
    does = f"By its name the kernel computes {computed[0]}"
    if len(nodes) == 1:
        ((name, call),) = nodes.items()
        does = f"It computes {name} = {call}"
    return Domain(f"{does}: {why}, and {named}.", tuple(nodes))


def _risky(
    calls: Mapping[str, str],
    functions: Sequence[str],
    is_safe: Callable[[str, Mapping[str, str]], bool],
) -> dict[str, str] | None:
    """The calls of functions by the names of their nodes, without those that are safe by their
    operands; `None` if all are."""
    made = {
        name: call
        for name, call in calls.items()
        if (match := _CALLED.match(call)) and match["operator"] in functions
    }
    risky = {
        name: call
        for name, call in made.items()
        if not (_WHOLE_POWER.search(call) or is_safe(_operand(call), calls))
    }
    return None if made and not risky else risky


def _operand(call: str) -> str:
    """What a function is NaN or infinite for, such as a divisor; empty if the call does not say."""
    match = _CALLED.match(call)
    assert match is not None
    return match["second" if match["operator"] == "div" else "first"] or ""


def _is_above_zero(name: str, calls: Mapping[str, str]) -> bool:
    """Whether a node is a number, or positive with something added, as in a layer norm."""
    if (value := _number(name)) is not None:
        return value != 0
    match = _CALLED.match(calls.get(name, ""))
    if match is None or match["operator"] != "add":
        return False
    return (_number(match["second"]) or 0.0) > _TINY and _is_positive(match["first"], calls)


def _is_positive(name: str, calls: Mapping[str, str]) -> bool:
    """Whether a node is never negative, whatever it is computed from, by its operators."""
    waiting, seen = [name], {name}
    while waiting:
        call = calls.get(one := waiting.pop(), "")
        match, power = _CALLED.match(call), _WHOLE_POWER.search(call)
        if match is None:
            if not (_VARIANCE.match(call) or (_number(one) or -1.0) > 0):
                return False
            continue
        operator, *given = match.groups()
        is_square = operator == "mul" and given[0] == given[1]
        if operator in _POSITIVE or is_square or (power and int(power["last"]) % 2 == 0):
            continue
        if operator not in _KEEPING:
            return False
        read = given if operator in ("add", "mul") else given[:1]
        waiting += {x or "" for x in read} - seen
        seen |= {*waiting}
    return True


def _number(text: str | None) -> float | None:
    with suppress(ValueError):
        return float(text or "")
    return None
