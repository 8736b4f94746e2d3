"""The operator that a launch of a Python wrapper names, evaluated on what it was handed."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from typing import Any

from rewriter.locate.types import Launch
from rewriter.verification.bounded import Bounded, UncheckedError
from rewriter.verification.evaluate import Literals, operator_named, run


def evaluate(text: str, launch: Launch, known: Mapping[str, Bounded]) -> Any:
    """What the operator of a statement computes of the tensors in `known`, by their expressions.

    Raises `UncheckedError` where it is no such statement, or nothing can be said of it.
    """
    call = _call(text)
    path = ast.unparse(call.func)
    if path.startswith("extern_kernels."):
        operator = operator_named(["aten", path.removeprefix("extern_kernels.")])
    elif path.startswith(("aten.", "torch.ops.")):
        operator = operator_named(path.split("."))
    else:
        raise UncheckedError(f"{path} is no operator of torch")
    values = _Handed(known)
    args = tuple(map(values.of, call.args))
    kwargs = {
        one.arg: values.of(one.value) for one in call.keywords if one.arg and one.arg != "out"
    }
    return run(overload(operator, kwargs), args, kwargs, None)


def overload(operator: Any, kwargs: Mapping[str, Any]) -> Any:
    """The overload of an operator that takes these keywords."""
    if isinstance(operator, str):
        return operator
    names = {one.name for one in operator._schema.arguments}
    if set(kwargs) <= names:
        return operator
    packet = operator.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        if set(kwargs) <= {one.name for one in other._schema.arguments}:
            return other
    return operator


def _call(text: str) -> ast.Call:
    try:
        statement = ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, IndexError) as error:
        raise UncheckedError("the statement of the launch is no Python") from error
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        raise UncheckedError("the statement of the launch is no call")
    return value


class _Handed(Literals):
    """The arguments of a call: views of buffers are values that were recorded."""

    def __init__(self, known: Mapping[str, Bounded]) -> None:
        super().__init__({})
        self._known = known

    def of(self, one: ast.expr) -> Any:
        text = ast.unparse(one)
        if text in self._known:
            return self._known[text]
        if isinstance(one, ast.Call) and ast.unparse(one.func).endswith("reinterpret_tensor"):
            raise UncheckedError(f"{text} was not recorded")
        if isinstance(one, ast.Name):
            raise UncheckedError(f"{text} was not recorded")
        return super().of(one)


def outputs(value: Any) -> list[Bounded | None]:
    """The results of an operator in their order; of those that are no tensors, `None`."""
    several = value if isinstance(value, (tuple, list)) else [value]
    return [one if isinstance(one, Bounded) else None for one in several]
