"""Checks an instrumented source before it is written.

A failure is a bug of this program, not of the input.
"""

from __future__ import annotations

import ast
import re

from rewriter.artifact.types import OpenWrapper
from rewriter.core import edit, garbage, markers, python_pieces
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate.languages import language

_ROWS = 500  # of the table that are parsed at once


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
                _check_module(instrumented)
        except SyntaxError as error:
            problem = f"the instrumented file does not parse: line {error.lineno}: {error.msg}"
            raise _failed(wrapper, problem) from error
    try:
        launches = language(wrapper.language).count(Source(str(wrapper.path), instrumented))
    except RewriterError as error:
        raise _failed(wrapper, f"the instrumented file does not parse: {error}") from error
    if launches not in (None, len(wrapper.located.launches)):
        raise _failed(wrapper, "the instrumented file has other launches than the original")


def _check_module(instrumented: bytes) -> None:
    """Parse a module in pieces. Raises `SyntaxError`.

    The table of launches is by far the largest literal of a file. It is a list, so its rows and the
    list without rows can be parsed separately.
    """
    text = instrumented.decode("utf-8-sig")
    header = markers.find_header(instrumented)
    if header is None:
        python_pieces.check(text)
        return
    row = re.compile(rf"^    \{{'launch': .*\}},  # rewriter:{header.tag}\r?\n", re.MULTILINE)
    python_pieces.check(row.sub("\n", text))
    rows = [match[0] for match in row.finditer(text)]
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        table = ast.parse(f"[\n{''.join(some)}]", mode="eval").body
        if not isinstance(table, ast.List) or len(table.elts) != len(some):
            raise SyntaxError("a row of the table of launches is no literal")


def _failed(wrapper: OpenWrapper, problem: str) -> RewriterError:
    return RewriterError(
        "verification-failed",
        f"{wrapper.path}: {problem}",
        hint="Nothing was written. Please report this with the wrapper.",
        code=FAILED,
    )
