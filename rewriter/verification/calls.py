"""Evaluates the operator that a launch calls, on the recorded arguments of the launch."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from rewriter.locate.names import canonical
from rewriter.locate.types import Launch
from rewriter.verification.arguments import call_of
from rewriter.verification.bounded import Bounded, UncheckedError
from rewriter.verification.evaluate import operator_named, run
from rewriter.verification.literals import Literals

_PRODUCTS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?=[LlUuFf]*\)*$)")


def evaluate(text: str, known: Mapping[str, Bounded]) -> Any:
    """The result of the operator that a statement calls; `known` are tensors by their expressions.

    Raises `UncheckedError` if it is not such a statement, or cannot be evaluated.
    """
    call = call_of(text)
    path = ast.unparse(call.func)
    if path.startswith("extern_kernels."):
        operator = operator_named(["aten", path.removeprefix("extern_kernels.")])
    elif path.startswith(("aten.", "torch.ops.")):
        operator = operator_named(path.split("."))
    else:
        raise UncheckedError(f"{path} is no operator of torch")
    values = _Arguments(known)
    args = tuple(map(values.of, call.args))
    kwargs = {
        one.arg: values.of(one.value) for one in call.keywords if one.arg and one.arg != "out"
    }
    return run(overload(operator, kwargs), args, kwargs, None)


def evaluate_shim(launch: Launch, known: Mapping[str, Bounded]) -> Any:
    """As `evaluate`, for a matrix product that is called through the C shim: its arguments are in
    the order of the operator's, tensors first, and `beta` and `alpha` last.

    Raises `UncheckedError` for other operators.
    """
    operator = canonical(launch.kernel)
    if operator not in _PRODUCTS:
        raise UncheckedError(f"the arguments of {operator} are not read out of C++ without a graph")
    tensors = [x for x in launch.args if x.type == "tensor" and x.role == "in"]
    if len(tensors) != _PRODUCTS[operator] or any(x.expr not in known for x in tensors):
        raise UncheckedError("what it was given was not recorded")
    numbers = [_scalar(x.expr) for x in launch.args if x.type == "scalar"]
    kwargs = dict(zip(("beta", "alpha"), numbers, strict=True)) if len(numbers) == 2 else {}
    args = tuple(known[x.expr] for x in tensors)
    return run(operator_named(["aten", operator]), args, kwargs, None)


def _scalar(text: str) -> float:
    """A number of C++, such as `1L` or `static_cast<double>(0.5)`."""
    match = _NUMBER.search(text)
    if match is None:
        raise UncheckedError(f"{text} is no number")
    return float(match[0]) if "." in match[0] or "e" in match[0] else int(match[0])


def overload(operator: Any, kwargs: Mapping[str, Any]) -> Any:
    """The overload of an operator that takes these keyword arguments."""
    if isinstance(operator, str):
        return operator
    packet = operator.overloadpacket
    for one in (operator, *(getattr(packet, name) for name in packet.overloads())):
        if set(kwargs) <= {x.name for x in one._schema.arguments}:
            return one
    return operator


class _Arguments(Literals):
    """The arguments of a call, among them the recorded tensors by their expressions."""

    def __init__(self, known: Mapping[str, Bounded]) -> None:
        super().__init__({})
        self._known = known

    def of(self, one: ast.expr) -> Any:
        text = ast.unparse(one)
        if text in self._known:
            return self._known[text]
        is_view = isinstance(one, ast.Call) and ast.unparse(one.func).endswith("reinterpret_tensor")
        if is_view or isinstance(one, ast.Name):
            raise UncheckedError(f"{text} was not recorded")
        return super().of(one)


def outputs(value: Any) -> list[Bounded | None]:
    """The results of an operator in order; `None` for each that is not a tensor."""
    several = value if isinstance(value, (tuple, list)) else [value]
    return [one if isinstance(one, Bounded) else None for one in several]
