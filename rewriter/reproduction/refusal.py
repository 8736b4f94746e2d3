"""The error for a launch that cannot stand by itself."""

from __future__ import annotations

from rewriter.core.errors import RewriterError
from rewriter.reproduction.types import Recorded


def refusal(recorded: Recorded, why: str) -> RewriterError:
    """What a launch cannot be cut out for; the whole call can be run instead."""
    place = f"{recorded.wrapper.name}:{recorded.launch.line}"
    return RewriterError(
        "cannot-reproduce",
        f"{place}: {recorded.title} cannot be cut out: {why}",
        hint=f"`rewriter run {recorded.run.path}` runs the whole call once more.",
    )
