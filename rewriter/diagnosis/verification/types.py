"""The results of verifying. No I/O, and no torch."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from rewriter.core.documents import Count, Number
from rewriter.core.printed import printed
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.reading import label

Outcome = Literal["agrees", "differs", "unchecked"]
# What a launch was checked against: the operator that it calls, the graph that the wrapper was
# compiled from, the part of the graph in the comment above the kernel, a function that the user
# names, or another launch of the same kernel. A call of an operator that draws seeds, or that only
# the program registers, is checked by its arguments: what it computes is its own.
Route = Literal["operator", "graph", "fragment", "reference", "arguments", "itself", ""]


@printed("wrong unsure numel at expected got error relative allowed why")
@dataclass(frozen=True)
class Comparison:
    """How a result differs from the expected one, with the element that exceeds its tolerance most.

    `wrong` of `numel` elements are farther off than rounding explains. `unsure` elements have no
    tolerance, because they depend on a comparison that rounding may change. `allowed` is the
    tolerance of the worst element, and `why` explains it.
    """

    wrong: Count
    numel: Count
    unsure: Count = 0
    at: tuple[Count, ...] = ()
    expected: Number = 0.0
    got: Number = 0.0
    allowed: Number = 0.0
    why: str = ""

    @property
    def agrees(self) -> bool:
        return not self.wrong

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of what any element should be."""
        return 0 < self.numel == self.unsure

    @property
    def error(self) -> Number:
        """The error of the worst element."""
        return 0.0 if self.got == self.expected else abs(self.got - self.expected)

    @property
    def relative(self) -> Number:
        """The error relative to the expected value."""
        return self.error / abs(self.expected) if self.expected else math.inf * bool(self.error)


def node_of(claim: str) -> str:
    """The name of the node that a result claims to be."""
    return claim.partition(" = ")[0]


@printed("arg claim *comparison")
@dataclass(frozen=True)
class Checked:
    """One tensor that a launch wrote, or that a call leaves: its name, the node that it claims to
    be, such as `relu = aten.relu.default(addmm)`, and how it differs."""

    arg: str
    claim: str
    comparison: Comparison

    @classmethod
    def as_a_whole(cls, arg: str, claim: str, problem: str) -> Checked:
        """One that is wrong as a whole; without a `problem`, it agrees."""
        return cls(arg, claim, Comparison(int(bool(problem)), 1, why=problem))

    @property
    def agrees(self) -> bool:
        return self.comparison.agrees

    @property
    def problem(self) -> str:
        """Why it is wrong as a whole, and not in an element; empty if it is not."""
        found = self.comparison
        is_whole = found.wrong and not (found.at or found.expected or found.got)
        return found.why if is_whole else ""


@printed(
    "run artifact launch iteration kernel kind line outcome route reason together independent"
    " lines=model_lines results"
)
@dataclass(frozen=True, kw_only=True)
class LaunchCheck(RecordedLaunch):
    """The check of one launch of a run.

    `reason` says why it was not checked, or adds a note on how. `together` are other launches that
    had to be evaluated with it. `independent` are properties that hold whatever it claims, such as
    `deterministic`.
    """

    launch: Count
    outcome: Outcome = "unchecked"
    route: Route = ""
    reason: str = ""
    results: tuple[Checked, ...] = ()
    together: tuple[Count, ...] = ()
    independent: tuple[str, ...] = ()
    artifact: str = ""

    @property
    def model_lines(self) -> tuple[str, ...]:
        return tuple(map(str, self.lines))

    @property
    def label(self) -> str:
        return label(self.launch, self.iteration)

    @property
    def wrong(self) -> str:
        """What it does, in words, if it differs."""
        if self.route == "arguments":
            return "is not given what its node of the graph is"
        return f"is {self.reason}" if self.route == "itself" else "does not compute what it claims"

    @property
    def worst(self) -> Checked | None:
        """The first wrong result, or else the first one."""
        wrong = (result for result in self.results if not result.agrees)
        return next(wrong, self.results[0] if self.results else None)


# Why nothing is known of a value.
ANYTHING = (
    "its graph gives no definite value: rounding errors may make anything of it, or it is NaN, or "
    "of uninitialised memory"
)


@dataclass(frozen=True)
class Verification:
    """All launches of a dump, in the order in which they ran."""

    checks: tuple[LaunchCheck, ...]
    caveat: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome == outcome for check in self.checks)

    @property
    def finding(self) -> LaunchCheck | None:
        """The first launch that differs."""
        return next((check for check in self.checks if check.outcome == "differs"), None)

    @property
    def by_arguments(self) -> Count:
        """How many launches agree in what they are given; what they compute is their own."""
        return sum(x.outcome == "agrees" and x.route == "arguments" for x in self.checks)

    @property
    def coverage(self) -> float:
        """The share of launches that were checked."""
        return 1 - self.count("unchecked") / len(self.checks) if self.checks else 0.0

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Why launches were not checked, and how many, the most frequent first."""
        unchecked = (check for check in self.checks if check.outcome == "unchecked")
        return Counter(check.reason for check in unchecked).most_common()
