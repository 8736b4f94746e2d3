"""The documents of `control`."""

from __future__ import annotations

from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.execution.control import ControlState


@printed("path *state")
class ControlDocument(Document, frozen=True, kw_only=True, tag="rewriter.control-state"):
    """`rewriter control --json`."""

    path: str
    state: ControlState


class RecordingDocument(Document, frozen=True, kw_only=True, tag="rewriter.recording"):
    """`rewriter control dump --json`."""

    dump: str
    processes: tuple[int, ...]
