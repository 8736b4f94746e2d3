"""Splits C++ into tokens in linear time: enough to tell code from comments and literals."""

from __future__ import annotations

import re

from rewriter.core import limits

# Comments and literals. One that does not end extends to the end of the text or line: otherwise the
# rest would be searched again for each one that begins in it.
_COMMENTS_AND_LITERALS = re.compile(
    r"//(?:\\\r?\n|[^\n])*"
    r"|/\*(?:.*?\*/|.*)"
    r'|R"(?P<delimiter>[^()\\\s"]{0,16})\((?:.*?\)(?P=delimiter)"|.*)'
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'(?:\\.|[^'\\\n])*'?",
    re.DOTALL,
)
_NO_ANGLES = bytes(set(range(256)) - set(b"<>;{}"))
_ENDS = re.compile(rb"[>;{}]+")


def code(text: str) -> str:
    """C++ with an empty string in place of each comment and literal.

    They contain kernels, commands and texts of the model, in which nothing should be found.
    """
    return _COMMENTS_AND_LITERALS.sub('""', text)


def require_parsable(name: str, data: bytes) -> None:
    """Raise if the parser would take quadratic time: see `limits.ANGLES`."""
    if _open_angles(data) <= limits.ANGLES:
        return
    angles = _open_angles(code(data.decode("utf-8", "replace")).encode())
    if angles > limits.ANGLES:
        raise limits.too_large(name, f"{angles:,} `<` in one statement", f"{limits.ANGLES:,}")


def _open_angles(data: bytes) -> int:
    """The largest number of successive `<` that nothing closes before the statement ends."""
    return max(map(len, _ENDS.split(data.translate(None, _NO_ANGLES))))
