"""Decides the outcome of each case, and makes the table of the score."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.faults.corpus import Fault
from benchmarks.faults.judge import Answer
from benchmarks.faults.oracle import RETURNED, Changed

# Outcomes: of a fault that changes a value; of one that does not; of a harmless change.
FIRST, AMONG, MISSED = "first", "among the first three", "missed"
UNCHECKED = "unchecked, and said so"
SAME, ROUNDING, BROKEN = "changes nothing", "rounding or scratch alone", "does not compile"
CLEAN, ALARM = "clean", "false alarm"
_EFFECTIVE = (FIRST, AMONG, MISSED, UNCHECKED)


def outcome(fault: Fault, answer: Answer, differences: Sequence[Changed]) -> str:
    """The outcome of a case: one of the constants above."""
    if answer.broken:
        return BROKEN
    if fault.harmless:
        return ALARM if answer.says_something or answer.failed else CLEAN
    beyond = [one for one in differences if one.beyond and not _is_scratch(fault, one)]
    if not (beyond or answer.ended or answer.failed or fault.change.outputs):
        if answer.says_something:
            return ALARM if not differences else ROUNDING
        return ROUNDING if differences else SAME
    culprits = set(fault.change.culprits)
    if culprits & set(answer.named[:1]) or _names_what_is_missing(fault, answer):
        return FIRST
    if culprits & set(answer.named[:3]):
        return AMONG
    is_said = any(str(x) in answer.suspects for x in culprits)
    return UNCHECKED if is_said and not answer.says_something else MISSED


def _is_scratch(fault: Fault, one: Changed) -> bool:
    order = fault.change.order
    if one.launch == RETURNED:
        return False
    return fault.source.is_scratch(order[one.launch] if order else one.launch, one.arg)


def _names_what_is_missing(fault: Fault, answer: Answer) -> bool:
    """Whether the verdict names the kernel of a missing launch, or a buffer it should have written.

    This is for faults that remove or move a launch, which cannot be named by its index, and for
    those of which no launch is the culprit.
    """
    if fault.change.culprits and not fault.change.order:
        return False
    words = set(re.findall(r"\bbuf\d+\b", answer.verdict))
    kernel = fault.source.launches[fault.launch].kernel
    missing = answer.kind in ("missing", "order") and f" {kernel} " in answer.verdict
    return missing or bool(words & set(fault.change.buffers))


def row(
    fault: Fault, answer: Answer, differences: Sequence[Changed], provenance: bool
) -> dict[str, Any]:
    """One case as JSON. `provenance`: `verify` can check the launch when it is correct."""
    return {
        "name": fault.name,
        "kind": fault.kind,
        "form": fault.source.form,
        "artifact": fault.source.name,
        "launch": fault.launch,
        "kernel": fault.source.launches[fault.launch].kernel,
        "what": fault.change.what,
        "diff": fault.difference,
        "seed": fault.seed,
        "culprits": list(fault.change.culprits),
        "outcome": outcome(fault, answer, differences),
        "provenance": provenance,
        "changed": [
            {"launch": x.launch, "arg": x.arg, "roundings": x.roundings, "beyond": x.beyond}
            for x in differences[:8]
        ],
        "answer": answer.document(),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table of outcomes by kind and form, and the summary."""
    faults = [x for x in rows if x["outcome"] in _EFFECTIVE]
    forms = [x for x in ("python", "cpp_wrapper", "aoti") if any(y["form"] == x for y in faults)]
    head = [
        "kind",
        *(f"{form}: first / three / missed" for form in forms),
        "all: first / three / missed",
    ]
    lines = [head]
    for kind in [*dict.fromkeys(x["kind"] for x in rows if x["outcome"] not in (CLEAN, ALARM)), ""]:
        of_kind = [x for x in faults if not kind or x["kind"] == kind]
        cells = [_cell(x for x in of_kind if x["form"] == form) for form in forms]
        lines.append([kind or "all", *cells, _cell(of_kind)])
    text = "\n".join(
        f"| {' | '.join(cells)} |" for cells in [lines[0], ["---"] * len(head), *lines[1:]]
    )
    return f"{text}\n\n{summary(rows)}"


def _cell(rows: Iterable[dict[str, Any]]) -> str:
    counts = Counter(x["outcome"] for x in rows)
    missed = counts[MISSED] + counts[UNCHECKED]
    return f"{counts[FIRST]} / {counts[AMONG]} / {missed}" if counts else ""


def summary(rows: Sequence[dict[str, Any]]) -> str:
    counts = Counter(x["outcome"] for x in rows)
    effective = [x for x in rows if x["outcome"] in _EFFECTIVE]
    known = [x for x in effective if x["provenance"]]
    controls = counts[CLEAN] + counts[ALARM]
    return (
        f"{len(effective)} faults change a value beyond rounding: {_share(effective)} named first; "
        f"{_share(known)} of those in launches that are checked when they are right\n"
        f"not named: {counts[UNCHECKED]} in launches that the answer calls unchecked, "
        f"{counts[MISSED]} others\n"
        f"counted apart: {counts[SAME]} change nothing, {counts[ROUNDING]} only rounding or "
        f"what nothing reads, {counts[BROKEN]} do not compile\n"
        f"false alarms: {counts[ALARM]} in {controls} clean controls\n"
    )


def _share(rows: Sequence[dict[str, Any]]) -> str:
    first = sum(x["outcome"] == FIRST for x in rows)
    return f"{first} of {len(rows)}" + (f" ({first / len(rows):.0%})" if rows else "")


def describe(case: dict[str, Any], command: str) -> str:
    """A miss or a false alarm as text, for the person who fixes it."""
    answer = case["answer"]
    culprits = ", ".join(f"#{x}" for x in case["culprits"]) or "none (its buffers are outputs)"
    why = {str(x): answer["suspects"].get(str(x), "") for x in case["culprits"]}
    lines = [
        f"# {case['name']}: {case['outcome']}",
        f"artifact: {case['artifact']} ({case['form']}), launch #{case['launch']} {case['kernel']}",
        f"fault: {case['kind']}: {case['what']}",
        f"culprits: {culprits}",
        f"named: {answer['named']} ({answer['kind'] or 'nothing'})",
        f"verdict: {answer['verdict']}",
        *(f"#{launch} unchecked: {reason}" for launch, reason in why.items() if reason),
        f"results that changed: {case['changed']}",
        f"run: {command}",
        f"asked: {answer['command']}",
        *([f"failed: {answer['failed']}"] if answer["failed"] else []),
        "",
        "```diff",
        case["diff"].rstrip(),
        "```",
    ]
    return "\n".join(lines) + "\n"
