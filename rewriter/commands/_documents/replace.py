"""The document of `replace`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.commands._deliver import Delivered
from rewriter.core.documents import Count, Document
from rewriter.core.printed import printed


@printed(
    "artifact launches delivered.changed delivered.output delivered.backup delivered.diff before"
    " seconds unmeasured"
)
class ReplaceDocument(Document, frozen=True, kw_only=True, tag="rewriter.replace"):
    """`rewriter replace --json`. A call takes `seconds`, and took `before` seconds; both are null
    where that was not measured, for the reason `unmeasured`."""

    artifact: str
    launches: tuple[Count, ...]
    delivered: Delivered
    before: Annotated[float | None, Meta(description="Seconds of a call as it was")]
    seconds: Annotated[float | None, Meta(description="Seconds of a call as it is now")]
    unmeasured: str
