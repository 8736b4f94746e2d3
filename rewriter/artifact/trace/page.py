"""Reads what `tlparse` makes of a log: pages with the sources that Inductor wrote.

A page is highlighted HTML, or with `--plain-text` the source itself, in a folder named by the
compile id (src/parsers.rs and src/types.rs of tlparse).
"""

from __future__ import annotations

import re
from pathlib import Path

from rewriter.artifact.trace.types import TracedSource, folder_of

_NAME = re.compile(
    r"(?:inductor_output_code|(inductor_aot_wrapper_code)).*?(?:_(\d+))?\.(html|txt)"
)
SUFFIXES = (".html", ".txt")
_FOLDER = re.compile(r"(?:(-|\d+)_)?(-|\d+)_(-|\d+)_(-|\d+)")
_PRE = re.compile(rb"\A\s*<pre[^>]*>\n?")
# Larger than any character's, and Python reads only some thousand digits.
_NUMBER = re.compile(r"&#(?=\d{8})")


def is_page(path: Path) -> bool:
    """Whether a file is one that holds the source of a wrapper, by its name."""
    return bool(_NAME.fullmatch(path.name))


def order(path: Path) -> tuple[Path, int]:
    """Sorts pages as their entries were in the log."""
    match = _NAME.fullmatch(path.name)
    return root_of(path), int(match[2] or 0) if match else 0


def root_of(path: Path) -> Path:
    """The directory that tlparse made, of one of its pages."""
    return path.parent.parent


def read(path: Path, data: bytes) -> TracedSource:
    """The source that a page shows."""
    name = _NAME.fullmatch(path.name)
    assert name
    folder = path.absolute().parent.name
    if match := _FOLDER.fullmatch(folder):
        folder = folder_of(*match.groups())
    elif folder.startswith("unknown_"):
        folder = folder_of(None, None, None, None)
    suffix = ".cpp" if name[1] else ".py"
    if name[3] == "txt":
        return TracedSource(path, folder, suffix, data)
    start, end = _PRE.match(data), data.rfind(b"</pre>")
    if not start or end < 0:
        damage = "the page was cut short or edited: it is no <pre>…</pre>"
        return TracedSource(path, folder, suffix, _text(data), damage)
    return TracedSource(path, folder, suffix, _text(data[start.end() : end]))


def _text(html: bytes) -> bytes:
    """What a browser shows: `<` and `&` of the source itself are entities."""
    pieces = []
    position = 0
    # Not a regular expression: of many `<` without a `>` each would be read to the end.
    while (start := html.find(b"<", position)) >= 0 and (end := html.find(b">", start)) >= 0:
        pieces.append(html[position:start])
        position = end + 1
    pieces.append(html[position:])
    # What is no UTF-8 stays as it is, to be found where the text is read.
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    from html import unescape

    return unescape(_NUMBER.sub("&amp;#", text)).encode("utf-8", "surrogateescape")
