"""Finds the fewest of many things that together make a difference, by few trials.

Trials are taken to be monotone: with more of them replaced, what passed still passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Trial = Callable[[frozenset[int]], bool]


@dataclass
class _Known:
    """Trials that were made, each once, and those that follow from them."""

    trial: Trial
    passed: list[frozenset[int]] = field(default_factory=list)
    failed: list[frozenset[int]] = field(default_factory=list)

    def passes(self, chosen: Sequence[int]) -> bool:
        asked = frozenset(chosen)
        if any(passed <= asked for passed in self.passed):
            return True
        if any(asked <= failed for failed in self.failed):
            return False
        found = self.trial(asked)
        (self.passed if found else self.failed).append(asked)
        return found


def smallest(count: int, trial: Trial) -> tuple[int, ...]:
    """The numbers below `count` of which all are needed for a trial to pass, where one with none
    fails, and one with all passes.

    One is found in log2(count) trials, rounded up, and one more where no trial had it alone; k in
    at most 2k (1 + log2(count)), with the two that the caller has made.
    """
    known = _Known(trial, [frozenset(range(count))], [frozenset()])
    one = _alone(count, known)
    return (one,) if known.passes([one]) else _together(count, known)


def _alone(count: int, known: _Known) -> int:
    """The only one that makes the difference, if one alone does: halves of what is left."""
    left = list(range(count))
    while len(left) > 1:
        half = left[: (len(left) + 1) // 2]
        left = half if known.passes(half) else left[len(half) :]
    return left[0]


def _together(count: int, known: _Known) -> tuple[int, ...]:
    """One after the other, from the last: without it and those behind it that are not needed, what
    is before it does not pass."""
    found: list[int] = []
    end = count
    while not known.passes(found):
        low, high = 0, end  # the shortest beginning that passes is longer than `low`
        while high - low > 1:
            middle = (low + high) // 2
            if known.passes([*found, *range(middle)]):
                high = middle
            else:
                low = middle
        found.append(high - 1)
        end = high - 1
    return tuple(sorted(found))
