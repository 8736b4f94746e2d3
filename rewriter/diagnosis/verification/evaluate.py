"""Evaluates nodes of a graph from known values, each operation with its rounding bound."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from rewriter.diagnosis.verification import control_flow
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, exact, in_short
from rewriter.diagnosis.verification.graph_types import Literals, TensorType, parsed, tensor_type
from rewriter.diagnosis.verification.operators import random, rules
from rewriter.diagnosis.verification.operators.operands import is_written
from rewriter.dump.rows import TensorRow
from rewriter.model_names.graph import ATTRIBUTE, FxGraph, FxNode

_MOST = 1 << 28  # elements of a result
THROUGH = "written_through"  # the operator of a base of which a view was written
MEAN = "mean_of_sum"  # that of a mean, which is computed from its sum


class UnregisteredError(UncheckedError):
    """An operator is not registered in this process."""


class Evaluator:
    """Computes the values of nodes from known values, each once. `inner` are the graphs inside of
    the graph, without which no condition or loop is evaluated."""

    def __init__(
        self,
        graph: FxGraph,
        known: Mapping[str, Any],
        sizes: Mapping[str, int] | None = None,
        inner: Mapping[str, FxGraph] = MappingProxyType({}),
    ) -> None:
        self._graph, self._inner = graph, inner
        self._values: dict[str, Any] = dict(known)
        self._sizes = dict(sizes or {})

    def starting_with(self, known: Mapping[str, Any]) -> Evaluator:
        """The same graph, computed from other values."""
        return Evaluator(self._graph, known, self._sizes, self._inner)

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
        return tensor_type(self._graph.type_of(name), self._sizes)

    def is_opaque(self, name: str) -> bool:
        """Whether a name is an input that is no tensor and no number, such as vLLM's name of a
        layer, which nobody records."""
        given = self._graph.inputs.keys() - self._graph.nodes.keys() - self._sizes.keys()
        return name in given and not self._graph.types.get(name)

    def held_as(self, name: str, row: TensorRow) -> list[str]:
        """What a recorded tensor is that has the memory of a node: that node, its base or a view of
        it, by shape and stride. One of the same shape may lie otherwise than the graph says. Of
        several only one is meant: a square value is itself, or its transpose.
        """
        kinds = ((text, self.type_of(text)) for text in self._graph.family(name))
        shaped = {text: kind for text, kind in kinds if kind and kind.shape == row.shape}
        exact = next((text for text, kind in shaped.items() if kind.lies_as(row)), "")
        if not exact:
            return list(shaped)
        return [exact, *({name} & shaped.keys() - {exact})]

    def base_of(self, view: str, value: Bounded) -> Bounded | None:
        """The value of the base of a view that has all of its elements; `None` of another one."""
        base = self._graph.base(view)
        kind = self.type_of(base)
        if kind is None or kind.numel != value.value.numel():
            return None
        shape = tuple(x or 0 for x in kind.shape)
        into = self._places(view, shape)
        if into.numel() != kind.numel or len(set(into.tolist())) != kind.numel:
            return None
        return value.moved(lambda part: _put(torch.empty(shape, dtype=part.dtype), part, into))

    def _places(self, view: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The elements of its base, of this shape, that a view has, in the order of the view."""
        numbers = exact(torch.arange(math.prod(shape)).reshape(shape))
        inside = self.starting_with({self._graph.base(view): numbers})
        places: torch.Tensor = inside.value(view).value
        if places.dtype != torch.int64:
            raise UncheckedError(f"{view} has another type than the memory that it is a view of")
        return places.reshape(-1)

    def statement(self, name: str) -> str:
        """The statement of a node, or of the one that it is a view or a copy of."""
        return self._graph.statement(self._graph.base(name))

    def is_undefined(self, name: str) -> bool:
        """Whether a node may have values that nothing defines, as `torch.empty` returns them."""
        seen, todo = set[str](), [name]
        while todo:
            node = self._graph.nodes.get(one := todo.pop())
            if node is None or one in seen:
                continue
            if "empty" in node.operator:
                return True
            seen.add(one)
            todo += map(self._graph.base, node.reads)
        return False

    def value(self, name: str) -> Any:
        """The value of a node. Raises `UncheckedError` if it cannot be computed."""
        wanted, needed = [name], set[str]()
        while wanted:
            one = wanted.pop()
            if one in self._values or one in needed or one in self._sizes:
                continue
            if one not in self._graph.nodes:
                raise UncheckedError(f"{one} is not known")
            needed.add(one)
            node = self._graph.nodes[one]
            wanted += {*node.reads} - self._unrecorded(node)
        for one in (x for x in self._graph.nodes if x in needed):
            value = self._compute(self._graph.nodes[one])
            # Another device may give some operators' results other sizes, such as the indices that
            # `_embedding_bag` leaves for its backward.
            shape = getattr(self.type_of(one), "shape", (None,))
            is_known = isinstance(value, Bounded) and None not in shape
            if is_known and tuple(value.value.shape) != shape:
                raise UncheckedError(f"{one} has another shape where it is evaluated on the CPU")
            self._values[one] = value
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
        kind = self.type_of(node.name)
        if kind is not None and (kind.numel or 0) > _MOST:
            raise UncheckedError(f"{node.name} is too large to be computed here")
        if node.operator == THROUGH:
            return self._written_through(*node.reads)
        if node.operator == MEAN:
            return self._mean(node)
        if (call := parsed(node.call)) is None:
            raise UncheckedError(f"the text of {node.name} is no expression")
        if node.call.startswith(control_flow.PREFIXES):
            if not self._inner:
                why = f"it needs {node.name}, which a graph inside of the graph computes"
                raise UncheckedError(why)
            if node.name in self._inner:
                return None
            given = {**self._known, **dict.fromkeys(self._unrecorded(node))}
            return control_flow.results(call, Literals(given), self._inside)
        literals = Literals(self._known)
        if not isinstance(call, ast.Call):
            return literals.of(call)
        operator = operator_named(ast.unparse(call.func).split("."))
        args, kwargs = literals.arguments(call)
        if node.operator == "as_strided" and args and isinstance(args[0], Bounded):
            args = (self._laid_out(node.reads[0], args[0]), *args[1:])
        if node.operator in random.NAMES:
            drawn = partial(random.drawn, node.operator, args, kwargs)
            return attempt(operator, lambda: drawn(on_gpu=self._is_on_gpu(node)))
        return run(operator, args, kwargs, None if kind is None else kind.dtype)

    @property
    def _known(self) -> dict[str, Any]:
        return {**self._sizes, **self._values}

    def _unrecorded(self, node: FxNode) -> set[str]:
        """The weights that were not recorded among what a node hands to graphs inside of the graph:
        only a branch that is not taken may read them."""
        if not node.call.startswith(control_flow.PREFIXES):
            return set()
        return {*node.reads} & self._graph.attributes - self._values.keys()

    def _inside(self, name: str, given: Sequence[Any]) -> Sequence[Any]:
        """What a graph inside of the graph returns."""
        graph = self._inner.get(name)
        if graph is None or graph.finals or len(graph.inputs) != len(given):
            raise UncheckedError(f"{name} cannot be evaluated")
        pairs = zip(graph.inputs, given, strict=True)
        known = {name: value for name, value in pairs if value is not None}
        within, inner = f"{name}_", self._inner.items()
        further = {x.removeprefix(within): y for x, y in inner if x.startswith(within)}
        inside = Evaluator(graph, known, self._sizes, further)
        return [inside.value(x) for x in graph.outputs]

    def _written_through(self, base: str, new: str, view: str) -> Bounded:
        """The value of `base` once its elements that `view` has are those of `new`."""
        whole, part = self._values[base], self._values[new]
        into = self._places(view, tuple(whole.value.shape))
        is_exact = whole.error is None and part.error is None
        error = None if is_exact else _put(whole.bound(), part.bound(), into)
        terms, steps = max(whole.terms, part.terms), max(whole.steps, part.steps)
        through = whole.through | part.through
        value = _put(whole.value, part.value, into)
        return Bounded(value, error, whole.dtype, terms, steps, through)

    def _mean(self, node: FxNode) -> Any:
        (total,) = node.reads
        kind, whole = self.type_of(node.name), self.type_of(self._graph.nodes[total].reads[0])
        if kind is None or whole is None or not kind.numel or whole.numel is None:
            raise UncheckedError(f"of how many elements {node.name} is the mean is not known")
        many = whole.numel // kind.numel
        return run(torch.ops.aten.div.Tensor, (self._values[total], many), {}, kind.dtype)

    def _laid_out(self, name: str, value: Bounded) -> Bounded:
        """A value in the memory layout that the graph says, which `as_strided` goes by."""
        kind = self.type_of(name)
        if kind is None or not kind.stride or None in kind.stride:
            return value
        stride = tuple(x or 0 for x in kind.stride)

        def laid(tensor: torch.Tensor) -> torch.Tensor:
            return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)

        return value.moved(laid)

    def _is_on_gpu(self, node: FxNode) -> bool:
        """Whether a GPU draws the random numbers of a node. If its type has no device, as in the
        graph of a package, the calls that make seeds decide."""
        device = node.type.rpartition("]")[2]
        if device:
            return device != "cpu"
        seeds = (x.call for x in self._graph.nodes.values() if x.operator == "inductor_seeds")
        return not any("'cpu'" in call for call in seeds)


def _put(whole: torch.Tensor, part: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """A tensor with other elements at these places."""
    flat = whole.reshape(-1).clone()
    flat[places] = part.to(flat.dtype).reshape(-1)
    return flat.reshape(whole.shape)


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


def operator_named(names: Iterable[str], *, in_place: bool = False) -> Any:
    """The operator of a path such as `aten`, `add`, `Tensor`; unless `in_place`, of an in-place one
    that which returns what it writes. Raises `UncheckedError`."""
    names = list(names)
    if names[:2] == ["torch", "ops"]:
        names = names[2:]
    if len(names) > 1 and names[1].endswith("_") and names[0] == "aten" and not in_place:
        own = operator_named(names, in_place=True)
        if sum(map(is_written, own._schema.arguments)) != 1:
            return own
        with suppress(UnregisteredError):
            return operator_named([names[0], names[1].rstrip("_"), *names[2:]])
        return own  # `bernoulli_.float` has no other
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
        raise UnregisteredError(f"the operator {path} is not registered here") from error
    if not isinstance(value, torch._ops.OpOverload):
        raise UncheckedError(f"{path} is no operator that can be evaluated alone")
    return value
