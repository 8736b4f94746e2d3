"""The document of `diff`, from a difference of two artifacts."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from rewriter.comparison.artifacts.types import Difference
from rewriter.core.documents import Document
from rewriter.core.printed import printed


@printed("*difference unified")
class DiffDocument(Document, frozen=True, kw_only=True, tag="rewriter.diff"):
    """`rewriter diff --json`. Names ending in _a and _b are of the first and the second.
    `unified` is what --unified shows."""

    version: Literal[2] = 2  # type: ignore[assignment]
    difference: Difference
    unified: str | UnsetType = UNSET
