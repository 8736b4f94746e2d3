"""The document of `repro`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from rewriter.core.documents import Count, Document

if TYPE_CHECKING:
    from rewriter.reproduction.reproduce import Reproduction


class ReproDocument(Document, frozen=True, kw_only=True, tag="rewriter.repro"):
    """`rewriter repro --json`."""

    directory: str
    launch: Count
    kernel: str
    kind: str
    run: Annotated[str, Meta(description="The call, such as rank0/run0")]
    files: Annotated[tuple[str, ...], Meta(description="In the directory; the script is the first")]

    @staticmethod
    def of(made: Reproduction) -> ReproDocument:
        """The document of what was written."""
        recorded = made.recorded
        return ReproDocument(
            directory=str(made.directory),
            launch=recorded.launch.index,
            kernel=recorded.launch.kernel,
            kind=recorded.launch.kind,
            run=recorded.run.name,
            files=made.files,
        )
