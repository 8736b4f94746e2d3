"""The document of `doctor`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rewriter.core.documents import Document, Entry


class CheckEntry(Entry, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    found: str
    ok: Annotated[bool | None, Meta(description="null: worth knowing, and no obstacle")]
    hint: str
    error: Annotated[str, Meta(description="What a command stops with where this is not ok")]


class DoctorDocument(Document, frozen=True, kw_only=True, tag="rewriter.doctor"):
    """`rewriter doctor --json`."""

    checks: tuple[CheckEntry, ...]
