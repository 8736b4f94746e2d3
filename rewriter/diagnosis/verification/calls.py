"""Evaluates the operator that a launch calls, or else compares what that is given with its node.

An operator that only the program registers cannot be evaluated here. A launch of it calls the very
operator that its node names, so it is right if it is given what the node is.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch

from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError
from rewriter.diagnosis.verification.evaluate import (
    Evaluator,
    UnregisteredError,
    operator_named,
    run,
)
from rewriter.diagnosis.verification.graph_types import Literals, parsed
from rewriter.diagnosis.verification.judge import compare, value_of
from rewriter.diagnosis.verification.received import LaunchValues, dtype_of
from rewriter.diagnosis.verification.types import Checked, Comparison
from rewriter.dump.rows import TensorRow
from rewriter.locate.names import canonical
from rewriter.locate.operators import is_torchs
from rewriter.locate.types import Launch
from rewriter.model_names.graph import FxNode

Arguments = Mapping[str, ast.expr]
_MISSING = ast.Constant(...)
_PRODUCTS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?=[LlUuFf]*\)*$)")


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
    tree = parsed(expression)
    return expression if tree is None else ast.unparse(tree)


def bound(text: str, schema: Any) -> Arguments:
    """The arguments of a call, those that it leaves out included, in the schema's order."""
    call = call_of(text)
    known = schema.arguments
    found: dict[str, ast.expr] = {
        x.name: ast.Constant(x.default_value) if x.has_default_value() else _MISSING for x in known
    }
    found |= {x.name: arg for x, arg in zip(known, call.args, strict=False)}
    return found | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def check(
    node: FxNode, schema: Any, values: LaunchValues, evaluator: Evaluator, sizes: Mapping[str, int]
) -> list[Checked]:
    """Compare what a launch is given with the arguments of its node, of which `evaluator` knows the
    values. Raises `UncheckedError` if an argument cannot be told."""
    wanted, given = (bound(text, schema) for text in (node.call, values.text))
    call = _Call(node, values, evaluator, sizes)
    pairs = (_members(name, want, given.get(name, _MISSING)) for name, want in wanted.items())
    return [call.compared(pair) for pair in chain.from_iterable(pairs)]


def _members(name: str, want: ast.expr, got: ast.expr) -> Iterator[_Pair]:
    """The members of two lists that are equally long, or else the arguments themselves."""
    lists = [x.elts for x in (want, got) if isinstance(x, (ast.List, ast.Tuple))]
    if len(lists) == 2 and len(lists[0]) == len(lists[1]):
        for place, pair in enumerate(zip(*lists, strict=True)):
            yield from _members(f"{name}[{place}]", *pair)
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
        if text == ast.unparse(pair.wanted) and self._evaluator.is_opaque(text):
            return _other(pair, "")
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
    return Checked.as_a_whole(pair.parameter, claim, problem)


def as_recorded(numel: int) -> Comparison:
    """The comparison of a result that is taken as it was recorded."""
    return Comparison(0, numel, numel, why="it is taken as it was recorded")


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
    args, kwargs = _Arguments(known).arguments(call, less="out")
    return run(overload(operator, kwargs), args, kwargs, None)


def evaluate_shim(launch: Launch, known: Mapping[str, Bounded]) -> Any:
    """As `evaluate`, for a matrix product that is called through the C shim: its arguments are in
    the order of the operator's, tensors first, and `beta` and `alpha` last.

    Raises `UncheckedError` for other operators.
    """
    operator = canonical(launch.kernel)
    if operator not in _PRODUCTS:
        raise UncheckedError(f"the arguments of {operator} are not read out of C++ without a graph")
    tensors = [x for x in launch.tensors if x.role == "in"]
    if len(tensors) != _PRODUCTS[operator] or any(x.expr not in known for x in tensors):
        raise UncheckedError("its inputs were not recorded")
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
    for variant in (operator, *(getattr(packet, name) for name in packet.overloads())):
        if set(kwargs) <= {x.name for x in variant._schema.arguments}:
            return variant
    return operator


class _Arguments(Literals):
    """The arguments of a call, among them the recorded tensors by their expressions."""

    def __init__(self, known: Mapping[str, Bounded]) -> None:
        super().__init__({})
        self._known = {_plain(text): value for text, value in known.items()}

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
    return [bounded if isinstance(bounded, Bounded) else None for bounded in several]
