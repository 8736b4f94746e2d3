"""The document of `verify`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.core.documents import Count, Document, Entry, entry
from rewriter.verification.types import Checked, LaunchCheck, Verification

Number = float | Literal["inf", "-inf", "nan"]


class CheckedEntry(Entry, frozen=True, kw_only=True):
    """One tensor that a launch wrote, at the element that is worst by its tolerance."""

    arg: str
    claim: Annotated[str, Meta(description="What it claims to be: a node of the graph")]
    wrong: Annotated[Count, Meta(description="Elements that rounding does not explain")]
    unsure: Annotated[Count, Meta(description="Elements of which nothing can be said")]
    numel: Count
    at: tuple[Count, ...]
    expected: Number
    got: Number
    error: Number
    relative: Number
    allowed: Number
    why: Annotated[str, Meta(description="What the tolerance is made of")]


class LaunchCheckEntry(Entry, frozen=True, kw_only=True):
    """One launch as it ran."""

    run: str
    artifact: str
    launch: Count
    iteration: Count
    kernel: str
    kind: str
    line: Count
    outcome: Literal["agrees", "differs", "unchecked"]
    route: Annotated[
        Literal["operator", "graph", "fragment", "reference", "arguments", "itself", ""],
        Meta(description="What it was checked against"),
    ]
    reason: Annotated[str, Meta(description="Why it was not checked, or not in full")]
    together: Annotated[
        tuple[Count, ...], Meta(description="Launches that it could only be checked with")
    ]
    independent: Annotated[
        tuple[str, ...],
        Meta(description="With --independent: what holds whatever it claims, as `deterministic`"),
    ]
    lines: Annotated[tuple[str, ...], Meta(description="Of the model")]
    results: tuple[CheckedEntry, ...]


class VerifyDocument(Document, frozen=True, kw_only=True, tag="rewriter.verify"):
    """`rewriter verify --json`: each launch against what it claims to compute."""

    dump: str
    verdict: Annotated[
        str | None, Meta(description="One sentence about the first launch that differs")
    ]
    finding: LaunchCheckEntry | None
    agree: Count
    by_arguments: Annotated[
        Count,
        Meta(
            description="Launches of custom operators, and draws of seeds, among these that are "
            "given what their graph says: what they compute is their own"
        ),
    ]
    differ: Count
    unchecked: Count
    coverage: float
    caveat: str
    launches: tuple[LaunchCheckEntry, ...]


def verify_document(dump: str, verification: Verification) -> VerifyDocument:
    from rewriter.verification.text import headline

    finding = verification.finding
    return VerifyDocument(
        dump=dump,
        verdict=None if finding is None else headline(finding),
        finding=None if finding is None else _launch(finding),
        agree=verification.count("agrees"),
        by_arguments=verification.by_arguments,
        differ=verification.count("differs"),
        unchecked=verification.count("unchecked"),
        coverage=round(verification.coverage, 4),
        caveat=verification.caveat,
        launches=tuple(map(_launch, verification.checks)),
    )


def _launch(check: LaunchCheck) -> LaunchCheckEntry:
    return entry(
        LaunchCheckEntry,
        check,
        lines=tuple(map(str, check.lines)),
        results=tuple(map(_checked, check.results)),
    )


def _checked(checked: Checked) -> CheckedEntry:
    numbers = ("expected", "got", "error", "relative", "allowed")
    finite = {name: _number(getattr(checked.comparison, name)) for name in numbers}
    more = {"arg": checked.arg, "claim": checked.claim, **finite}
    return entry(CheckedEntry, checked.comparison, **more)


def _number(value: float) -> Number:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return value
