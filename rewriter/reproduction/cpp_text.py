"""Translates the expressions that a C++ wrapper passes to Python: numbers, lists, strings, views.

Only what Inductor writes is supported (torch/_inductor/codegen/cpp_wrapper_cpu.py); anything else
raises `UnreadError`, which says what it is.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tree_sitter

from rewriter.locate.cpp.grammar import LANGUAGE

_BEFORE = "void f() { x = call"
_SUFFIX = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:LL|L|l|f|F|ULL|UL|U)\b")
_CAST = re.compile(r"\bstatic_cast<[\w: ]+>")
_FLOOR = re.compile(r"\bc10::div_floor_integer\(")
_INFINITY = re.compile(r"std::numeric_limits<\w+>::infinity\(\)")
_NAN = re.compile(r"std::numeric_limits<\w+>::quiet_NaN\(\)")
_CACHED = re.compile(r"cached_torch_(?:dtype|layout|memory_format)_(\w+)$")
_DEVICE = re.compile(r"cached_torch_device_type_(\w+)$")
_SIZE = re.compile(r"(\w+)_(size|stride)\[(\d+)\]$")
_ARRAY = re.compile(r"(?:std::array|std::vector)<.*?>\s*\{(.*)\}(?:\.\w+\(\))?$", re.DOTALL)
_VIEW = re.compile(r"reinterpret_tensor_wrapper\(")
_KEEPERS = (
    "temporary_reference", "std::move", "*", "RAIIAtenTensorHandle", "ConstantHandle",
    "borrow_arrayref_tensor_as_tensor", "copy_arrayref_tensor_to_tensor",
)  # fmt: skip
_BOOLEANS = {"true": "True", "false": "False"}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "floor_div": operator.floordiv,
}


class UnreadError(ValueError):
    """The text of a wrapper is not supported; the message quotes it."""


class Shapes(Protocol):
    """What tells sizes and strides of the tensors of a call by their names."""

    def __call__(self, name: str, what: str, dimension: int) -> int | None: ...


class CppNames:
    """The variables of a C++ function that are defined above a launch.

    `numbers` are values of scalars that were recorded, by name.
    """

    def __init__(self, above: str, numbers: Mapping[str, str], shapes: Shapes) -> None:
        self._above = above
        self._numbers = numbers
        self._shapes = shapes

    def definition(self, name: str, within: str = "") -> str | None:
        """The last value assigned to a variable, in a block or above the launch; `None` if none."""
        if not re.fullmatch(r"\w+", name):
            return None
        pattern = re.compile(rf"[\w>&*\s]\b{name}(?:\[\w*\])?\s*(?:=\s*|(?=[{{(]))([^;]*);")
        for text in (within, self._above):
            if found := pattern.findall(text):
                given: str = found[-1].strip()
                return given[1:-1].strip() if _is_enclosed(given) else given
        return None

    def number(self, text: str) -> str:
        """A number as Python writes it. Raises `UnreadError`."""
        text = text.strip()
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if text in self._numbers:
            return self._numbers[text]
        plain = _NAN.sub("NAN", _INFINITY.sub("INFINITY", _SUFFIX.sub(r"\1", text)))
        if plain in ("INFINITY", "-INFINITY", "NAN"):
            return f'float("{plain.lower().replace("infinity", "inf")}")'
        if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", plain):
            return plain
        if match := re.match(r"c10::complex<\w+>\s*[({](.*)[)}]$", plain):
            return f"complex({', '.join(self.number(x) for x in split(match[1]))})"
        return str(self._value(text, plain, set()))

    def _value(self, text: str, plain: str, seen: set[str]) -> int | float:
        """The value of an expression over sizes."""
        python = _FLOOR.sub("floor_div(", _CAST.sub("", plain)).replace("std::", "")
        python = python.replace("/", "//")
        try:
            tree = ast.parse(python, mode="eval")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise UnreadError(f"the value of {text} is not in the dump") from error
        value = self._evaluate(tree.body, text, seen)
        assert isinstance(value, (int, float))
        return value

    def _evaluate(self, node: ast.expr, text: str, seen: set[str]) -> Any:
        known: Callable[..., Any] | None = None
        parts: list[ast.expr] = []
        match node:
            case ast.Constant(value=int() | float()):
                return node.value
            case ast.Name():
                return self._variable(node.id, seen)
            case ast.Call(func=ast.Name(id=name)):
                known, parts = _FUNCTIONS.get(name), node.args
            case ast.BinOp():
                known, parts = _OPERATORS.get(type(node.op)), [node.left, node.right]
            case ast.UnaryOp():
                known, parts = _OPERATORS.get(type(node.op)), [node.operand]
            case ast.Compare(ops=[one], comparators=[right]):
                known, parts = _OPERATORS.get(type(one)), [node.left, right]
        if known is None:
            raise UnreadError(f"the value of {text} is not in the dump")
        try:
            return known(*(self._evaluate(part, text, seen) for part in parts))
        except (ArithmeticError, TypeError) as error:
            raise UnreadError(f"{text}: {error}") from error

    def _variable(self, name: str, seen: set[str]) -> int | float:
        if name in self._numbers:
            found = ast.literal_eval(self._numbers[name])
            if isinstance(found, (int, float)):
                return found
        given = None if name in seen else self.definition(name)
        if given is None:
            raise UnreadError(f"the value of {name} is not in the dump")
        if match := _SIZE.match(given):
            size = self._shapes(match[1], match[2], int(match[3]))
            if size is None:
                raise UnreadError(f"the value of {name} is not in the dump")
            return size
        return self._value(given, _SUFFIX.sub(r"\1", given), seen | {name})


def named(text: str) -> str | None:
    """Torch's name for a named dtype, layout or memory format; `None` for other names."""
    match = _CACHED.match(text)
    return None if match is None else f"torch.{match[1]}"


def device(kind: str, index: str) -> str:
    """A device by its type and index. Raises `UnreadError`."""
    match = _DEVICE.match(kind.strip())
    if match is None:
        raise UnreadError(f"{kind} is no device")
    place = "" if match[1] == "cpu" else f":{index.strip().rstrip('L')}"
    return f'torch.device("{match[1]}{place}")'


def elements(text: str) -> list[str] | None:
    """The elements of an array that is written out; `None` if the text is not one."""
    text = text.strip()
    if text in ("nullptr", "{}"):
        return []
    match = _ARRAY.match(text)
    if match is None and not (text.startswith("{") and text.endswith("}")):
        return None
    return split(match[1] if match else text[1:-1])


def view(text: str) -> tuple[str, list[str]] | None:
    """A view that is made on the way: of what, and the rest of what it is given."""
    match = _VIEW.search(text)
    if match is None:
        return None
    base, *rest = arguments(text, match.end() - 1)
    return base, rest


def unwrapped(text: str) -> str:
    """An expression without calls that only keep it alive or take its address."""
    text = text.strip()
    while True:
        before = text
        text = text.removeprefix("&").strip()
        for function in _KEEPERS:
            if text.startswith(f"{function}(") and text.endswith(")"):
                text = text[len(function) + 1 : -1].strip()
        text = text.removesuffix(".get()").removesuffix(".release()").strip()
        if text == before:
            return text


def split(text: str) -> list[str]:
    """The parts of a list, at its own commas."""
    return arguments(f"({text})", 0)


def arguments(text: str, opening: int) -> list[str]:
    """What a call is given, whose bracket opens there."""
    data = f"{_BEFORE}{text[opening:]};".encode()
    tree = tree_sitter.Parser(LANGUAGE).parse(data)
    bracket = tree.root_node.descendant_for_byte_range(len(_BEFORE), len(_BEFORE) + 1)
    call = None if bracket is None else bracket.parent
    if call is None or call.type != "argument_list" or call.children[-1].is_missing:
        raise UnreadError(f"{text[opening : opening + 40]} does not end")
    return [data[x.start_byte : x.end_byte].decode() for x in call.named_children]


def _is_enclosed(text: str) -> bool:
    """Whether brackets of an initialiser are around all of it; those of arrays stay."""
    return text.startswith("(") and text.endswith(")")
