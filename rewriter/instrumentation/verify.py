"""Checks an instrumented source before it is written.

A failure is a bug of this program, not of the input.
"""

from __future__ import annotations

import re

from rewriter.artifact.types import OpenWrapper
from rewriter.core import edit, garbage, markers
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate.languages import language
from rewriter.locate.python import module
from rewriter.locate.python.forms import form_of
from rewriter.locate.python.lines import Line
from rewriter.locate.python.syntax import PythonError


def verify(wrapper: OpenWrapper, instrumented: bytes) -> None:
    """Check that the result parses, and that stripping it gives the original.

    A C++ wrapper does not parse without errors in the first place. There, the entries must parse
    and have as many launches as before; inserted lines cannot change their order.
    """
    restored = edit.strip(instrumented)
    if restored.source != wrapper.plain.data or not restored.exact:
        raise _failed(wrapper, "stripping the instrumented file would not give back the original")
    if wrapper.is_module:
        try:
            with garbage.paused():
                header = markers.find_header(instrumented)
                sign = markers.sign(header.tag if header else "")
                _check_module(instrumented, sign, alone=wrapper.language == "python")
        except PythonError as error:
            problem = f"the instrumented file does not parse: line {error.line}: {error.message}"
            raise _failed(wrapper, problem) from error
    try:
        launches = language(wrapper.language).count(Source(str(wrapper.path), instrumented))
    except RewriterError as error:
        raise _failed(wrapper, f"the instrumented file does not parse: {error}") from error
    if launches not in (None, len(wrapper.located.launches)):
        raise _failed(wrapper, "the instrumented file has other launches than the original")


def _check_module(data: bytes, sign: bytes, *, alone: bool) -> None:
    """Check that a module parses. Raises `PythonError`.

    Inserted lines end in `sign`. With `alone`, they are statements of their own: no other statement
    may have one inside. The rows of the table of launches, by far the longest statement, are read
    one by one.
    """
    row = re.compile(rb"^    (\{'launch': .*\}),  # " + sign + rb"(?:\r?\n|\r)", re.MULTILINE)
    for match in row.finditer(data):
        read = form_of(match[1].decode("latin-1"))
        if read is None or len(read[0].statement.body) != 1:
            raise PythonError("a row of the table of launches is no literal")
    text, mark = row.sub(b"", data).decode("latin-1"), sign.decode("latin-1")

    def visit(line: Line) -> None:
        inserted = text.count(mark, line.start, line.end)
        if alone and inserted not in (0, line.last - line.number + 1):
            raise PythonError("an inserted line is inside of another statement", line.number)

    module.check(text, visit)


def _failed(wrapper: OpenWrapper, problem: str) -> RewriterError:
    return RewriterError(
        "verification-failed",
        f"{wrapper.path}: {problem}",
        hint="Nothing was written. Please report this with the wrapper.",
        code=FAILED,
    )
