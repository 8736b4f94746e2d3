"""What a call of an operator is given, by the operator's parameters.

An operator that only the program registers cannot be evaluated here. A launch of it calls the very
operator that its node names, so it is right if it is given what the node is.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch

from rewriter.artifact.naming.graph import FxNode
from rewriter.dump.rows import TensorRow
from rewriter.locate.operators import is_torchs
from rewriter.verification.bounded import UncheckedError
from rewriter.verification.evaluate import Evaluator, UnregisteredError, operator_named
from rewriter.verification.judge import compare, value_of
from rewriter.verification.literals import Literals
from rewriter.verification.received import LaunchValues, dtype_of
from rewriter.verification.types import Checked, Comparison

Arguments = Mapping[str, ast.expr]
_MISSING = ast.Constant(...)


class _Pair(NamedTuple):
    """One argument, or a member of a list: the parameter, the node's, and the launch's."""

    parameter: str
    wanted: ast.expr
    given: ast.expr


def is_unregistered(path: str) -> bool:
    """Whether `namespace.op.overload` is an operator that is not registered in this process."""
    if path.count(".") < 2 or is_torchs(path):
        return False
    try:
        operator_named(path.split("."))
    except UncheckedError as error:
        return isinstance(error, UnregisteredError)
    return False


def call_of(text: str) -> ast.Call:
    """The call in a statement. Raises `UncheckedError` if there is none."""
    try:
        statement = ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, IndexError, RecursionError) as error:
        raise UncheckedError("the statement of the launch is no Python") from error
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        raise UncheckedError("the statement of the launch is no call")
    return value


def _plain(expression: str) -> str:
    """An expression as `ast` writes it, where it is Python."""
    try:
        return ast.unparse(ast.parse(expression, mode="eval"))
    except (SyntaxError, RecursionError):
        return expression


def _bound(text: str, schema: Any) -> Arguments:
    """The arguments of a call, those that it leaves out included, in the schema's order."""
    call = call_of(text)
    known = schema.arguments
    found: dict[str, ast.expr] = {
        x.name: ast.Constant(x.default_value) if x.has_default_value() else _MISSING for x in known
    }
    found |= {x.name: one for x, one in zip(known, call.args, strict=False)}
    return found | {one.arg: one.value for one in call.keywords if one.arg}


def check(
    node: FxNode, schema: Any, values: LaunchValues, evaluator: Evaluator, sizes: Mapping[str, int]
) -> list[Checked]:
    """Compare what a launch is given with the arguments of its node, of which `evaluator` knows the
    values. Raises `UncheckedError` if an argument cannot be told."""
    wanted, given = (_bound(text, schema) for text in (node.call, values.text))
    call = _Call(node, values, evaluator, sizes)
    pairs = (_members(name, want, given.get(name, _MISSING)) for name, want in wanted.items())
    return [call.compared(pair) for pair in chain.from_iterable(pairs)]


def _members(name: str, want: ast.expr, got: ast.expr) -> Iterator[_Pair]:
    """The members of two lists that are equally long, or else the arguments themselves."""
    lists = [x.elts for x in (want, got) if isinstance(x, (ast.List, ast.Tuple))]
    if len(lists) == 2 and len(lists[0]) == len(lists[1]):
        for place, one in enumerate(zip(*lists, strict=True)):
            yield from _members(f"{name}[{place}]", *one)
    else:
        yield _Pair(name, want, got)


class _Call:
    """What a launch was recorded to be given, by the expressions in its statement."""

    def __init__(
        self, node: FxNode, values: LaunchValues, evaluator: Evaluator, sizes: Mapping[str, int]
    ) -> None:
        self._node, self._values, self._evaluator, self._sizes = node, values, evaluator, sizes
        self._tensors: dict[str, TensorRow | None] = {}
        numbers: dict[str, int] = {}
        for text, x in {_plain(x.expr): x for x in values.launch.args}.items():
            if x.type == "tensor":
                self._tensors[text] = values.given.get(x.name) if x.role != "out" else None
            elif x.name in values.numbers:
                numbers[text] = values.numbers[x.name]
        # Two expressions may have been recorded under one name.
        self._numbers = {**sizes, **(numbers if len(numbers) == len(values.numbers) else {})}

    def compared(self, pair: _Pair) -> Checked:
        text, want = ast.unparse(pair.given), pair.wanted
        name = want.id if isinstance(want, ast.Name) else ""
        is_tensor = self._evaluator.type_of(name) is not None
        if not is_tensor and text not in self._tensors:
            return self._literal(pair, text)
        if not is_tensor or text not in self._tensors:
            return _other(pair, f"{pair.parameter} is {text}, not {ast.unparse(want)}")
        row, expected = self._tensors[text], value_of(name, self._evaluator)
        if row is None:  # it is uninitialised, unless it is another one
            if bool(torch.isfinite(expected.bound()).any()):
                raise UncheckedError(f"{pair.parameter}, {text}, was not recorded")
            return Checked(pair.parameter, name, as_recorded(expected.value.numel()))
        kind, shape = self._evaluator.type_of(name), tuple(expected.value.shape)
        is_typed = kind is not None and dtype_of(row) in (None, kind.dtype)
        if not is_typed or tuple(row.shape) != shape:
            problem = f"{pair.parameter} is {row.dtype} {[*row.shape]}, not {name} {[*shape]}"
            return _other(pair, problem)
        claim = f"{pair.parameter} = {self._evaluator.statement(name)}"
        given = f"{pair.parameter}={row.arg}"
        return Checked(given, claim, compare(self._values.load(row), expected))

    def _literal(self, pair: _Pair, text: str) -> Checked:
        """Compare two arguments that are no tensors."""
        if isinstance(pair.wanted, ast.List) and isinstance(pair.given, ast.List):
            return _other(pair, f"{pair.parameter} has another number of members")
        names = {x.id for x in ast.walk(pair.wanted) if isinstance(x, ast.Name)}
        nodes = names & {*self._node.reads} - self._sizes.keys()
        values = {**self._sizes, **{x: self._evaluator.value(x) for x in nodes}}
        want = Literals(values).of(pair.wanted)
        is_recorded = text in self._numbers
        got = self._numbers[text] if is_recorded else Literals(self._sizes).of(pair.given)
        numbers = isinstance(want, _NUMBERS) and isinstance(got, _NUMBERS)
        if not numbers and type(want) is not type(got) and None not in (want, got):
            raise UncheckedError(f"whether {pair.parameter} is {want} cannot be told")
        same = want == got or (numbers and want != want and got != got)
        return _other(pair, "" if same else f"{pair.parameter} is {got}, not {want}")


_NUMBERS = (int, float, complex)


def _other(pair: _Pair, problem: str) -> Checked:
    """The check of an argument that is another one as a whole; it agrees without a problem."""
    claim = f"{pair.parameter} = {ast.unparse(pair.wanted)}"
    return Checked(pair.parameter, claim, Comparison(int(bool(problem)), 1, why=problem))


def as_recorded(numel: int) -> Comparison:
    """The comparison of a result that is taken as it was recorded."""
    return Comparison(0, numel, numel, why="it is taken as it was recorded")
