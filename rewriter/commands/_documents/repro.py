"""The document of `repro`."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.reproduction.minimise.types import Minimised
from rewriter.reproduction.reproduce import Reproduction
from rewriter.reproduction.under.tool import UnderResult


@printed(
    "made.directory launch=made.recorded.launch.index made.recorded.launch.kernel"
    " made.recorded.launch.kind run=made.recorded.run.name made.files under minimised"
)
class ReproDocument(Document, frozen=True, kw_only=True, tag="rewriter.repro"):
    """`rewriter repro --json`. The first of `files` is the script."""

    made: Reproduction
    under: UnderResult | None
    minimised: Minimised | None
