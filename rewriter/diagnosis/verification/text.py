"""The text output of `rewriter verify`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rewriter.core.labels import short
from rewriter.core.text import counted, element, of_elements, percent
from rewriter.diagnosis import next_commands
from rewriter.diagnosis.verification.types import (
    Checked,
    Comparison,
    LaunchCheck,
    Route,
    Verification,
)
from rewriter.dump.names import listed

_LINES = 4
# What the results of a launch are compared with.
AGAINST: dict[Route, str] = {
    "operator": "the operator that it calls, in float64",
    "graph": "the graph that the wrapper was compiled from, in float64",
    "fragment": "the part of the graph that stands above the kernel, in float64",
    "arguments": "the arguments that its node of the graph has",
    "itself": "another launch of the same kernel",
    "reference": "the function that --reference names, in float64",
    "": "what it claims to compute",
}


def headline(finding: LaunchCheck) -> str:
    """One sentence."""
    return f"{finding}{_together(finding)} {finding.wrong}{differing(finding)}"


def differing(finding: LaunchCheck) -> str:
    """How many elements of its worst result are wrong; empty without results."""
    if (worst := finding.worst) is None:
        return ""
    if worst.problem:
        return f": {worst.problem}"
    share = of_elements(worst.comparison.wrong, worst.comparison.numel)
    return f": {share} of {worst.arg} differ by more than rounding explains"


def describe(verification: Verification, dump: str) -> list[str]:
    """The verdict about the first finding of a dump; empty if there is none."""
    finding = verification.finding
    if finding is None or finding.worst is None:
        return []
    where = [short(finding.artifact), finding.run]
    where += [f"line {finding.line}"] if finding.line else []
    lines = [f"verdict: {headline(finding)}", f"  {', '.join(filter(None, where))}"]
    lines += [f"  {line}" for line in evidence(finding)]
    others = verification.count("differs") - 1
    if others:
        lines.append(f"  {counted(others, 'launch')} after it differ from what they claim, too")
    lines += [f"  note: {verification.caveat}"] if verification.caveat else []
    command = next_commands.alone(dump, finding.run, finding.label)
    return [*lines, f"  next: {command}", f"        ({next_commands.ALONE})"]


def evidence(finding: LaunchCheck) -> list[str]:
    """The evidence that a launch is wrong: lines of the model, elements, expected values."""
    lines = [f"at {line}" for line in finding.lines[:_LINES]]
    for checked in finding.results:
        if not checked.agrees:
            lines += list(_result(checked))
    lines.append(f"against {AGAINST[finding.route]}, from the values that it received")
    known = [result for result in finding.results if not result.comparison.is_unknown]
    agreeing = [checked.arg for checked in known if checked.agrees]
    return [*lines, f"{', '.join(agreeing)}: as expected"] if agreeing else lines


def values(name: str, comparison: Comparison) -> str:
    """The element that exceeds its tolerance most: where it is, and both values."""
    place = element(name, comparison.at)
    return f"{place}  expected {comparison.expected:.9g}, got {comparison.got:.9g}"


def _result(checked: Checked) -> Iterator[str]:
    comparison = checked.comparison
    if checked.problem:
        yield checked.problem
        return
    yield values(checked.arg, comparison)
    far = f"{comparison.error:.3g} off"
    if comparison.expected:
        far += f", {comparison.relative:.2g} of it"
    yield f"      {far}; {comparison.allowed:.3g} allowed ({comparison.why})"
    yield f"      claims to be {checked.claim}"


def coverage(verification: Verification) -> str:
    """How many launches were checked, and with what result."""
    checked = len(verification.checks) - verification.count("unchecked")
    agree, differ = verification.count("agrees"), verification.count("differs")
    again = sum(bool(check.independent) for check in verification.checks)
    more = f"; {counted(again, 'launch')} again, with the same results" if again else ""
    every = len(verification.checks)
    return (
        f"{checked} of {counted(every, 'launch')} checked "
        f"({percent(checked, every)}): {agree} {'agrees' if agree == 1 else 'agree'}, "
        f"{differ} {'differs' if differ == 1 else 'differ'}{more}{by_arguments(verification)}"
    )


def by_arguments(verification: Verification) -> str:
    """How many launches were only checked by what they are given; empty if none were."""
    if (count := verification.by_arguments) == 1:
        return "; 1 launch was only checked by what it is given"
    return f"; {count} launches were only checked by what they are given" if count else ""


def reasons(verification: Verification) -> list[str]:
    """Why launches were not checked."""
    return [f"not checked: {counted(n, 'launch')}: {reason}" for reason, n in verification.reasons]


def more_checked(dump: Path, unchecked: Iterable[LaunchCheck]) -> str:
    """The command that checks launches that were not, by the reasons why; empty if there is none.

    Its comment says what has to be done before.
    """
    options: dict[str, str] = {}
    for check in unchecked:
        if "no graph of the wrapper is known" in check.reason:
            options["--graph torch_compile_debug"] = (
                "which TORCH_COMPILE_DEBUG=1 leaves where the model is compiled"
            )
        elif "a user wrote this kernel" in check.reason:
            options[
                f"--reference {shlex.quote(check.kernel)}=references:{shlex.quote(check.kernel)}"
            ] = f"a function {check.kernel} in references.py that computes the same"
    words = ["rewriter verify", shlex.quote(str(dump)), *options]
    return f"{' '.join(words)}  # {', and '.join(options.values())}" if options else ""


def rows(checks: Sequence[LaunchCheck]) -> list[list[str]]:
    """The table of launches, with its header."""
    table = [["#", "kernel", "result", "against", "worst", "allowed", "of", "model"]]
    several = len({check.run for check in checks}) > 1
    for check in checks:
        known = [x for x in check.results if not x.comparison.is_unknown]
        worst = max(known, key=_excess, default=None)
        numbers = ["", "", ""]
        if worst is not None:
            comparison = worst.comparison
            numbers = [f"{comparison.error:.2g}", f"{comparison.allowed:.2g}", worst.arg]
        result = {"agrees": "agrees", "differs": "DIFFERS", "unchecked": "not checked"}[
            check.outcome
        ]
        name = f"{check.run} {check.label}" if several else check.label
        row = [name, f"{check.kernel}{_together(check)}", result, check.route, *numbers]
        table.append([*row, listed(check.lines)])
    return table


def _excess(checked: Checked) -> float:
    comparison = checked.comparison
    if not comparison.allowed:
        return float("inf") if comparison.error else 0.0
    return comparison.error / comparison.allowed


def _together(check: LaunchCheck) -> str:
    others = ", ".join(f"#{number}" for number in check.together)
    return f" (with {others})" if others else ""
