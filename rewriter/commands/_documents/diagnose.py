"""The document of `diagnose`."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.diagnosis.findings import Diagnosis


@printed("directory *diagnosis")
class DiagnoseDocument(Document, frozen=True, kw_only=True, tag="rewriter.diagnose"):
    """`rewriter diagnose --json`: what is wrong, how that is known, and what is ruled out."""

    directory: str
    diagnosis: Diagnosis
