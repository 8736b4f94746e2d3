"""The document of `report`: every number as the dump has it. The page has data of its own."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.report.types import Report


@printed(
    "dump=report.path report.verdict facts report.verdicts report.findings report.runs"
    " trends?=report.trends"
)
class ReportDocument(Document, frozen=True, kw_only=True, tag="rewriter.report"):
    """`rewriter report --json`. `facts` are what the manifest says, under the names that the page
    shows, `findings` those of all runs, what several share once."""

    report: Report

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.report.facts)
