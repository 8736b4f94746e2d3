"""Writes the statements of a substitute as calls of AOTInductor's proxy executor.

A package has no Python: what calls operators there is the proxy executor, by the numbers of nodes
in the `.wrapper.json` beside the wrapper, which have the constants. Tensors and integers are passed
at run time (torch/csrc/inductor/aoti_torch/oss_proxy_executor.cpp).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from rewriter.core.types import Json
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.evaluate import operator_named
from rewriter.diagnosis.verification.replacing.body import NoBodyError
from rewriter.diagnosis.verification.replacing.substitutes import Substitute

HELPERS = """\
static AtenTensorHandle NAME_new() {
    AtenTensorHandle made = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&made));
    return made;
}
static AtenTensorHandle NAME_view(AtenTensorHandle of, std::vector<int64_t> size,
    std::vector<int64_t> stride, int64_t offset) {
    AtenTensorHandle made = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(
        of, size.size(), size.data(), stride.data(), offset, &made));
    return made;
}
static int64_t NAME_size(AtenTensorHandle of, int64_t dim) {
    int64_t size = 0;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_size(of, dim, &size));
    return size;
}
static void NAME(AOTIProxyExecutorHandle executor, int node, std::vector<int64_t> numbers,
    std::vector<AtenTensorHandle> tensors) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(
        executor, node, numbers.size(), numbers.data(), tensors.size(), tensors.data()));
}
"""
# Operators that exist in Python alone, and what computes the same.
_INSTEAD = {"prims.convert_element_type.default": "aten._to_copy.default"}
# In the order of ATen (c10/core/ScalarType.h, c10/core/MemoryFormat.h).
_TYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.complex32, torch.complex64, torch.complex128, torch.bool, None, None,
    None, torch.bfloat16,
)  # fmt: skip
_FORMATS = (
    torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d
)  # fmt: skip
_WITH_SIZES = ("aten.full.default", "aten.empty_strided.default")
_RESHAPES = ("aten.view.default", "aten.reshape.default", "aten.expand.default",
             "aten.permute.default")  # fmt: skip
_SPLITS = ("aten.split.Tensor", "aten.split_with_sizes.default")


@dataclass(frozen=True)
class Tensor:
    """The C++ that gives the handle of a tensor."""

    text: str


@dataclass(frozen=True)
class Number:
    """C++ of an integer that is known when it runs."""

    text: str


@dataclass(frozen=True)
class Parts:
    """What `split` returns, by what it is given: a tensor, sizes and a dimension."""

    args: list[Any]


@dataclass
class ProxyCalls:
    """Collects the lines of C++ and the nodes of one wrapper.

    `name` is what its functions are called, `device` the type of device that it is compiled for,
    `first` the number of nodes that it has already.
    """

    name: str
    device: str
    first: int
    nodes: list[Json] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _values: dict[str, Any] = field(default_factory=dict)
    _made: int = 0

    def lines(self, one: Substitute, handles: Mapping[str, str], sizes: Sequence[str]) -> list[str]:
        """The block that computes what one launch does. `handles` and `sizes` are the variables of
        the wrapper that its arguments name. Raises `NoBodyError`."""
        self._lines = []
        variables = {
            # One that is taken over is bound, since it may be used more than once.
            x: Tensor(text) if text == x else self._tensor(text)
            for x, text in handles.items()
        }
        self._values = variables | {x: Number(x) for x in sizes}
        given = [self._value(ast.parse(x, mode="eval").body) for x in one.arguments]
        self._values = dict(zip(one.parameters, given, strict=True))
        for statement in _statements(one.lines):
            self._statement(statement, one.target.split(", ") if one.target else [])
        return ["{", *(f"    {x}" for x in self._lines), "}"]

    def _statement(self, tree: ast.stmt, target: Sequence[str]) -> None:
        match tree:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._values[name] = self._value(value)
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=place))],
                value=value,
            ):
                self._values[name][place] = self._value(value)
            case ast.Expr(value=value):
                self._value(value)
            case ast.Return(value=ast.List(elts=made)):
                for name, result in zip(target, made, strict=True):
                    # A handle of its own: the value may be an argument.
                    copy = self._call("aten.alias.default", [self._value(result)])
                    self._lines.append(f"{name} = {copy.text}.release();")
            case ast.ImportFrom() | ast.Return():
                return
            case _:
                raise NoBodyError(f"{ast.unparse(tree)} is not known to the proxy executor")

    def _value(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Constant(value=value):
                return value
            case ast.Name(id="inf" | "nan" as name):
                return math.inf if name == "inf" else math.nan
            case ast.Name(id=name):
                return self._values[name]
            case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                return getattr(torch, name)
            case ast.Attribute(value=value, attr="device"):
                self._value(value)
                return torch.device(self.device)
            case ast.UnaryOp(op=ast.USub(), operand=value):
                found = self._value(value)
                return Number(f"(-{found.text})") if isinstance(found, Number) else -found
            case ast.BinOp(
                op=ast.Add() | ast.Sub() | ast.Mult() as operator, left=left, right=right
            ):
                sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(operator)]
                return Number(f"({self._number(left)} {sign} {self._number(right)})")
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                pair = (f"static_cast<int64_t>({self._number(x)})" for x in (left, right))
                return Number(f"c10::div_floor_integer({', '.join(pair)})")
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [y for x in elements for y in self._elements(x)]
            case ast.Subscript(value=value, slice=ast.Constant(value=int(place))):
                found = self._value(value)
                return self._part(found, place) if isinstance(found, Parts) else found[place]
            case ast.Call(func=function, args=args, keywords=keywords):
                given = [self._value(x) for x in args]
                named = {str(x.arg): self._value(x.value) for x in keywords}
                return self._called(ast.unparse(function), function, given, named)
        raise NoBodyError(f"{ast.unparse(tree)} is not known to the proxy executor")

    def _elements(self, tree: ast.expr) -> list[Any]:
        match tree:
            case ast.Starred(value=ast.IfExp(body=ast.Name() as value)):  # what a call returned
                found = self._value(value)
                return found if isinstance(found, list) else [found]
            case _:
                return [self._value(tree)]

    def _part(self, parts: Parts, place: int) -> Any:
        """One result of an operator that returns a list, which the proxy executor cannot count."""
        of, sizes, dim = parts.args[0], parts.args[1], [*parts.args, 0][2]
        if isinstance(sizes, list):
            begin, end = sum(sizes[:place]), sum(sizes[: place + 1])
        else:
            begin, end = sizes * place, sizes * (place + 1)
        return self._call("aten.slice.Tensor", [of, dim, begin, end])

    def _number(self, tree: ast.expr) -> str:
        value = self._value(tree)
        if isinstance(value, (Number, int)):
            return _integer(value)
        raise NoBodyError(f"{ast.unparse(tree)} is no integer")

    def _called(self, path: str, function: ast.expr, args: list[Any], named: dict[str, Any]) -> Any:
        if path == "list":
            return list(args[0])
        if path == "device":
            return torch.device(*args, **named)
        if path == "reinterpret_tensor":
            return self._view(*args)
        if path == "torch.empty_strided":
            return self._call("aten.empty_strided.default", args, named)
        if path.startswith("torch.ops."):
            path = path.removeprefix("torch.ops.")
            path = _INSTEAD.get(path, path)
            if path == "prims.iota.default":
                return self._call("aten.arange.start_step", *_range(args[0], named))
            if path in _SPLITS:
                return Parts(args)
            if path == "aten._to_copy.default" and len(args) == 2:
                args, named = args[:1], {"dtype": args[1]}
            return self._call(path, args, named)
        if not isinstance(function, ast.Attribute):
            raise NoBodyError(f"{path} is not known to the proxy executor")
        tensor, method = self._value(function.value), function.attr
        if method == "as_strided":
            return self._view(tensor, *args)
        if method in ("to", "double"):
            kind = args[0] if args else torch.float64
            return self._call("aten._to_copy.default", [tensor], {"dtype": kind})
        if method in ("clone", "view", "copy_"):
            return self._call(f"aten.{method}.default", [tensor, *args])
        raise NoBodyError(f"{path} is not known to the proxy executor")

    def _view(self, of: Tensor, size: list[Any], stride: list[Any], offset: Any = 0) -> Tensor:
        first, second = (", ".join(map(_integer, x)) for x in (size, stride))
        made = f"{self.name}_view({of.text}, {{{first}}}, {{{second}}}, {_integer(offset)})"
        return self._tensor(made)

    def _tensor(self, made: str) -> Tensor:
        self._made += 1
        name = f"made{self._made}"
        self._lines.append(f"RAIIAtenTensorHandle {name}({made});")
        return Tensor(name)

    def _call(
        self, path: str, args: Sequence[Any], named: Mapping[str, Any] = MappingProxyType({})
    ) -> Any:
        """Call an operator; what it returns. Raises `NoBodyError`."""
        if [] in args:  # the proxy executor takes an empty list for none
            if path in _WITH_SIZES:
                one = [[1] if x == [] else x for x in args]
                return self._view(self._call(path, one, named), [], [])
            if path in _RESHAPES:
                return self._view(args[0], [], [])
            raise NoBodyError(f"{path} is given an empty list")
        if path.startswith("prims."):
            raise NoBodyError(f"{path} exists in Python alone, and a package runs without it")
        try:
            operator = operator_named(path.split("."), in_place=True)
        except UncheckedError as error:
            raise NoBodyError(str(error)) from error
        if operator == "size":
            return Number(f"{self.name}_size({args[0].text}, {_integer(args[1])})")
        given = _bound(operator._schema, args, named)
        if any(_takes_tensor(x) and isinstance(y, (int, float)) for x, y in given):
            with_scalar = getattr(operator.overloadpacket, "Scalar", None)
            if with_scalar is not None and isinstance(given[0][1], Tensor):
                operator, given = with_scalar, _bound(with_scalar._schema, args, named)
        inputs, numbers, tensors = [], list[str](), list[str]()
        for argument, value in given:
            if _takes_tensor(argument) and isinstance(value, (int, float)):
                value = self._scalar(value)
            arg = self._argument(argument.real_type, value, numbers, tensors)
            inputs.append({"name": argument.name, "arg": arg, "kind": 1})
        made = []
        for result in operator._schema.returns:
            if str(result.real_type) != "Tensor":
                raise NoBodyError(f"{path} returns more than tensors")
            made.append(self._tensor(f"{self.name}_new()"))
        schema = operator._schema
        target = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        outputs = [{"as_tensor": {"name": x.text}} for x in made]
        node: Json = {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}}
        number = self.first + len(self.nodes)
        self.nodes.append({"name": f"{self.name}_{number}", "node": node})
        handles = [*tensors, *(x.text for x in made)]
        self._lines.append(
            f"{self.name}(proxy_executor, {number}, {{{', '.join(numbers)}}}, "
            f"{{{', '.join(handles)}}});  // {target}"
        )
        return made[0] if len(made) == 1 else made

    def _scalar(self, value: float) -> Any:
        """A tensor of one number, which does not change the types of others of its kind."""
        kind = torch.float64 if isinstance(value, float) else torch.int64
        if not isinstance(value, float) or math.isfinite(value):
            about = {"dtype": kind, "device": torch.device(self.device)}
            return self._call("aten.scalar_tensor.default", [value], about)
        # JSON has no such number: the logarithm of 0 is minus infinity.
        operand = self._scalar(-1.0 if math.isnan(value) else 0.0)
        found = self._call("aten.log.default", [operand])
        return found if not value > 0 else self._call("aten.neg.default", [found])

    def _argument(
        self, kind: Any, value: Any, numbers: list[str], tensors: list[str]
    ) -> dict[str, Any]:
        """An argument as torch.export writes it; what is passed at run time is added to lists."""
        name = str(kind).removeprefix("Optional[").removesuffix("]" * str(kind).startswith("Opt"))
        match value:
            case None:
                return {"as_none": True}
            case Tensor(text):
                tensors.append(text)
                return {"as_tensor": {"name": text}}
            case bool():
                return {"as_bool": value}
            case int() | Number() if name == "float":
                return {"as_float": float(_integer(value))}
            case int() | Number() if name.startswith("List["):
                return self._argument(kind, [value], numbers, tensors)
            case int() | Number():
                numbers.append(_integer(value))
                return {"as_int": value if isinstance(value, int) else 0}
            case float() if not math.isfinite(value):
                raise NoBodyError(
                    f"an operator is given {value}, and a package has constants of operators in "
                    "JSON, which has no such number"
                )
            case float():
                return {"as_float": value}
            case str():
                return {"as_string": value}
            case torch.device(type=type_) if type_ == self.device:
                return {"as_device": {"type": type_, "index": value.index}}
            case torch.dtype() | torch.memory_format() | torch.layout():
                return _enumerated(value)
            case list() if name in ("List[Optional[Tensor]]", "List[Tensor]", "List[int]"):
                of, one = ("int", "as_int") if name == "List[int]" else ("Tensor", "as_tensor")
                elements = [self._argument(of, x, numbers, tensors) for x in value]
                if name == "List[Optional[Tensor]]":
                    return {"as_optional_tensors": elements}
                return {f"{one}s": [x[one] for x in elements]}
            case list() if name == "List[float]":
                return {"as_floats": value}
            case list() if name == "List[bool]":
                return {"as_bools": value}
        raise NoBodyError(f"{value} as {kind} cannot be passed to the proxy executor")


def _statements(lines: Sequence[str]) -> list[ast.stmt]:
    """The statements of a function, in which `return` is allowed."""
    (function,) = ast.parse("def function():\n" + "".join(f" {x}\n" for x in lines)).body
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _enumerated(value: Any) -> dict[str, Any]:
    """A type, a layout or a format. Up to torch 2.12 the executor takes the numbers of ATen, where
    torch.export writes its own."""
    from torch._export.serde import serialize

    include = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    is_converted = (include / "generated_enum_converters.h").is_file()
    kinds: dict[type, tuple[str, Mapping[Any, Any], Sequence[Any]]] = {
        torch.dtype: ("as_scalar_type", serialize._TORCH_TO_SERIALIZE_DTYPE, _TYPES),
        torch.memory_format: (
            "as_memory_format", serialize._TORCH_TO_SERIALIZE_MEMORY_FORMAT, _FORMATS
        ),
        torch.layout: ("as_layout", serialize._TORCH_TO_SERIALIZE_LAYOUT, (torch.strided,)),
    }  # fmt: skip
    name, exported, of_aten = kinds[type(value)]
    if is_converted:
        return {name: int(exported[value])}
    if value not in of_aten:
        raise NoBodyError(f"{value} cannot be passed to the proxy executor of this torch")
    return {name: of_aten.index(value)}


def _range(length: Any, named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """What `arange` is given in the place of `prims.iota`."""
    start, step = named["start"], named["step"]
    end = Number(f"({_integer(start)} + {_integer(step)} * {_integer(length)})")
    return [start, end, step], {name: named[name] for name in ("dtype", "device") if name in named}


def _integer(value: Any) -> str:
    return value.text if isinstance(value, Number) else str(int(value))


def _takes_tensor(argument: Any) -> bool:
    return str(argument.real_type) in ("Tensor", "Optional[Tensor]")


def _bound(schema: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """The arguments of a schema that are given, with their values."""
    waiting, given = list(args), []
    for argument in schema.arguments:
        if waiting and not argument.kwarg_only:
            given.append((argument, waiting.pop(0)))
        elif argument.name in named:
            given.append((argument, named[argument.name]))
    return given
