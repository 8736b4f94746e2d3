"""What the text of a graph says of its values: types, shapes, strides, sizes, and literals."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rewriter.core import strides
from rewriter.core.quantities import comma_separated
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError
from rewriter.dump.rows import EventRow, ScalarRow, TensorRow
from rewriter.model_names.graph import FxGraph

_DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "f8e4m3fnuz": torch.float8_e4m3fnuz, "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "u8": torch.uint8, "b8": torch.bool, "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip
_TYPE = re.compile(r"^(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?")
_CONVOLUTION = re.compile(r"aten\.convolution\.default\(\w+, \w+, (\w+),")
_SYMBOL = re.compile(r"Sym\(([A-Za-z]\w*)\)")


@dataclass(frozen=True)
class TensorType:
    """What a graph says of a value. A dimension is `None` if it depends on an unknown size."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]

    @property
    def numel(self) -> int | None:
        known = [number for number in self.shape if number is not None]
        return math.prod(known) if len(known) == len(self.shape) else None

    def contiguous(self) -> TensorType:
        """The same, as a tensor lies that nothing else is known of; its sizes have to be known."""
        known = [1 if number is None else number for number in self.shape]
        return TensorType(self.dtype, self.shape, strides.contiguous(known))

    def lies_as(self, row: TensorRow) -> bool:
        """Whether a recorded tensor of this shape has these strides."""
        if not self.stride or not isinstance(row.stride, tuple):
            return not self.shape
        each = zip(self.shape, self.stride, row.stride, strict=False)
        return all(size == 1 or stride == other for size, stride, other in each)

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
    return tuple(_number(number, sizes) for number in comma_separated(text))


def _number(text: str, sizes: Mapping[str, int]) -> int | None:
    if text.isdecimal():
        return int(text)
    try:
        value = None if (tree := parsed(text)) is None else Literals(sizes).of(tree)
    except UncheckedError:
        return None
    return value if isinstance(value, int) else None


def parsed(expression: str) -> ast.expr | None:
    """An expression of a graph or a wrapper; `None` if it is none of Python."""
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, RecursionError):
        return None


def named_sizes(text: str, shape: Sequence[int]) -> dict[str, int]:
    """The sizes that have a name in the text of a type, such as `s0` in `f32[8, s0]`, by the shape
    of a tensor of that type."""
    inside = text.partition("[")[2].partition("]")[0]
    parts = comma_separated(inside)
    if len(parts) != len(shape):
        return {}
    return {part: size for part, size in zip(parts, shape, strict=True) if part.isidentifier()}


def graph_sizes(graph: FxGraph, rows: Collection[EventRow]) -> dict[str, int]:
    """The named sizes of a graph, by the recorded inputs of a call."""
    sizes = call_sizes(_symbols(graph), rows)
    by_name = {row.name: row for row in rows}
    for name, text in graph.types.items():
        row = by_name.get(name)
        if isinstance(row, TensorRow):
            sizes |= named_sizes(text, row.shape)
    return sizes


def inner_sizes(graph: FxGraph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The named sizes of a graph inside of one that has these. The names of inputs are its own:
    what is a tensor in it may be a size outside."""
    own = {x: sizes[name] for x, name in _symbols(graph).items() if name in sizes}
    return {x: size for x, size in sizes.items() if x not in graph.types} | own


def _symbols(graph: FxGraph) -> dict[str, str]:
    found = ((x, _SYMBOL.fullmatch(text)) for x, text in graph.types.items())
    return {x: match[1] for x, match in found if match}


def call_sizes(symbols: Mapping[str, str], rows: Iterable[EventRow]) -> dict[str, int]:
    """The sizes that a call is given as numbers, by the name of the input and by the name that the
    size has in types, which is `symbols` of it."""
    sizes: dict[str, int] = {}
    for row in rows:
        value = row.value if isinstance(row, ScalarRow) and row.name in symbols else ""
        if isinstance(value, str) and value.lstrip("-").isdecimal():
            sizes[symbols[row.name]] = sizes[row.name] = int(value)
    return sizes


def bias_of_convolution(call: str) -> str:
    """The bias in the text of a convolution; empty for other calls, and if it has none."""
    match = _CONVOLUTION.match(call)
    return match[1] if match is not None and match[1] != "None" else ""


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
    """Evaluates expressions in which `values` are the variables."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def arguments(self, call: ast.Call, less: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, by position and by name, but for one name."""
        named = {x.arg: x.value for x in call.keywords if x.arg and x.arg != less}
        return tuple(map(self.of, call.args)), {name: self.of(x) for name, x in named.items()}

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
            base, _, name = ast.unparse(one).rpartition(".")
            value = getattr(torch, name, None) if base == "torch" else None
            if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
                return value
            raise UncheckedError(f"{base}.{name} is not known")
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
        except (ZeroDivisionError, OverflowError, TypeError) as error:
            raise UncheckedError(f"{ast.unparse(one)[:80]}: {error}") from error

    def _number(self, one: ast.expr) -> Any:
        value = self.of(one)
        if isinstance(value, Bounded) or not isinstance(value, (int, float, complex)):
            raise UncheckedError(f"{ast.unparse(one)[:80]} is no number")
        return value
