"""The document of `replace`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.core.documents import BackupPath, Count, Diff, Document, OutputPath


class ReplaceDocument(Document, frozen=True, kw_only=True, tag="rewriter.replace"):
    """`rewriter replace --json`. A call takes `seconds`, and took `before` seconds; both are null
    where that was not measured, for the reason `unmeasured`."""

    artifact: str
    launches: tuple[Count, ...]
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    before: Annotated[float | None, Meta(description="Seconds of a call as it was")]
    seconds: Annotated[float | None, Meta(description="Seconds of a call as it is now")]
    unmeasured: str
