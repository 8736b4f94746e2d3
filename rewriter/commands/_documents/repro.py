"""The document of `repro`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from rewriter.core.documents import Count, Document, Entry, entry

if TYPE_CHECKING:
    from rewriter.reproduction.minimise.types import Minimised
    from rewriter.reproduction.reproduce import Reproduction
    from rewriter.reproduction.under.types import UnderResult


class UnderFinding(Entry, frozen=True, kw_only=True):
    """One fault that a tool found in the kernel."""

    kind: str
    message: str
    file: str
    line: Annotated[Count, Meta(description="Of the file, 0 where the tool does not say")]
    text: Annotated[str, Meta(description="That line")]
    parameter: Annotated[str, Meta(description="Of the kernel; empty where it is not known")]
    argument: Annotated[str, Meta(description="What it was given, by the name in the dump")]
    element: Annotated[int | None, Meta(description="Counted from the first one it was handed")]
    size: Annotated[Count | None, Meta(description="How many elements are there")]
    is_own: Annotated[bool, Meta(description="Whether that is an array of the kernel's own")]
    last: Annotated[int | None, Meta(description="The last element that is written outside of it")]


class Under(Entry, frozen=True, kw_only=True):
    """What a tool says of the launch: `--under`."""

    tool: str
    findings: tuple[UnderFinding, ...]
    command: Annotated[str, Meta(description="Runs the tool once more")]
    note: str


class MinimisedChange(Entry, frozen=True, kw_only=True):
    """One argument or size, in words."""

    name: str
    before: str
    after: str


class MinimisedLaunch(Entry, frozen=True, kw_only=True):
    """What `--minimise` made of the launch."""

    kind: Annotated[str, Meta(description="crash, not finite, differs, or what asan reports")]
    finding: str
    changes: tuple[MinimisedChange, ...]
    trials: Count
    seconds: float
    stopped: Annotated[bool, Meta(description="Whether the time was over")]
    confirmed: Annotated[bool, Meta(description="Whether a fresh process finds it, too")]


class ReproDocument(Document, frozen=True, kw_only=True, tag="rewriter.repro"):
    """`rewriter repro --json`."""

    directory: str
    launch: Count
    kernel: str
    kind: str
    run: Annotated[str, Meta(description="The call, such as rank0/run0")]
    files: Annotated[tuple[str, ...], Meta(description="In the directory; the script is the first")]
    under: Under | None
    minimised: MinimisedLaunch | None

    @staticmethod
    def of(
        made: Reproduction, ran: UnderResult | None = None, smaller: Minimised | None = None
    ) -> ReproDocument:
        """The document of what was written."""
        recorded = made.recorded
        return ReproDocument(
            directory=str(made.directory),
            launch=recorded.launch.index,
            kernel=recorded.launch.kernel,
            kind=recorded.launch.kind,
            run=recorded.run.name,
            files=made.files,
            under=None if ran is None else entry(Under, ran),
            minimised=None if smaller is None else entry(MinimisedLaunch, smaller),
        )
