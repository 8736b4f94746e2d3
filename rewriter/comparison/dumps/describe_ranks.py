"""Summarizes the comparison of ranks in sentences for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.ranks import Ranks
from rewriter.comparison.dumps.replica import Divergence, Replica
from rewriter.comparison.dumps.types import Comparison
from rewriter.core.text import some
from rewriter.locate.names import canonical

RanksOutcome = Literal["equal", "different", "different data"]
_NAMED = 4  # inputs named in a sentence


def verdict(result: Ranks) -> str:
    """The answer in one line."""
    if (first := result.first) is not None:
        apart = result.odd or (first.rank,)
        others = [rank for rank in result.ranks if rank not in apart]
        if not result.odd and first.rank != result.reference:
            others = [result.reference]
        verb = "diverges" if len(apart) == 1 else "diverge"
        return f"different: {named(apart)} {verb} from {named(others)} {_where(first)}"
    if result.given:
        firsts = {x.rank: x for x in reversed(result.given)}
        given = [f"rank {x.rank} {_given(x)}" for x in reversed(firsts.values())]
        more = ((x.rank, _other_kernels(x.comparison)) for x in result.replicas if x.comparison)
        given += [f"rank {rank}: {kernels}" for rank, kernels in more if kernels]
        return f"no rank diverges, but not all were given the same inputs: {'; '.join(given)}"
    compared = [replica for replica in result.replicas if replica.comparison]
    known = {id(x): describe.count(x) for x in result.comparisons}  # many share one
    counts = [known[id(replica.comparison)] for replica in compared]
    equal, matched = sum(x.equal for x in counts), sum(x.matched for x in counts)
    how = "bit for bit" if all(x.identical == x.equal for x in counts) else "within tolerance"
    if any(x.by_statistics for x in counts):
        how += ", as far as statistics see"
    if not equal:
        how = "as far as could be compared"
    ranks = [result.reference, *(replica.rank for replica in compared)]
    return f"equal: {named(ranks)}, {equal} of {matched} pairs of launches, {how}"


def own_data(result: Ranks, data: Sequence[str] | None) -> str:
    """What to do next if only inputs of ranks differ, and the user did not say that they may."""
    if data is not None or result.first or not result.is_unexplained:
        return ""
    labels = (x for divergence in result.given for x in divergence.labels or divergence.names)
    names = dict.fromkeys(label.rpartition(" ")[2] for label in labels)
    option = f"--data {','.join(names) or chr(39) + '*' + chr(39)}"
    return (
        f"If each rank is meant to have its own data, pass {option}: only other differences count "
        "then."
    )


def outcome(result: Ranks) -> RanksOutcome:
    """`different`, `different data` or `equal`."""
    return "different" if result.first else "different data" if result.given else "equal"


def lines(result: Ranks) -> Iterator[str]:
    """A line about each rank except the reference."""
    verdicts = {id(x): describe.verdict(x) for x in result.comparisons}  # many ranks share one
    for replica in result.replicas:
        yield line(replica, verdicts.get(id(replica.comparison)))


def line(replica: Replica, verdict: str | None = None) -> str:
    """The line about one rank; `verdict` is that of its comparison, if it was already made."""
    if replica.comparison is None:
        return f"rank {replica.rank}: not compared: {replica.why}"
    parts = [_given(divergence) for divergence in replica.given]
    if first := replica.first:
        parts.append(_own(first, replica.rank))
        said = {first.reason}
        for divergence in replica.divergences:
            if divergence.reason not in said:
                said.add(divergence.reason)
                parts.append(f"then {_own(divergence, replica.rank)}")
        more = len(replica.divergences) - len(said)
        if more > 0:
            parts.append(f"{more} more behind that")
    elif parts:
        parts.append("launches whose inputs agree do not differ")
    else:
        parts.append(verdict or describe.verdict(replica.comparison))
    if not replica.first and (other := _other_kernels(replica.comparison)):
        parts.append(other)
    if fewer := [name[2:] for name in replica.comparison.unpaired]:
        parts.append(f"{some(fewer, _NAMED)} has no counterpart")
    return f"rank {replica.rank}: {'; '.join(parts)}"


def _other_kernels(comparison: Comparison) -> str:
    """Which kernels a rank launches in place of those of the reference; empty if there are none."""
    # A job of many ranks has millions of launches, and few kernels.
    pairs = dict.fromkeys(
        (launch.a.kernel if launch.a else "", launch.b.kernel if launch.b else "")
        for launch in comparison.launches
        if launch.place.launch is not None  # else it is the inputs or the outputs of a call
    )
    apart = [(a, b) for a, b in pairs if not (a and b and canonical(a) == canonical(b))]
    own, others = (list(dict.fromkeys(x[side] for x in apart if x[side])) for side in (0, 1))
    if own and others:
        return f"it launches other kernels: {some(own, _NAMED)} in place of {some(others, _NAMED)}"
    if own:
        return f"it launches more kernels: {some(own, _NAMED)}"
    return f"it does not launch {some(others, _NAMED)}" if others else ""


def sentence(divergence: Divergence, rank: int) -> str:
    """A sentence about one place where a rank differs: which rank, where, and why."""
    given = divergence.reason in ("data", "shards", "random", "received")
    text = _given(divergence) if given else _own(divergence, rank)
    why = "" if given else reason(divergence) or "; ".join(divergence.launch.reasons)
    return f"rank {rank}{':' if text.startswith('the record') else ''} {text}" + (
        f": {why}" if why else ""
    )


def groups(result: Ranks) -> str:
    """Which ranks agree with each other where one diverges first; empty for two ranks."""
    if len(result.ranks) < 3 or len(result.groups) < 2:
        return ""
    if result.first and result.first.reason == "ended":
        return ""
    text = "; ".join(
        f"{named(group)} {'agree' if len(group) > 1 else 'alone'}" for group in result.groups
    )
    counted = {rank for group in result.groups for rank in group}
    if left := [rank for rank in result.ranks if rank not in counted]:
        text += f"; {named(left)} not comparable there: given something else, or not recorded"
    return f"there: {text}" + ("" if result.odd else "; no group is the largest")


def named(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 4-7`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    runs = groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    spans = [[rank for _, rank in run] for _, run in runs]
    return "ranks " + ", ".join(
        f"{span[0]}-{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    )


def reason(divergence: Divergence) -> str:
    """Why something is a divergence, as a sentence."""
    verb = "differs" if len(divergence.names) == 1 else "differ"
    return {
        "launch": "",
        "collective": f"{', '.join(divergence.names)} leaves the same on every rank of its group, "
        "whatever its inputs are; here it did not",
        "parameters": f"{_inputs(divergence)} agreed in the first call of the wrapper: "
        "parameters that were updated differently in between, or data",
        "inputs": f"{_inputs(divergence)} {verb}, and every rank should have the same",
        "ended": "the program may have been stopped there; what was recorded before is compared",
        "seen": "what produced it was not compared",
        "data": f"{_inputs(divergence)} differ from the first call on: data of its own, or another "
        "initialisation",
        "shards": f"{_inputs(divergence)} {verb} from the first call on: its part of the model, or "
        "another initialisation; parts are not compared",
        "random": "it draws random numbers: the generators were in other states",
        "received": "a collective that leaves values of its own on each rank",
    }[divergence.reason]


def _where(divergence: Divergence) -> str:
    """The end of the verdict."""
    run = divergence.run
    if divergence.reason == "ended":
        return f"{_end(divergence)} in {run}"
    if divergence.reason in ("inputs", "parameters"):
        return f"at the inputs of {run}: {_inputs(divergence)}"
    if divergence.reason == "collective":
        return f"at {divergence.launch.place.with_line} in {run}, the results of a collective"
    return f"at {divergence.launch.place.with_line} in {run}"


def _own(divergence: Divergence, rank: int) -> str:
    if divergence.reason == "ended":
        whose = "the record" if divergence.rank == rank else f"the record of rank {divergence.rank}"
        return f"{whose} ends {_end(divergence)} in {divergence.run}"
    return f"diverges {_where(divergence)}"


def _end(divergence: Divergence) -> str:
    end = f"after {divergence.ended}" if divergence.ended else "before the first launch"
    if divergence.launch.a is None or divergence.launch.b is None:
        return f"{end}, where {divergence.launch.place} follows on the other"
    return f"in {divergence.ended}" if divergence.ended else end


def _given(divergence: Divergence) -> str:
    if divergence.reason == "random":
        return f"drew other random numbers from {divergence.run} on ({divergence.launch.place})"
    if divergence.reason == "received":
        return f"received other values from {divergence.run} on ({divergence.launch.place})"
    if divergence.reason == "shards":
        return f"has other parts of the model, not compared ({_inputs(divergence)})"
    return f"received other data from {divergence.run} on ({_inputs(divergence)})"


def _inputs(divergence: Divergence) -> str:
    names = divergence.labels or divergence.names
    return some(names, _NAMED) or "values that were not recorded"
