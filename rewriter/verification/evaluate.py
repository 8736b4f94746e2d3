"""Evaluates nodes of a graph from known values, each operation with its rounding bound."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from rewriter.artifact.naming.graph import ATTRIBUTE, FxGraph, FxNode
from rewriter.verification.bounded import UncheckedError, in_short
from rewriter.verification.graph_types import TensorType, tensor_type
from rewriter.verification.literals import Literals
from rewriter.verification.operators import random, rules

_CONTROL = ("higher_order.cond", "higher_order.while_loop", "higher_order.invoke_subgraph", "self.")
_MOST = 1 << 28  # elements of a result


class Evaluator:
    """Computes the values of nodes from known values, each once."""

    def __init__(
        self, graph: FxGraph, known: Mapping[str, Any], sizes: Mapping[str, int] | None = None
    ) -> None:
        self._graph = graph
        self._values: dict[str, Any] = dict(known)
        self._sizes = dict(sizes or {})

    def computable(self, forbidden: frozenset[str] = frozenset()) -> set[str]:
        """The nodes that can be computed from the known values, without forbidden operators."""
        found = set(self._values)
        for node in self._graph.nodes.values():
            if node.operator not in (ATTRIBUTE, *forbidden) and all(
                name in found or name in self._sizes for name in node.reads
            ):
                found.add(node.name)
        return found

    def type_of(self, name: str) -> TensorType | None:
        """The type of a node or an input in the text of the graph."""
        node = self._graph.nodes.get(name)
        text = node.type if node is not None and node.type else self._graph.types.get(name, "")
        return tensor_type(text, self._sizes)

    def value(self, name: str) -> Any:
        """The value of a node. Raises `UncheckedError` if it cannot be computed."""
        wanted = [name]
        needed: set[str] = set()
        while wanted:
            one = wanted.pop()
            if one in self._values or one in needed or one in self._sizes:
                continue
            node = self._graph.nodes.get(one)
            if node is None:
                raise UncheckedError(f"{one} is not known")
            needed.add(one)
            wanted += node.reads
        for node in self._graph.nodes.values():
            if node.name in needed:
                self._values[node.name] = self._compute(node)
        return self._values[name]

    def _compute(self, node: FxNode) -> Any:
        if node.item is not None:
            items = self._values[node.reads[0]]
            if not isinstance(items, (tuple, list)):
                return items
            if node.item >= len(items):  # such as the state of a random generator
                raise UncheckedError(f"{node.name} is no result of what is evaluated on the CPU")
            return items[node.item]
        if node.operator == "alias" and not node.call:
            return self._values[node.reads[0]]
        if node.operator == ATTRIBUTE:
            raise UncheckedError(f"{node.name} was not recorded")
        if node.call.startswith(_CONTROL):
            raise UncheckedError(
                f"it needs {node.name}, which a graph inside of the graph computes"
            )
        kind = self.type_of(node.name)
        if kind is not None and (kind.numel or 0) > _MOST:
            raise UncheckedError(f"{node.name} is too large to be computed here")
        try:
            call = ast.parse(node.call, mode="eval").body
        except (SyntaxError, RecursionError) as error:
            raise UncheckedError(f"the text of {node.name} is no expression") from error
        literals = Literals({**self._sizes, **self._values})
        if not isinstance(call, ast.Call):
            return literals.of(call)
        operator = _operator(call.func)
        args = tuple(map(literals.of, call.args))
        kwargs = {one.arg: literals.of(one.value) for one in call.keywords if one.arg}
        if node.operator in random.NAMES:
            on_gpu = self._is_on_gpu(node)
            return attempt(
                operator, lambda: random.drawn(node.operator, args, kwargs, on_gpu=on_gpu)
            )
        return run(operator, args, kwargs, None if kind is None else kind.dtype)

    def _is_on_gpu(self, node: FxNode) -> bool:
        """Whether a GPU draws the random numbers of a node. If its type has no device, as in the
        graph of a package, the calls that make seeds decide."""
        device = node.type.rpartition("]")[2]
        if device:
            return device != "cpu"
        seeds = (x.call for x in self._graph.nodes.values() if x.operator == "inductor_seeds")
        return not any("'cpu'" in call for call in seeds)


def run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Any:
    """The result of one operator. Any error of the operator becomes an `UncheckedError`."""
    if isinstance(operator, str):  # a size
        tensor, index = args
        return int(tensor.value.shape[index])
    args, kwargs = _by_position(operator, args, kwargs)
    return attempt(operator, lambda: rules.apply(operator, args, kwargs, dtype))


def attempt(operator: Any, compute: Callable[[], Any]) -> Any:
    """The result of a function. Any error in it becomes an `UncheckedError`."""
    try:
        with torch.no_grad():
            return compute()
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        problem = f"{operator} could not be evaluated on the CPU: {in_short(error)}"
        raise UncheckedError(problem) from error


def _by_position(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with keyword arguments made positional where possible, as rules expect."""
    named = dict(kwargs)
    for argument in operator._schema.arguments[len(args) :]:
        if argument.kwarg_only or argument.name not in named:
            break
        args = (*args, named.pop(argument.name))
    return args, named


def operator_named(names: Iterable[str]) -> Any:
    """The operator of a path such as `aten`, `add`, `Tensor`. Raises `UncheckedError`."""
    names = list(names)
    if names[:2] == ["torch", "ops"]:
        names = names[2:]
    if len(names) > 1 and names[1].endswith("_") and names[0] == "aten":
        names[1] = names[1].rstrip("_")  # an in-place operator returns what it writes
    path = ".".join(names)
    if path.endswith(("sym_size.int", "sym_size.default")):
        return "size"
    try:
        import torch._inductor.inductor_prims  # registers `prims`

        value: Any = torch.ops
        for name in names:
            value = getattr(value, name)
        if isinstance(value, torch._ops.OpOverloadPacket):
            value = getattr(value, "default", None) or getattr(value, value.overloads()[0])  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError) as error:
        raise UncheckedError(f"the operator {path} is not registered here") from error
    if not isinstance(value, torch._ops.OpOverload):
        raise UncheckedError(f"{path} is no operator that can be evaluated alone")
    return value


def _operator(function: ast.expr) -> Any:
    return operator_named(ast.unparse(function).split("."))
