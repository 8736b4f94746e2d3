"""Summarizes a comparison in counts and one sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rewriter.comparison.dumps import precision, values
from rewriter.comparison.dumps.types import DIFFERS, Comparison, Outcome, Tolerance
from rewriter.core.documents import Count
from rewriter.core.text import counted, some

_CUT = 4  # calls named in a sentence


@dataclass(frozen=True)
class Counts:
    """Numbers of launches that ran; the inputs of a call do not count as one.

    `identical` are those of `equal` whose results are equal bit for bit, as far as is known.
    `rounding` are those whose results differ by what rounding explains, in another precision.
    `unknown` have results that could not be compared. Launches of only one dump may also be
    culprits or downstream, by what others read of their results.
    """

    matched: Count
    equal: Count
    identical: Count
    rounding: Count
    culprits: Count
    downstream: Count
    unknown: Count
    moved: Count
    only_a: Count
    only_b: Count
    by_statistics: Count  # values, not launches
    by_hash: Count


def count(comparison: Comparison) -> Counts:
    launches = [x for x in comparison.launches if x.place.launch is not None]
    matched = [launch for launch in launches if launch.matched]
    values = [tensor for launch in matched for tensor in launch.tensors]
    states = Counter(launch.state for launch in matched)
    blame = Counter(launch.blame for launch in launches)
    equal = (launch for launch in matched if launch.state == "equal")
    return Counts(
        matched=len(matched),
        equal=states["equal"],
        identical=sum(all(tensor.identical for tensor in launch.results) for launch in equal),
        rounding=states["rounding"],
        culprits=blame["culprit"],
        downstream=blame["downstream"],
        unknown=states["unknown"],
        moved=sum(launch.moved for launch in matched),
        only_a=sum(launch.b is None for launch in launches),
        only_b=sum(launch.a is None for launch in launches),
        by_statistics=sum(tensor.basis == "statistics" for tensor in values),
        by_hash=sum(tensor.basis == "hashes" for tensor in values),
    )


def needed(comparison: Comparison) -> Tolerance | None:
    """The smallest tolerances under which all saved results pass: either one without the other.

    Infinite if none is large enough, `None` if nothing was saved or all of it is equal.
    """
    metrics = [
        tensor.metrics
        for launch in comparison.launches
        for tensor in launch.results
        if tensor.metrics and not tensor.metrics.identical
    ]
    if not metrics:
        return None
    if any(x.nan_a or x.nan_b or x.inf for x in metrics):
        return Tolerance(math.inf, math.inf)
    return Tolerance(max(x.rtol_needed for x in metrics), max(x.atol_needed for x in metrics))


def verdict(comparison: Comparison) -> str:
    """The answer in one line."""
    if comparison.culprits:
        first = comparison.culprits[0]
        is_inputs = first.place.launch is None
        at = "the inputs of the call" if is_inputs else first.place.with_line
        return f"different: the runs diverge at {at}"
    if not comparison.equal:
        differing = (x for x in comparison.launches if {x.state, x.inputs} & {*DIFFERS})
        first = next(x for x in differing if x.matched)
        return f"different: first seen at {first.place}; what produced it was not compared"
    counts = count(comparison)
    number = counts.only_a + counts.only_b
    alone = f"; {number} without a counterpart" if number else ""
    if comparison.rounded:
        known = f"{counts.equal + counts.rounding} of {counts.matched} launches"
        why = f"{precision.lower(comparison.launches)} explains all differences of {known}"
        return f"equal up to rounding: {why}{alone}"
    text = f"equal: {counts.equal} of {counts.matched} launches"
    if not counts.equal:
        text = "equal: what was read; nothing that launches wrote could be compared"
    elif counts.identical == counts.equal:
        text += ", bit for bit"
    else:
        text += ", within tolerance"
    if counts.by_statistics:
        text += ", as far as statistics see"
    return text + alone


def outcome(comparison: Comparison) -> Outcome:
    """`different`, `rounding` or `equal`."""
    if not comparison.equal:
        return "different"
    return "rounding" if comparison.rounded else "equal"


def limits(comparison: Comparison) -> Iterator[str]:
    """Sentences about what the verdict cannot see."""
    counts = count(comparison)
    if counts.by_statistics:
        yield f"{counted(counts.by_statistics, 'value')} compared {values.BY_STATISTICS}"
    if counts.by_hash:
        yield f"{counted(counts.by_hash, 'value')} compared {values.BY_HASH}"
    if cut := comparison.cut:
        yield f"the record of {some(cut, _CUT)} is cut short: what followed is lost"
