"""What verifying gives, as values. No I/O, and no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rewriter.dump.names import SourceLine
from rewriter.dump.reading import label

Outcome = Literal["agrees", "differs", "unchecked"]
# What a launch was checked against: the operator that it names, the graph that the wrapper was
# compiled from, the part of it that stands above the kernel, a function that the user names, or
# the same launch once more.
Route = Literal["operator", "graph", "fragment", "reference", "itself", ""]


@dataclass(frozen=True)
class Comparison:
    """How a result differs from what was expected, at the element that is worst by its tolerance.

    `wrong` of `numel` elements are farther off than rounding explains; `unsure` are those of which
    nothing can be said, because a comparison that rounding decides came before. `allowed` is the
    tolerance of that element, and `why` says what it is made of.
    """

    wrong: int
    numel: int
    unsure: int = 0
    at: tuple[int, ...] = ()
    expected: float = 0.0
    got: float = 0.0
    allowed: float = 0.0
    why: str = ""

    @property
    def agrees(self) -> bool:
        return not self.wrong

    @property
    def error(self) -> float:
        """How far off that element is."""
        return 0.0 if self.got == self.expected else abs(self.got - self.expected)

    @property
    def relative(self) -> float:
        """The same, relative to what was expected."""
        return self.error / abs(self.expected) if self.expected else math.inf * bool(self.error)


@dataclass(frozen=True)
class Checked:
    """One tensor that a launch wrote: its name, the value that it claims to be, such as
    `relu = aten.relu.default(addmm)`, and how it differs."""

    arg: str
    claim: str
    comparison: Comparison


@dataclass(frozen=True)
class LaunchCheck:
    """One launch of a run. `reason` says why it was not checked, or what is to be known of how it
    was; `together` names the launches that it could only be checked together with, `independent`
    what holds of it whatever it claims, such as `deterministic`."""

    run: str
    launch: int
    iteration: int
    kernel: str
    kind: str
    line: int
    outcome: Outcome
    route: Route = ""
    reason: str = ""
    results: tuple[Checked, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    together: tuple[int, ...] = ()
    independent: tuple[str, ...] = ()
    artifact: str = ""

    @property
    def label(self) -> str:
        return label(self.launch, self.iteration)

    @property
    def worst(self) -> Checked | None:
        """The result that is wrong, or else the first."""
        wrong = (one for one in self.results if not one.comparison.agrees)
        return next(wrong, self.results[0] if self.results else None)


@dataclass(frozen=True)
class Verification:
    """All launches of a dump, in the order in which they ran."""

    checks: tuple[LaunchCheck, ...]
    caveat: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome == outcome for one in self.checks)

    @property
    def finding(self) -> LaunchCheck | None:
        """The first launch that differs."""
        return next((one for one in self.checks if one.outcome == "differs"), None)

    @property
    def coverage(self) -> float:
        """The share of launches that were checked."""
        if not self.checks:
            return 0.0
        return 1 - self.count("unchecked") / len(self.checks)

    @property
    def reasons(self) -> dict[str, int]:
        """Why launches were not checked, and how many."""
        found: dict[str, int] = {}
        for one in self.checks:
            if one.outcome == "unchecked":
                found[one.reason] = found.get(one.reason, 0) + 1
        return found
