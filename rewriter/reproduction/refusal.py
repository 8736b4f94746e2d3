"""The errors for launches that cannot be extracted."""

from __future__ import annotations

from rewriter.core.errors import RewriterError
from rewriter.reproduction.types import Recorded


def refusal(recorded: Recorded, why: str) -> RewriterError:
    """The error for a launch that cannot run by itself; its whole call can."""
    place = f"{recorded.wrapper.name}:{recorded.launch.line}"
    return RewriterError(
        "cannot-reproduce",
        f"{place}: {recorded.title} cannot be cut out: {why}",
        hint=f"`rewriter run {recorded.run.path}` runs the whole call once more.",
    )


def not_saved(problem: str, launch: int) -> RewriterError:
    """The error for a launch with values that the dump lacks: `problem`."""
    return RewriterError(
        "no-saved-arguments",
        problem,
        hint=f"Record it with `--probe save --launches {launch} --args all --when both`.",
    )
