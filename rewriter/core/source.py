"""A source file as bytes with a line table. Edits are made on the bytes: nothing is re-encoded."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from rewriter.core.errors import RewriterError

# Python's own line ends; a form feed or a Unicode separator does not end a line.
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class Source:
    """The bytes of one source file, and `name` for messages.

    A fragment is a part of a wrapper, or a file with kernels and what launches them.
    """

    name: str
    data: bytes
    is_fragment: bool = False

    @cached_property
    def _starts(self) -> list[int]:
        # The same as `_LINE_END`, but faster.
        starts = list(accumulate(map(len, self.data.splitlines(keepends=True)), initial=0))
        if starts[-1] and not self.data.endswith((b"\n", b"\r")):
            del starts[-1]  # no line starts at the end of the file
        return starts

    def line_start(self, line: int) -> int:
        """Offset of the first byte of a line, counted from 1."""
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        """Offset after the line's newline, or the end of the file."""
        return self._starts[line] if line < len(self._starts) else len(self.data)

    def is_continued(self, line: int) -> bool:
        """Whether a backslash joins a line to the one before it; one in a comment does not."""
        if line < 2:
            return False
        before = self.data[self.line_start(line - 1) : self.line_start(line)].rstrip(b"\r\n")
        return before.endswith(b"\\") and not before.lstrip().startswith(b"#")

    def line_of(self, offset: int) -> int:
        """The line, counted from 1, that contains `offset`."""
        return bisect.bisect_right(self._starts, offset)

    def line_text(self, line: int) -> str:
        """A line without its newline, decoded for display."""
        if line > len(self._starts):
            return ""
        raw = self.data[self.line_start(line) : self.line_end(line)]
        return raw.decode("utf-8", "replace").rstrip("\r\n")

    def newline_at(self, offset: int) -> bytes:
        """The line end in use before `offset`, or the file's first one, or a line feed."""
        for end in (b"\r\n", b"\n", b"\r"):
            if self.data.endswith(end, 0, offset):
                return end
        first = _LINE_END.search(self.data)
        return first.group() if first else b"\n"


def check_text(name: str, data: bytes) -> None:
    """Raise for data that is not UTF-8 text, and say what it is."""
    if not data.strip():
        raise RewriterError(
            "empty-file",
            f"{name}: the file is empty",
            hint="Expected a wrapper of Inductor's, or a package. Copy it again.",
        )
    if b"\0" in data:
        raise RewriterError(
            "binary-file",
            f"{name}: a binary file (a zero byte at offset {data.index(0)})",
            hint="Expected source, such as output_code.py or wrapper.cpp, or a .pt2 package, which "
            "is a zip file.",
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = Source(name, data).line_of(error.start)
        raise RewriterError(
            "not-utf8",
            f"{name}:{line}: not UTF-8: byte {data[error.start]:#04x} at offset {error.start}",
            hint="Inductor writes UTF-8. Convert the file, for example with iconv.",
        ) from error
