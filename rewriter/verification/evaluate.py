"""Evaluates nodes of a graph from values that are known, each operation with its rounding bound."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rewriter.artifact.naming.graph import ATTRIBUTE, FxGraph, FxNode
from rewriter.dump.rows import TensorRow
from rewriter.verification.bounded import Bounded, UncheckedError, in_short
from rewriter.verification.operators import random, rules

_DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "f8e4m3fnuz": torch.float8_e4m3fnuz, "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "u8": torch.uint8, "b8": torch.bool, "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip
_TYPE = re.compile(r"^(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?")
_CONTROL = ("higher_order.cond", "higher_order.while_loop", "higher_order.invoke_subgraph", "self.")
_MOST = 1 << 28  # elements of a result


@dataclass(frozen=True)
class TensorType:
    """What a graph says of a value. A dimension that depends on a size is `None`, if that size is
    not known."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]

    @property
    def numel(self) -> int | None:
        known = [one for one in self.shape if one is not None]
        return math.prod(known) if len(known) == len(self.shape) else None

    def contiguous(self) -> TensorType:
        """The same, as a tensor lies that nothing else is known of; its sizes have to be known."""
        known = [1 if one is None else one for one in self.shape]
        strides = tuple(math.prod(known[place + 1 :]) for place in range(len(known)))
        return TensorType(self.dtype, self.shape, strides)

    def fits(self, row: TensorRow) -> bool:
        """Whether a recorded tensor has this type, and as many elements where that is known."""
        dtype = str(self.dtype).removeprefix("torch.")
        return dtype == row.dtype and self.numel in (None, row.size)


def tensor_type(text: str, sizes: Mapping[str, int]) -> TensorType | None:
    """Read `f32[8, s0][s0, 1]cpu`; `None` where it is no tensor."""
    match = _TYPE.match(text)
    if match is None or match[1] not in _DTYPES:
        return None
    return TensorType(_DTYPES[match[1]], _numbers(match[2], sizes), _numbers(match[3] or "", sizes))


def _numbers(text: str, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(_number(one.strip(), sizes) for one in text.split(",") if one.strip())


def _number(text: str, sizes: Mapping[str, int]) -> int | None:
    if text.isdecimal():
        return int(text)
    try:
        value = Literals(sizes).of(ast.parse(text, mode="eval").body)
    except (SyntaxError, UncheckedError, RecursionError):
        return None
    return value if isinstance(value, int) else None


class Evaluator:
    """The values of nodes, from those that are known; each is computed once."""

    def __init__(
        self, graph: FxGraph, known: Mapping[str, Any], sizes: Mapping[str, int] | None = None
    ) -> None:
        self._graph = graph
        self._values: dict[str, Any] = dict(known)
        self._sizes = dict(sizes or {})

    def computable(self, forbidden: frozenset[str] = frozenset()) -> set[str]:
        """The nodes that the known values suffice for, less those of the operators forbidden."""
        found = set(self._values)
        for node in self._graph.nodes.values():
            if node.operator not in (ATTRIBUTE, *forbidden) and all(
                name in found or name in self._sizes for name in node.reads
            ):
                found.add(node.name)
        return found

    def type_of(self, name: str) -> TensorType | None:
        """What the graph says of a node or an input."""
        node = self._graph.nodes.get(name)
        text = node.type if node is not None and node.type else self._graph.types.get(name, "")
        return tensor_type(text, self._sizes)

    def value(self, name: str) -> Any:
        """The value of a node. Raises `UncheckedError` where it cannot be computed."""
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
        """Whether a device draws the numbers of a node, as its type says, or as the seeds do where
        types have no device: in the graph of a package."""
        device = node.type.rpartition("]")[2]
        if device:
            return device != "cpu"
        seeds = (x.call for x in self._graph.nodes.values() if x.operator == "inductor_seeds")
        return not any("'cpu'" in call for call in seeds)


def run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Any:
    """The result of one operator. Raises `UncheckedError`, whatever the operator raises."""
    if isinstance(operator, str):  # a size
        tensor, index = args
        return int(tensor.value.shape[index])
    args, kwargs = _by_position(operator, args, kwargs)
    return attempt(operator, lambda: rules.apply(operator, args, kwargs, dtype))


def attempt(operator: Any, compute: Callable[[], Any]) -> Any:
    """What a function computes. Raises `UncheckedError`, whatever the function raises."""
    try:
        with torch.no_grad():
            return compute()
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        problem = f"{operator} could not be evaluated on the CPU: {in_short(error)}"
        raise UncheckedError(problem) from error


def _by_position(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments, with those by their places that may be: rules read them there."""
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
        names[1] = names[1].rstrip("_")  # what it writes in place is its result
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


_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b if abs(b) < 64 else math.nan,
}
_NAMED = {"inf": math.inf, "nan": math.nan, "cpu": "cpu", "cuda": "cpu", "xpu": "cpu"}


class Literals:
    """What stands in the calls of a graph's text, without executing it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def of(self, one: ast.expr) -> Any:
        if isinstance(one, ast.Constant):
            return one.value
        if isinstance(one, ast.Name):
            if one.id in self._values:
                return self._values[one.id]
            if one.id in _NAMED:
                return _NAMED[one.id]
            raise UncheckedError(f"{one.id} is not known")
        if isinstance(one, (ast.List, ast.Tuple)):
            return [self.of(x) for x in one.elts]
        if isinstance(one, ast.Attribute):
            return self._attribute(ast.unparse(one))
        if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub):
            return -self._number(one.operand)
        if isinstance(one, ast.BinOp) and type(one.op) in _ARITHMETIC:
            return self._arithmetic(one)
        if isinstance(one, ast.Call) and ast.unparse(one.func) in ("device", "torch.device"):
            return "cpu"
        raise UncheckedError(f"{ast.unparse(one)[:80]} is nothing that can be evaluated")

    def _arithmetic(self, one: ast.BinOp) -> Any:
        try:
            left, right = self._number(one.left), self._number(one.right)
            return _ARITHMETIC[type(one.op)](left, right)
        except (ZeroDivisionError, OverflowError) as error:
            raise UncheckedError(f"{ast.unparse(one)[:80]}: {error}") from error

    def _number(self, one: ast.expr) -> Any:
        value = self.of(one)
        if isinstance(value, Bounded) or not isinstance(value, (int, float)):
            raise UncheckedError(f"{ast.unparse(one)[:80]} is no number")
        return value

    def _attribute(self, text: str) -> Any:
        base, _, name = text.rpartition(".")
        value = getattr(torch, name, None) if base == "torch" else None
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return value
        raise UncheckedError(f"{text} is not known")
