"""C++ as a sequence of tokens, in time linear in it: enough to tell code from what is none."""

from __future__ import annotations

import re

from rewriter.core import limits

# Comments and literals. One that does not end goes on to the end of the text, or of its line, as
# it would otherwise be looked through once for each that begins in it.
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
    """C++ with an empty string for each comment and literal.

    They hold kernels, commands and texts of the model, in which nothing is to be found.
    """
    return _COMMENTS_AND_LITERALS.sub('""', text)


def require_parsable(name: str, data: bytes) -> None:
    """Raise where the parser's time would grow with the square of the text: see `limits.ANGLES`."""
    if _open_angles(data) <= limits.ANGLES:
        return
    angles = _open_angles(code(data.decode("utf-8", "replace")).encode())
    if angles > limits.ANGLES:
        raise limits.too_large(name, f"{angles:,} `<` in one statement", f"{limits.ANGLES:,}")


def _open_angles(data: bytes) -> int:
    """The most `<` in a row that nothing closes before the statement ends."""
    return max(map(len, _ENDS.split(data.translate(None, _NO_ANGLES))))
