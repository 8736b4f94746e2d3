"""Compares the inputs of a call with what the wrapper was compiled for; reads no elements.

The table first has a row for each input, with `-` for a fact that is not known:

    NAME tensor DTYPE DEVICE [SIZE,…] [STRIDE,…] [ALIGNMENT]
    NAME int|float SYMBOL

A size or stride is an expression over integers and symbols (the names of dynamic sizes), or `?` if
it is not known. `:low..high` behind it gives limits; `...` as the last one means any number of
further dimensions. A symbol gets its value from the first input that gives one: int inputs come
first, then sizes, then strides.

Rows with guards follow, conditions on symbols that have to hold: `if s77%8==0`,
`if s0==1 or s0%8==0`. They have Python's operators and the functions `min` and `max`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_UNKNOWN = "?"
_GUARD = "if "  # begins the row of a guard; no input is named `if`


@dataclass(frozen=True)
class ExpectedInput:
    """The row of one input. `size` and `stride` have the text of each dimension, limits included;
    they are None if nothing is known."""

    name: str
    kind: str = "-"
    dtype: str = "-"
    device: str = "-"
    size: tuple[str, ...] | None = None
    stride: tuple[str, ...] | None = None
    alignment: int = 0
    symbol: str = "-"

    @classmethod
    def read(cls, row: str) -> ExpectedInput:
        """Parse a row about an input."""
        name, kind, *rest = row.split(" ")
        if kind != "tensor":
            return cls(name, kind, symbol=rest[0])
        size, stride = map(_dimensions, rest[2:4])
        alignment = int(rest[4]) if len(rest) > 4 else 0
        return cls(name, kind, rest[0], rest[1], size, stride, alignment)


def _dimensions(text: str) -> tuple[str, ...] | None:
    if text == "-":
        return None
    return tuple(text[1:-1].split(",")) if len(text) > 2 else ()


def read_table(table: Sequence[str]) -> tuple[tuple[ExpectedInput, ...], tuple[str, ...]]:
    """Parse a table: the rows of inputs, and the guards without their `if`."""
    inputs = [ExpectedInput.read(row) for row in table if not row.startswith(_GUARD)]
    guards = [row[len(_GUARD) :] for row in table if row.startswith(_GUARD)]
    return tuple(inputs), tuple(guards)


class Symbols:
    """The values of the symbols in one call, and the names of the inputs that gave them."""

    def __init__(self, rows: Sequence[ExpectedInput], values: Sequence[Any]) -> None:
        self.values: dict[str, int] = {}
        self.sources: dict[str, str] = {}
        pairs = list(zip(rows, values, strict=False))
        for row, value in pairs:
            if row.symbol != "-" and isinstance(value, int):
                self._bind(row.symbol, int(value), row.name)
        for of in ("size", "stride"):
            for row, value in pairs:
                for text, number in _pairs(getattr(row, of), value, of):
                    self._bind(text.partition(":")[0], number, row.name)

    def _bind(self, symbol: str, value: int, source: str) -> None:
        if symbol.isidentifier() and symbol not in self.values:
            self.values[symbol] = value
            self.sources[symbol] = source

    def evaluate(self, text: str) -> int | None:
        """The value of a size or stride; None if it is not known."""
        text = text.partition(":")[0]
        if text.isdecimal():
            return int(text)
        if text in self.values or text == _UNKNOWN:
            return self.values.get(text)
        return _evaluate(ast.parse(text, mode="eval").body, self.values)


def _pairs(known: tuple[str, ...] | None, value: Any, of: str) -> Iterator[tuple[str, int]]:
    """Pair the text of each dimension with its actual size or stride; nothing if the number of
    dimensions is not the expected one."""
    if known is None or not isinstance(value, torch.Tensor) or _has_other_rank(known, value.dim()):
        return
    if of == "stride" and value.layout is not torch.strided:
        return
    yield from zip(known, value.shape if of == "size" else value.stride(), strict=False)


def _has_other_rank(known: tuple[str, ...], dim: int) -> bool:
    return len(known) - 1 > dim if known[-1:] == ("...",) else len(known) != dim


def _evaluate(node: ast.expr, values: dict[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value) if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.UnaryOp):
        inner = _evaluate(node.operand, values)
        return None if inner is None else -inner
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        read = [_evaluate(one, values) for one in node.args]
        known = [one for one in read if one is not None]
        choose = {"min": min, "max": max}.get(node.func.id)
        return choose(known) if choose and known and len(known) == len(read) else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _evaluate(node.left, values), _evaluate(node.right, values)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if not right:
        return None
    return left % right if isinstance(node.op, ast.Mod) else left // right


_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def violated(guards: Sequence[str], symbols: Symbols) -> dict[str, list[str]]:
    """Messages about the guards that do not hold, by the input that gave their first symbol.

    Guards with a symbol that has no value are skipped.
    """
    problems: dict[str, list[str]] = {}
    for guard in guards:
        names = [name for name in dict.fromkeys(_words(guard)) if name in symbols.values]
        if not names or _holds(guard, symbols.values) is not False:
            continue
        values = "; ".join(f"{x} is {symbols.values[x]} by {symbols.sources[x]}" for x in names)
        text = f"the guard {guard} does not hold ({values})"
        problems.setdefault(symbols.sources[names[0]], []).append(text)
    return problems


def _holds(guard: str, values: dict[str, int]) -> bool | None:
    """Whether a guard holds; None if it cannot be evaluated."""
    results = []
    for text in guard.split(" or "):
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Compare):
            return None
        left, right = _evaluate(node.left, values), _evaluate(node.comparators[0], values)
        compare = _COMPARE.get(type(node.ops[0]))
        if left is None or right is None or compare is None:
            return None
        results.append(compare(left, right))
    return any(results)


def compare(row: ExpectedInput, value: Any, symbols: Symbols) -> str:
    """A message about how one input differs from its row; empty if it does not."""
    if row.kind == "-":
        return ""
    is_tensor = isinstance(value, torch.Tensor)
    if row.kind != "tensor" or not is_tensor:
        return _of_kind(row, value, is_tensor)
    problems = [_of_size(row, value, symbols), _of_stride(row, value, symbols)]
    dtype, device = str(value.dtype).removeprefix("torch."), str(value.device)
    if row.dtype not in ("-", dtype):
        problems.append(f"dtype {dtype}, expected {row.dtype}")
    if row.device not in ("-", device, device.partition(":")[0]):
        problems.append(f"device {device}, expected {row.device}")
    if row.alignment and value.device.type != "meta" and value.layout is torch.strided:
        over = value.data_ptr() % row.alignment
        if over:
            problems.append(f"{over} bytes off an alignment of {row.alignment}")
    return "; ".join(filter(None, problems))


def _of_kind(row: ExpectedInput, value: Any, is_tensor: bool) -> str:
    given = "a tensor" if is_tensor else "nothing" if value is None else type(value).__name__
    if row.kind == "tensor":
        return f"{given}, expected a tensor"
    numbers = (int, torch.SymInt) if row.kind == "int" else (float, int, torch.SymFloat)
    return "" if isinstance(value, numbers) else f"{given}, expected {row.kind}"


def _of_size(row: ExpectedInput, value: torch.Tensor, symbols: Symbols) -> str:
    if row.size is None:
        return ""
    if _has_other_rank(row.size, value.dim()):
        plural = "" if value.dim() == 1 else "s"
        is_open = row.size[-1:] == ("...",)
        count = f"{len(row.size) - 1} or more" if is_open else str(len(row.size))
        return (
            f"size {list(value.shape)}, expected {_shown(row.size, symbols)} "
            f"({value.dim()} dimension{plural}, not {count})"
        )
    return _differing("size", row.size, list(value.shape), symbols, [])


def _of_stride(row: ExpectedInput, value: torch.Tensor, symbols: Symbols) -> str:
    if row.stride is None:
        return ""
    if value.layout is not torch.strided:
        return "not strided"
    # The stride of a dimension of size 1, or of an empty tensor, is never used.
    unused = [i for i, size in enumerate(value.shape) if size == 1 or not value.numel()]
    if _has_other_rank(row.stride, value.dim()):
        return ""
    return _differing("stride", row.stride, list(value.stride()), symbols, unused)


def _differing(
    what: str, known: tuple[str, ...], actual: list[int], symbols: Symbols, unused: list[int]
) -> str:
    wrong = []
    names: dict[str, None] = {}
    for place, (text, size) in enumerate(zip(known, actual, strict=False)):
        value = symbols.evaluate(text)
        low, _, high = text.partition(":")[2].partition("..")
        too_small, too_large = low and size < int(low), high and size > int(high)
        if place in unused or not (value not in (None, size) or too_small or too_large):
            continue
        wrong.append(place)
        if value != size:
            names |= dict.fromkeys(name for name in _words(text) if name in symbols.values)
    if not wrong:
        return ""
    where = f"dimension{'s' if len(wrong) > 1 else ''} {', '.join(map(str, wrong))}"
    for name in names:
        where += f"; {name} is {symbols.values[name]} by {symbols.sources[name]}"
    return f"{what} {actual}, expected {_shown(known, symbols)} ({where})"


def _words(text: str) -> list[str]:
    spaced = "".join(c if c.isalnum() or c == "_" else " " for c in text.partition(":")[0])
    return spaced.split()


def _shown(known: tuple[str, ...], symbols: Symbols) -> str:
    """The expected dimensions as text: limits, else the value in this call, else the expression."""
    members = []
    for text in known:
        formula, _, limits = text.partition(":")
        value = symbols.evaluate(formula) if formula != "..." else None
        members.append(limits or (formula if value is None else str(value)))
    return f"[{', '.join(members)}]"


def unknown(row: ExpectedInput, symbols: Symbols) -> list[str]:
    """The names of those facts of an input that cannot be checked, or not completely."""
    if row.kind == "-":
        return ["anything"]
    if row.kind != "tensor":
        return []
    facts = [name for name in ("dtype", "device") if getattr(row, name) == "-"]
    for name, known in (("size", row.size), ("stride", row.stride)):
        if known is None or any(_is_unknown(text, symbols) for text in known):
            facts.append(name)
    return facts


def _is_unknown(text: str, symbols: Symbols) -> bool:
    return text == "..." or (":" not in text and symbols.evaluate(text) is None)
