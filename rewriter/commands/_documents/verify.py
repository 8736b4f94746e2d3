"""The document of `verify`."""

from __future__ import annotations

from rewriter.core.documents import Count, Document
from rewriter.core.printed import printed
from rewriter.diagnosis.verification.types import Verification


@printed(
    "dump verdict verification.finding agree verification.by_arguments differ unchecked coverage"
    " verification.caveat launches=verification.checks"
)
class VerifyDocument(Document, frozen=True, kw_only=True, tag="rewriter.verify"):
    """`rewriter verify --json`: each launch against what it claims to compute. `verdict` is one
    sentence about the first that differs, `finding`."""

    dump: str
    verification: Verification

    @property
    def verdict(self) -> str | None:
        from rewriter.diagnosis.verification.text import headline

        finding = self.verification.finding
        return None if finding is None else headline(finding)

    @property
    def agree(self) -> Count:
        return self.verification.count("agrees")

    @property
    def differ(self) -> Count:
        return self.verification.count("differs")

    @property
    def unchecked(self) -> Count:
        return self.verification.count("unchecked")

    @property
    def coverage(self) -> float:
        return round(self.verification.coverage, 4)
