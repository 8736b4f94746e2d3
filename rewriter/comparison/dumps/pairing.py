"""Which value of one dump stands for which of the other, in launches that stand for each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest

from msgspec import UNSET, structs

from rewriter.dump.dataflow import NoResult, reads, results, tensors
from rewriter.dump.rows import EventRow, TensorRow, ValueRow

# `reinterpret_tensor(, (16, 16), (1, 16), 0)`, without the name of the tensor.
_REINTERPRETED = re.compile(
    r"reinterpret_tensor\(\s*,\s*\(([\d\s,]*)\),\s*\(([\d\s,]*)\),\s*(\d+)\)"
)
_NUMBER = re.compile(r"\d+")

Rows = tuple[ValueRow, ValueRow]
Tensors = tuple[TensorRow, TensorRow]
Output = TensorRow | NoResult
# What stands for each other, and what is left over of each side.
Paired = tuple[list[Tensors], list[TensorRow], list[TensorRow]]


def pair_reads(
    a: Sequence[EventRow], b: Sequence[EventRow], *, carried: bool = False
) -> Sequence[Rows]:
    """What two launches read, argument by argument.

    Kernels that take other arguments have none in common that the order could tell: nothing is
    paired then, and what produced them speaks for them. It also does where the rows of one side are
    `carried` from there, and those of the other are not: they may show a view of it.
    """
    left, right = reads(a), reads(b)
    if carried:
        known = {row.arg: row for row in tensors(right)}
        pairs = ((row, known[row.arg]) for row in tensors(left) if row.arg in known)
        return [(one, other) for one, other in pairs if one.shape == other.shape]
    if [_form(row) for row in left] == [_form(row) for row in right]:
        return list(zip(left, right, strict=True))
    of_a, of_b = tensors(left), tensors(right)
    if [_form(row) for row in of_a] == [_form(row) for row in of_b]:
        return list(zip(of_a, of_b, strict=True))
    return []


def with_views(
    pairs: Iterable[Rows], views_a: Mapping[str, str], views_b: Mapping[str, str]
) -> Iterator[Rows]:
    """What two launches read, where rows that were carried from their makers show another view.

    `views` are the expressions by names, without these. The makers' elements stand for each other
    where both views are the same; where they are in another order, their statistics do; and where a
    view is of a part, nothing does.
    """
    for one, other in pairs:
        if not isinstance(one, TensorRow) or not isinstance(other, TensorRow):
            yield one, other
            continue
        view_a, view_b = _view(one, views_a), _view(other, views_b)
        if view_a == view_b:
            yield one, other
        elif "part" not in (view_a, view_b):
            yield _unordered(one), _unordered(other)


def _view(row: TensorRow, views: Mapping[str, str]) -> str:
    """What a launch read of a row: empty for its elements in their order, "part" for some of them,
    else an expression for them in another order."""
    text = views.get(row.arg, "")
    match = _REINTERPRETED.fullmatch(text)
    if not match:
        return text
    sizes, strides = (tuple(map(int, _NUMBER.findall(match[which]))) for which in (1, 2))
    if int(match[3]) or len(sizes) != len(strides):
        return "part"
    dims = [(stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    if not _is_dense(sorted(dims)) or math.prod(sizes) != row.size:
        return "part"
    made = [] if row.stride is UNSET else list(zip(row.stride, row.shape, strict=True))
    made = [(stride, size) for stride, size in made if size != 1]
    is_plain = _is_dense(dims[::-1]) and _is_dense(made[::-1]) and row.stride is not UNSET
    return "" if is_plain else f"{text} of {row.stride}"


def _is_dense(dims: Sequence[tuple[int, int]]) -> bool:
    """Whether dimensions, by stride and size from the innermost one, cover memory in order."""
    step = 1
    for stride, size in dims:
        if stride != step:
            return False
        step *= size
    return True


def _unordered(row: TensorRow) -> TensorRow:
    """A row with what is known of its elements whatever their order is."""
    return structs.replace(row, shape=(row.size,), stride=UNSET, file="", fingerprint="", sha256="")


def pair_outputs(a: Sequence[Output], b: Sequence[Output]) -> list[Tensors]:
    """What two calls returned at the same positions.

    Where one returns more, it is up to the first that is of another size: behind what the program
    asked for stands what is kept for a backward pass, and that may be other values.
    """
    pairs = [
        (one, other)
        for one, other in zip(a, b, strict=False)
        if isinstance(one, TensorRow) and isinstance(other, TensorRow)
    ]
    return pairs if len(a) == len(b) else list(takewhile(lambda rows: _fits(*rows), pairs))


def left_out(a: Sequence[Output], b: Sequence[Output], pairs: Sequence[Tensors]) -> list[str]:
    """Outputs that are not among `pairs`, in words. One that is the same input of the call in both,
    or no tensor in both, such as None, needs no comparison."""
    paired = {id(one) for one, _ in pairs}
    missing = []
    for position, (one, other) in enumerate(zip_longest(a, b)):
        if (one and id(one) in paired) or (one and other and _is_no_result(one, other)):
            continue
        missing.append(f"output {position} ({_what(one)} in A, {_what(other)} in B)")
    return missing


def _is_no_result(one: Output, other: Output) -> bool:
    return isinstance(one, NoResult) and one == other and one.is_known


def _what(output: Output | None) -> str:
    if output is None:
        return "nothing"
    return output.text if isinstance(output, NoResult) else output.arg.partition(": ")[2]


def pair_results(a: Sequence[EventRow], b: Sequence[EventRow], *, same_kernel: bool) -> Paired:
    """What two launches wrote, and what is left over of each.

    In order where it is as many, else by name; but other kernels may write other things, so that
    theirs are paired by sizes, where each is the only one of its size.
    """
    left, right = tensors(results(a)), tensors(results(b))
    if left and left[0].phase == "inputs":
        return _by_name(left, right)
    if len(left) == len(right) and (same_kernel or all(map(_fits, left, right))):
        return list(zip(left, right, strict=True)), [], []
    if same_kernel:
        return _by_name(left, right)
    pairs: list[Tensors] = []
    for row in left:
        fitting = [other for other in right if _fits(row, other)]
        alike = [other for other in left if _fits(other, row)]
        if len(fitting) == len(alike) == 1:
            pairs.append((row, fitting[0]))
    return _with_rest(pairs, left, right)


def unchanged(rows: Sequence[EventRow], row: TensorRow) -> bool:
    """Whether an argument that a launch only reads is known to be after it what it was before.

    Statistics do not see the order of values: where tensors were saved, only their hashes tell
    without reading them.
    """
    return any(
        other.phase == "before"
        and other.arg == row.arg
        and structs.replace(other, phase=row.phase, file=row.file) == row
        and (row.digest or not (row.file and other.file))
        for other in tensors(rows)
    )


def pair_untouched(a: Sequence[EventRow], b: Sequence[EventRow]) -> list[Tensors]:
    """What launches only read and yet changed, in either dump: a kernel wrote out of bounds, or the
    wrapper says nothing of what it updates."""
    left, right = (_only_read(rows) for rows in (a, b))
    if [_form(row) for row in left] != [_form(row) for row in right]:
        return []
    return [
        (x, y)
        for x, y in zip(left, right, strict=True)
        if not (unchanged(a, x) and unchanged(b, y))
    ]


def _only_read(rows: Sequence[EventRow]) -> list[TensorRow]:
    """What a launch only reads, as it was afterwards: without rows from before it, those are what
    it read."""
    before = {row.name for row in rows if row.phase == "before"}
    after = (row for row in tensors(rows) if row.phase == "after" and row.role == "in")
    return [row for row in after if row.arg in before]


def _form(row: ValueRow) -> tuple[object, ...]:
    return (row.role, row.size if isinstance(row, TensorRow) else None)


def _fits(a: TensorRow, b: TensorRow) -> bool:
    return a.size == b.size


def _by_name(left: list[TensorRow], right: list[TensorRow]) -> Paired:
    """By name where both have it, the rest in order if as many are left."""
    names = {row.arg: row for row in right}
    pairs = [(row, names[row.arg]) for row in left if row.arg in names]
    pairs, rest_a, rest_b = _with_rest(pairs, left, right)
    if len(rest_a) == len(rest_b) and all(map(_fits, rest_a, rest_b)):
        return [*pairs, *zip(rest_a, rest_b, strict=True)], [], []
    return pairs, rest_a, rest_b


def _with_rest(pairs: list[Tensors], left: list[TensorRow], right: list[TensorRow]) -> Paired:
    gone = {id(row) for pair in pairs for row in pair}
    return (
        pairs,
        [row for row in left if id(row) not in gone],
        [row for row in right if id(row) not in gone],
    )
