"""Which value of one dump stands for which of the other, in launches that stand for each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile, zip_longest

from rewriter.core.types import Json
from rewriter.dump.dataflow import reads, results, tensors

Rows = tuple[Json, Json]


def pair_reads(a: Sequence[Json], b: Sequence[Json]) -> list[Rows]:
    """What two launches read, argument by argument.

    Kernels that take other arguments have none in common that the order could tell: nothing is
    paired then, and what produced them speaks for them.
    """
    left, right = reads(a), reads(b)
    if [_form(row) for row in left] == [_form(row) for row in right]:
        return list(zip(left, right, strict=True))
    left, right = tensors(left), tensors(right)
    if [_form(row) for row in left] == [_form(row) for row in right]:
        return list(zip(left, right, strict=True))
    return []


def pair_outputs(a: Sequence[Json], b: Sequence[Json]) -> list[Rows]:
    """What two calls returned at the same positions.

    Where one returns more, it is up to the first that is of another size: behind what the program
    asked for stands what is kept for a backward pass, and that may be other values.
    """
    both = zip(a, b, strict=False)
    pairs = [(one, other) for one, other in both if "dtype" in one and "dtype" in other]
    return pairs if len(a) == len(b) else list(takewhile(lambda rows: _fits(*rows), pairs))


def left_out(a: Sequence[Json], b: Sequence[Json], pairs: Sequence[Rows]) -> list[str]:
    """Outputs that are not among `pairs`, in words. One that is the same input of the call in both,
    or no tensor in both, such as None, needs no comparison."""
    paired = {id(one) for one, _ in pairs}
    found = []
    for position, (one, other) in enumerate(zip_longest(a, b)):
        if (one and id(one) in paired) or (one and other and _is_no_result(one, other)):
            continue
        found.append(f"output {position} ({_what(one)} in A, {_what(other)} in B)")
    return found


def _is_no_result(one: Json, other: Json) -> bool:
    return "is" in one and one["is"] == other.get("is") and "recorded" not in one["is"]


def _what(row: Json | None) -> str:
    if row is None:
        return "nothing"
    return str(row.get("is", row["arg"].partition(": ")[2]))


def pair_results(
    a: Sequence[Json], b: Sequence[Json], *, same_kernel: bool
) -> tuple[list[Rows], list[Json], list[Json]]:
    """What two launches wrote, and what is left over of each.

    In order where it is as many, else by name; but other kernels may write other things, so that
    theirs are paired by sizes, where each is the only one of its size.
    """
    left, right = tensors(results(a)), tensors(results(b))
    if left and left[0].get("phase") == "inputs":
        return _by_name(left, right)
    if len(left) == len(right) and (same_kernel or all(map(_fits, left, right))):
        return list(zip(left, right, strict=True)), [], []
    if same_kernel:
        return _by_name(left, right)
    pairs: list[Rows] = []
    for row in left:
        fitting = [other for other in right if _fits(row, other)]
        alike = [other for other in left if _fits(other, row)]
        if len(fitting) == len(alike) == 1:
            pairs.append((row, fitting[0]))
    return _with_rest(pairs, left, right)


def unchanged(rows: Sequence[Json], row: Json) -> bool:
    """Whether an argument that a launch only reads is known to be after it what it was before.

    Statistics do not see the order of values: where tensors were saved, only their hashes tell
    without reading them.
    """
    return any(
        other.get("phase") == "before"
        and other.get("arg") == row.get("arg")
        and {**other, "phase": "", "file": ""} == {**row, "phase": "", "file": ""}
        and ("sha256" in row or not ("file" in row and "file" in other))
        for other in rows
    )


def pair_untouched(a: Sequence[Json], b: Sequence[Json]) -> list[Rows]:
    """What launches only read and yet changed, in either dump: a kernel wrote out of bounds, or the
    wrapper says nothing of what it updates."""
    left, right = ([row for row in rows if _only_read(row)] for rows in (a, b))
    if [_form(row) for row in left] != [_form(row) for row in right]:
        return []
    if not any(row.get("phase") == "before" for row in (*a, *b)):
        return []  # then these rows are what it read
    return [
        (x, y)
        for x, y in zip(left, right, strict=True)
        if not (unchanged(a, x) and unchanged(b, y))
    ]


def _only_read(row: Json) -> bool:
    return row.get("phase") == "after" and row.get("role") == "in" and "dtype" in row


def _form(row: Json) -> tuple[object, ...]:
    return (row.get("role"), math.prod(row["shape"]) if "dtype" in row else None)


def _fits(a: Json, b: Json) -> bool:
    return math.prod(a["shape"]) == math.prod(b["shape"])


def _by_name(left: list[Json], right: list[Json]) -> tuple[list[Rows], list[Json], list[Json]]:
    """By name where both have it, the rest in order if as many are left."""
    names = {row["arg"]: row for row in right}
    pairs = [(row, names[row["arg"]]) for row in left if row["arg"] in names]
    pairs, rest_a, rest_b = _with_rest(pairs, left, right)
    if len(rest_a) == len(rest_b) and all(map(_fits, rest_a, rest_b)):
        return [*pairs, *zip(rest_a, rest_b, strict=True)], [], []
    return pairs, rest_a, rest_b


def _with_rest(
    pairs: list[Rows], left: list[Json], right: list[Json]
) -> tuple[list[Rows], list[Json], list[Json]]:
    gone = {id(row) for pair in pairs for row in pair}
    return (
        pairs,
        [row for row in left if id(row) not in gone],
        [row for row in right if id(row) not in gone],
    )
