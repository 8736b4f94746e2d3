"""The document of `doctor`."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.instrumentation.rebuild.types import Check


class DoctorDocument(Document, frozen=True, kw_only=True, tag="rewriter.doctor"):
    """`rewriter doctor --json`."""

    checks: tuple[Check, ...]
