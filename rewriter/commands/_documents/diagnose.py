"""The documents of `diagnose` and `sanitize`."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.diagnosis.findings import Diagnosis
from rewriter.diagnosis.sanitized import Coverage


@printed("directory *diagnosis")
class DiagnoseDocument(Document, frozen=True, kw_only=True, tag="rewriter.diagnose"):
    """`rewriter diagnose --json`: what is wrong, how that is known, and what is ruled out."""

    directory: str
    diagnosis: Diagnosis


@printed(
    "directory diagnosis.headline diagnosis.finding diagnosis.findings diagnosis.ruled_out"
    " diagnosis.notes coverage runs=diagnosis.steps diagnosis.checked diagnosis.launches"
)
class SanitizeDocument(Document, frozen=True, kw_only=True, tag="rewriter.sanitize"):
    """`rewriter sanitize --json`: memory that launches use and must not. `checked` are launches
    whose memory was looked at; `directory` is empty if nothing was run."""

    directory: str
    diagnosis: Diagnosis
    coverage: tuple[Coverage, ...]
