"""What came of making a launch smaller."""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.core.documents import Count
from rewriter.core.printed import printed
from rewriter.reproduction.reproduce import Reproduction


@dataclass(frozen=True)
class Change:
    """One argument or size before and after, in words."""

    name: str
    before: str
    after: str


@printed("kind finding changes trials seconds stopped confirmed")
@dataclass(frozen=True)
class Minimised:
    """What the finding is, what was made smaller, and whether a fresh process still finds it.

    `made` is what lies in the directory then: as it was recorded where `confirmed` is false.
    """

    kind: str
    finding: str
    changes: tuple[Change, ...]
    trials: Count
    seconds: float
    stopped: bool
    confirmed: bool
    made: Reproduction
