"""Pairs the values of two launches, one from each dump, that correspond to each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest

from msgspec import UNSET, structs

from rewriter.core.strides import is_dense
from rewriter.dump.dataflow import NoResult
from rewriter.dump.launched import reads, results, tensors
from rewriter.dump.rows import EventRow, TensorRow, ValueRow

# `reinterpret_tensor(, (16, 16), (1, 16), 0)`, without the name of the tensor.
_REINTERPRETED = re.compile(
    r"reinterpret_tensor\(\s*,\s*\(([\d\s,]*)\),\s*\(([\d\s,]*)\),\s*(\d+)\)"
)
_NUMBER = re.compile(r"\d+")

Rows = tuple[ValueRow, ValueRow]
Tensors = tuple[TensorRow, TensorRow]
Output = TensorRow | NoResult
# The pairs, and the rows of each side that have no counterpart.
Paired = tuple[list[Tensors], list[TensorRow], list[TensorRow]]


def pair_reads(
    a: Sequence[EventRow], b: Sequence[EventRow], *, carried: bool = False
) -> Sequence[Rows]:
    """Pair the inputs of two launches, argument by argument.

    If kernels take different arguments, their order tells nothing: nothing is paired, and the
    producers of the inputs are judged instead. The same applies if the rows of one side are
    `carried` from their producers and those of the other are not: they may show a view of a value.
    """
    left, right = reads(a), reads(b)
    if carried:
        known = {row.arg: row for row in tensors(right)}
        pairs = ((row, known[row.arg]) for row in tensors(left) if row.arg in known)
        return [(row, other) for row, other in pairs if row.shape == other.shape]
    for of_a, of_b in ((left, right), (tensors(left), tensors(right))):
        if list(map(_form, of_a)) == list(map(_form, of_b)):
            return list(zip(of_a, of_b, strict=True))
    return []


def with_views(
    pairs: Iterable[Rows], views_a: Mapping[str, str], views_b: Mapping[str, str]
) -> Iterator[Rows]:
    """Pair the inputs of two launches whose rows were carried from their producers.

    `views` are the expressions by names, without these. If both launches read the same view, the
    producers' elements are paired; if they read the elements in other orders, only their
    statistics; if a view shows a part, nothing.
    """
    for row, other in pairs:
        if not isinstance(row, TensorRow) or not isinstance(other, TensorRow):
            yield row, other
            continue
        view_a, view_b = _view(row, views_a), _view(other, views_b)
        if view_a == view_b:
            yield row, other
        elif "part" not in (view_a, view_b):
            yield _unordered(row), _unordered(other)


def _view(row: TensorRow, views: Mapping[str, str]) -> str:
    """How a launch read a row: empty for its elements in their order, "part" for some of them,
    else an expression for another order."""
    text = views.get(row.arg, "")
    match = _REINTERPRETED.fullmatch(text)
    if not match:
        return text
    sizes, strides = (tuple(map(int, _NUMBER.findall(match[which]))) for which in (1, 2))
    if int(match[3]) or len(sizes) != len(strides):
        return "part"
    if not is_dense(sizes, strides) or math.prod(sizes) != row.size:
        return "part"
    is_plain = row.stride is not UNSET and _is_in_order(row.shape, row.stride)
    return "" if is_plain and _is_in_order(sizes, strides) else f"{text} of {row.stride}"


def _is_in_order(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements cover memory in the order of their indices."""
    steps = [step for size, step in zip(shape, stride, strict=True) if size != 1]
    return is_dense(shape, stride) and steps == sorted(steps, reverse=True)


def _unordered(row: TensorRow) -> TensorRow:
    """A row without the facts that depend on the order of its elements."""
    return structs.replace(row, shape=(row.size,), stride=UNSET, file="", fingerprint="", sha256="")


def pair_outputs(a: Sequence[Output], b: Sequence[Output]) -> list[Tensors]:
    """Pair the outputs of two calls at equal positions.

    If one call has more outputs, pairs end before the first one of another size: after the outputs
    of the program come values kept for a backward pass, which may differ.
    """
    pairs = [
        (row, other)
        for row, other in zip(a, b, strict=False)
        if isinstance(row, TensorRow) and isinstance(other, TensorRow)
    ]
    return pairs if len(a) == len(b) else list(takewhile(lambda rows: _fits(*rows), pairs))


def left_out(a: Sequence[Output], b: Sequence[Output], pairs: Sequence[Tensors]) -> list[str]:
    """Outputs that are not in `pairs`, in words. Leaves out those that are the same input of the
    call in both, or not a tensor in both, such as None: they need no comparison."""
    paired = {id(row) for row, _ in pairs}
    missing = []
    for position, (one, other) in enumerate(zip_longest(a, b)):
        is_known = isinstance(one, NoResult) and one == other and one.is_known
        if (one and id(one) in paired) or is_known:
            continue
        missing.append(f"output {position} ({_what(one)} in A, {_what(other)} in B)")
    return missing


def _what(output: Output | None) -> str:
    if output is None:
        return "nothing"
    return output.text if isinstance(output, NoResult) else output.arg.partition(": ")[2]


def pair_results(a: Sequence[EventRow], b: Sequence[EventRow], *, same_kernel: bool) -> Paired:
    """Pair the results of two launches; also the rows of each side that are left.

    Those of one kernel by order, or by name where that works in place in one of the dumps: its
    arguments are in another order then. Different kernels may have different results, so theirs are
    paired by sizes, if each is the only one of its size.
    """
    left, right = tensors(results(a)), tensors(results(b))
    if left and left[0].phase == "inputs":
        return _by_name(left, right)
    alike = _has_role if same_kernel else _fits
    if len(left) == len(right) and all(map(alike, left, right)):
        return list(zip(left, right, strict=True)), [], []
    if same_kernel:
        return _by_name(left, right)
    pairs: list[Tensors] = []
    for row in left:
        fitting = [other for other in right if _fits(row, other)]
        rivals = [other for other in left if _fits(other, row)]
        if len(fitting) == len(rivals) == 1:
            pairs.append((row, fitting[0]))
    return _with_rest(pairs, left, right)


def unchanged(rows: Sequence[EventRow], row: TensorRow) -> bool:
    """Whether an argument that a launch only reads is known to be unchanged after it.

    Statistics ignore the order of values: if tensors were saved, only their hashes tell without
    reading them.
    """
    return any(
        other.phase == "before"
        and other.arg == row.arg
        and structs.replace(other, phase=row.phase, file=row.file) == row
        and (row.digest or not (row.file and other.file))
        for other in tensors(rows)
    )


def pair_untouched(a: Sequence[EventRow], b: Sequence[EventRow]) -> list[Tensors]:
    """Pair arguments that launches only read and that changed in either dump: a kernel wrote out of
    bounds, or the wrapper does not declare what it updates."""

    def only_read(rows: Sequence[EventRow]) -> list[TensorRow]:
        before = {row.name for row in rows if row.phase == "before"}  # else they count as inputs
        after = (row for row in tensors(rows) if row.phase == "after" and row.role == "in")
        return [row for row in after if row.arg in before]

    left, right = only_read(a), only_read(b)
    if [_form(row) for row in left] != [_form(row) for row in right]:
        return []
    pairs = zip(left, right, strict=True)
    return [(x, y) for x, y in pairs if not (unchanged(a, x) and unchanged(b, y))]


def _form(row: ValueRow) -> tuple[object, ...]:
    return (row.role, row.size if isinstance(row, TensorRow) else None)


def _has_role(a: TensorRow, b: TensorRow) -> bool:
    return a.role == b.role


def _fits(a: TensorRow, b: TensorRow) -> bool:
    return a.size == b.size


def _by_name(left: list[TensorRow], right: list[TensorRow]) -> Paired:
    """By name if both have it; the rest by order if equally many are left."""
    names = {row.arg: row for row in right}
    pairs = [(row, names[row.arg]) for row in left if row.arg in names]
    pairs, rest_a, rest_b = _with_rest(pairs, left, right)
    if len(rest_a) == len(rest_b) and all(map(_fits, rest_a, rest_b)):
        return [*pairs, *zip(rest_a, rest_b, strict=True)], [], []
    return pairs, rest_a, rest_b


def _with_rest(pairs: list[Tensors], left: list[TensorRow], right: list[TensorRow]) -> Paired:
    gone = {id(row) for pair in pairs for row in pair}
    rest_a, rest_b = ([row for row in side if id(row) not in gone] for side in (left, right))
    return pairs, rest_a, rest_b
