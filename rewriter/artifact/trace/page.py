"""Reads the pages that `tlparse` makes of a log, with the sources that Inductor wrote.

A page is highlighted HTML, or with `--plain-text` the source itself, in a folder named after the
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
# No character has such a large number, and Python refuses to convert very long ones.
_NUMBER = re.compile(r"&#(?=\d{8})")


def is_page(path: Path) -> bool:
    """Whether a file contains the source of a wrapper, by its name."""
    return bool(_NAME.fullmatch(path.name))


def order(path: Path) -> tuple[Path, int]:
    """The key that sorts pages in the order of their entries in the log."""
    match = _NAME.fullmatch(path.name)
    return root_of(path), int(match[2] or 0) if match else 0


def root_of(path: Path) -> Path:
    """The directory that tlparse made, from one of its pages."""
    return path.parent.parent


def read(path: Path, data: bytes) -> TracedSource:
    """The source in a page."""
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
    """The text that a browser shows. `<` and `&` of the source are entities in the page."""
    pieces = []
    position = 0
    # Not by a regular expression, which would read to the end for each of many `<` without a `>`.
    while (start := html.find(b"<", position)) >= 0 and (end := html.find(b">", start)) >= 0:
        pieces.append(html[position:start])
        position = end + 1
    pieces.append(html[position:])
    # Bytes that are not UTF-8 are kept, and reported when the text is read.
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    from html import unescape

    return unescape(_NUMBER.sub("&amp;#", text)).encode("utf-8", "surrogateescape")
