"""Checks an instrumented source before it is written.

A failure is a bug of this program, not of the input.
"""

from __future__ import annotations

from rewriter.artifact.types import Wrapper
from rewriter.core import edit, garbage, markers
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate.languages import language


def verify(wrapper: Wrapper, instrumented: bytes) -> None:
    """Check that the result parses, and that stripping it gives the original.

    A C++ wrapper does not parse without errors in the first place. There, the entries must parse
    and have as many launches as before; inserted lines cannot change their order.
    """
    require_original(wrapper, instrumented)
    if wrapper.is_module:
        from rewriter.instrumentation import inserted_lines  # takes time to import

        header = markers.find_header(instrumented)
        sign = markers.sign(header.tag if header else "")
        with garbage.paused():
            fault = inserted_lines.fault(instrumented, sign, wrapper.language == "python")
        if fault:
            raise failed(wrapper, f"the instrumented file does not parse: {fault}")
    try:
        launches = language(wrapper.language).count(Source(str(wrapper.path), instrumented))
    except RewriterError as error:
        raise failed(wrapper, f"the instrumented file does not parse: {error}") from error
    if launches not in (None, len(wrapper.located.launches)):
        raise failed(wrapper, "the instrumented file has other launches than the original")


def require_original(wrapper: Wrapper, edited: bytes) -> None:
    """Check that stripping the result gives the original."""
    restored = edit.strip(edited)
    if restored.source != wrapper.plain.data or not restored.exact:
        raise failed(wrapper, "stripping the instrumented file would not restore the original")


def failed(wrapper: Wrapper, problem: str) -> RewriterError:
    return RewriterError(
        "verification-failed",
        f"{wrapper.path}: {problem}",
        hint="Nothing was written. Please report this with the wrapper.",
        code=FAILED,
    )
