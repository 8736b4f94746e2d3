"""The document of `bisect`."""

from __future__ import annotations

from rewriter.core.documents import Count, Document, Entry, LineNumber


class BisectRun(Entry, frozen=True, kw_only=True):
    """One run of the program, with how many launches replaced, and how it ended."""

    what: str
    replaced: Count
    passed: bool
    outcome: str
    seconds: float


class BisectLaunch(Entry, frozen=True, kw_only=True):
    """A launch of a wrapper, and the lines of the model that it computes. `reason` is why it is
    never replaced; empty for one that is."""

    wrapper: str
    launch: Count
    kernel: str
    kind: str
    line: LineNumber
    lines: tuple[str, ...] = ()
    reason: str = ""


class BisectDocument(Document, frozen=True, kw_only=True, tag="rewriter.bisect"):
    """`rewriter bisect --json`. `launches` are the fewest with which the program passes if torch's
    operators compute them, none if there are none; `never_replaced` could not be part of them.
    `candidates` are all others."""

    program: tuple[str, ...]
    verdict: str
    launches: tuple[BisectLaunch, ...]
    candidates: Count
    never_replaced: tuple[BisectLaunch, ...]
    runs: tuple[BisectRun, ...]
    next: str
