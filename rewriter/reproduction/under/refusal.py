"""The errors for tools that are not there, or do not fit a launch."""

from __future__ import annotations

from rewriter.core.errors import FAILED, RewriterError


def no_tool(tool: str, problem: str, hint: str) -> RewriterError:
    """The error for a tool that is not installed, or does not work here."""
    return RewriterError(
        "no-sanitizer",
        f"--under {tool}: {problem}",
        hint=hint or "The script itself was written, and runs without the tool.",
        code=FAILED,
    )


def not_for(tool: str, why: str) -> RewriterError:
    """The error for a launch that a tool has nothing to say of."""
    return RewriterError(
        "wrong-sanitizer",
        f"--under {tool}: {why}",
        hint="asan is for kernels in C++; interpret, triton-sanitizer and fpsan are for kernels of "
        "Triton; compute-sanitizer is for all that runs on a CUDA device.",
    )
