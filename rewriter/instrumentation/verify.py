"""Checks what the commands promise, before anything is written.

A failure here is a defect of this program, not of the input.
"""

from __future__ import annotations

import ast

from rewriter.artifact.types import OpenWrapper
from rewriter.core import edit
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate.languages import language


def verify(wrapper: OpenWrapper, instrumented: bytes) -> None:
    """Check that the result parses, and that stripping it gives back the original.

    In C++, where a wrapper does not parse without errors to begin with, the entries must, and hold
    as many launches as before; lines that only go in cannot change their order.
    """
    restored = edit.strip(instrumented)
    if restored.source != wrapper.plain.data or not restored.exact:
        raise _failed(wrapper, "stripping the instrumented file would not give back the original")
    if wrapper.is_module:
        try:
            ast.parse(instrumented.decode("utf-8-sig"))
        except SyntaxError as error:
            problem = f"the instrumented file does not parse: line {error.lineno}: {error.msg}"
            raise _failed(wrapper, problem) from error
    try:
        launches = language(wrapper.language).count(Source(str(wrapper.path), instrumented))
    except RewriterError as error:
        raise _failed(wrapper, f"the instrumented file does not parse: {error}") from error
    if launches not in (None, len(wrapper.located.launches)):
        raise _failed(wrapper, "the instrumented file has other launches than the original")


def _failed(wrapper: OpenWrapper, problem: str) -> RewriterError:
    return RewriterError(
        "verification-failed",
        f"{wrapper.path}: {problem}",
        hint="Nothing was written. Please report this with the wrapper.",
        code=FAILED,
    )
