"""The document of `list` on a library without its source."""

from __future__ import annotations

from rewriter.artifact.lone_library import LoneLibrary
from rewriter.core.documents import Document
from rewriter.core.printed import printed


@printed("*lone")
class LibraryDocument(Document, frozen=True, kw_only=True, tag="rewriter.library"):
    """`rewriter list --json` on a library of AOTInductor."""

    lone: LoneLibrary
