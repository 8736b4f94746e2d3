"""All that the text of a wrapper, or of a part of one, shows without running it.

`wrapper_text.py` has the examinations of a whole wrapper. Of a fragment, nothing is said about what
is not in the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rewriter.artifact.posted import LEFT_OUT, described, missing, undefined
from rewriter.artifact.types import Wrapper
from rewriter.core.labels import beginning
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Suspect
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.wrapper_text import (
    examine_kernels,
    examine_lifetimes,
    examine_races,
    shown_by_text,
)
from rewriter.dump.launched import variable
from rewriter.locate import operators
from rewriter.locate.names import canonical
from rewriter.locate.types import Argument, Launch

# Products that read elements of these arguments again after they have written results. What
# `addmm` adds to, its first argument, may be its target.
_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_int_mm": (0, 1)}
_PRODUCTS |= {"bias_addmm": (1, 2), "_scaled_mm": (0, 1), "addmv": (1, 2), "mv": (0, 1)}
_FACTS = ("kernel", "kind", "scope", "line", "source_nodes", "origins")


def examine_text(wrapper: Wrapper) -> Iterator[Examined]:
    """Examine one wrapper or fragment, and say which of its launches could not be followed."""
    lacking, launches = missing(wrapper), wrapper.located.launches
    has_gaps = wrapper.is_fragment and LEFT_OUT.search(wrapper.plain.data) is not None
    reason_of = partial(_unknown, kernels={*undefined(wrapper)}, has_gaps=has_gaps)
    suspects = tuple(_suspect(wrapper, x, why) for x in launches if (why := reason_of(x)))
    if not has_gaps and launches:
        lifetimes = examine_lifetimes(wrapper)
        yield replace(lifetimes, ruled_out="") if suspects else lifetimes
        if not wrapper.is_fragment:
            yield examine_kernels(wrapper, reads=lifetimes.findings)
        if all(what.startswith("no source") for what in lacking):  # from its head to its return
            yield examine_races(wrapper)
    yield examine_targets(wrapper)
    calls = wrapper.located.unrecognised
    unknown = [f"{wrapper.name}:{call.line}: {call.text} is not recognised" for call in calls]
    notes = (*described(wrapper), *unknown)
    yield Examined(suspects=suspects, notes=notes, launches=len(launches))


def _unknown(launch: Launch, *, kernels: Collection[str], has_gaps: bool) -> str:
    """Why nothing can be said about a launch; empty if something can."""
    if has_gaps:
        return "lines are left out of the text"
    if launch.kernel in kernels:
        return "its kernel is not in the text: what it reads and writes is not known"
    name = launch.kernel.removeprefix("torch.ops.")
    is_known = operators.written(name) is not None or operators.is_torchs(name)
    is_open = launch.kind == "custom_op" and not is_known
    return "an operator whose schema is not in the text" if is_open else ""


def _suspect(wrapper: Wrapper, launch: Launch, reason: str) -> Suspect:
    facts: dict[str, Any] = {"run": "", "step": 0, "iteration": 0, "launch": launch.index}
    facts |= {name: getattr(launch, name) for name in _FACTS}
    return Suspect(reason=reason, artifact=wrapper.name, **facts)


def _is_same(operand: Argument, target: Argument) -> bool:
    """Whether two arguments surely have elements in common: views of a buffer may have none."""
    whole = operand.is_whole or target.is_whole
    same = variable(operand.name) == variable(target.name)
    return operand is not target and (operand.expr == target.expr or (same and whole))


def examine_targets(wrapper: Wrapper) -> Examined:
    """Findings for products that are given one tensor as an operand and as their target."""
    findings, looked = [], 0
    for launch in wrapper.located.launches:
        places = _PRODUCTS.get(canonical(launch.kernel)) if launch.kind == "extern_out" else None
        if places is None:
            continue
        written = [x for x in launch.tensors if x.role != "in"]
        if not written:  # as in `out=view(buf0)` of a function that is not known
            continue
        is_cpp = wrapper.language == "cpp"
        target, operands = written[0 if is_cpp else -1], launch.args[is_cpp:]
        looked += 1
        read = [operands[place] for place in places if place < len(operands)]
        if both := next((operand for operand in read if _is_same(operand, target)), None):
            what = f"is given {both.expr} as an operand and as its target: it reads elements that "
            what += "it has written already"
            findings.append(shown_by_text(wrapper, "", "aliased", what, launch))
    if findings or not looked:
        return Examined(tuple(findings))
    return Examined(
        ruled_out="an operator whose source is its target: in the text of "
        f"{beginning(wrapper.path.name)}, none of {counted(looked, 'product')}"
    )
