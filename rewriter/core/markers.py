"""The marks by which inserted lines are recognised.

Every inserted line ends in a comment, `# rewriter:TAG` (`//` in C++), or in a string in its place
where the statement goes on below, or is in a block between two lines that do. The first one also
has the hash of the original, so that `strip` can check its result. The tag is chosen so that it
does not occur in the original: a file that contains such marks is still restored byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from rewriter.core import json_text
from rewriter.core.types import Json

# In every header: searching for these words first takes a hundredth of the time of the pattern.
_IN_HEADER = b" Instrumented by inductor-rewriter "
# Not `^` and `$`: for `re` a carriage return alone does not end a line.
_HEADER = re.compile(
    rb"(?:\A|(?<=[\r\n]))(?:#|//) Instrumented by inductor-rewriter (?P<version>\S+) "
    rb"with (?P<probes>[\w,]+), "
    rb"original sha256 (?P<sha256>[0-9a-f]{64})  "
    rb"(?:#|//) rewriter:(?P<tag>[0-9a-f]{8})[ \t]*(?=[\r\n]|\Z)"
)
# The second inserted line, which says how to instrument the file again.
OPTIONS = re.compile(rb"(?:#|//) Options: (\{[!-~]*\})  (?:#|//) rewriter:")
# Marks a line that was inserted after a last line without a newline, which was added, too.
_ADDED_NEWLINE = b" +newline"
# For the first and the last line of a block.
_BEGIN, _END = b" begin", b" end"
# In the place of the names of probes: launches are replaced by what their graph says.
REFERENCE = "reference"
# Ends a line in Python that goes on with the line below, where no comment can be.
_JOINED = b'": \\'
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LAST_END = re.compile(rb"(?:\r\n|\n|\r)\Z")


# How inserted lines begin that are there whatever the probes are.
OWN_LINE = re.compile(rb"\s*(?:#|//) (?:Instrumented by |What the probes need:|Here it ends\.)")


@dataclass(frozen=True)
class ProbeHeader:
    """The content of the first inserted line."""

    version: str
    probes: tuple[str, ...]
    sha256: str
    tag: str


def find_header(data: bytes) -> ProbeHeader | None:
    """The header of an instrumented file, or `None` for a plain one."""
    match = _HEADER.search(data) if _IN_HEADER in data else None
    if match is None:
        return None
    return ProbeHeader(
        match["version"].decode(),
        tuple(match["probes"].decode().split(",")),
        match["sha256"].decode(),
        match["tag"].decode(),
    )


def options(data: bytes, tag: str) -> Json | None:
    """The JSON object of the line "Options:"; `None` if there is none, or it is damaged."""
    for match in OPTIONS.finditer(data):
        if data.startswith(tag.encode(), match.end()):
            try:
                return json_text.parse_object(unquote(match[1].decode()).encode())
            except ValueError:
                return None
    return None


def header_line(version: str, probes: tuple[str, ...], sha256: str) -> str:
    """The first inserted line, without its comment sign and mark."""
    return (
        f"Instrumented by inductor-rewriter {version} with {','.join(probes)}, "
        f"original sha256 {sha256}"
    )


def draw_tag(data: bytes) -> str:
    """Eight hexadecimal digits that are in no mark in `data`."""
    salt = 0
    while True:
        tag = hashlib.sha256(b"%d:" % salt + data).hexdigest()[:8]
        if sign(tag) not in data:
            return tag
        salt += 1


@dataclass(frozen=True)
class Mark:
    """Marks the lines that are inserted into one file. `comment` begins a comment there."""

    tag: str
    comment: str

    def line(self, line: str, newline: bytes, *, at_end: bool = False) -> bytes:
        """An inserted line with its mark and newline; `at_end`: it follows a line without one."""
        marked = self._marked(line)
        return newline + marked + _ADDED_NEWLINE if at_end else marked + newline

    def joined(self, condition: str, newline: bytes) -> bytes:
        """An inserted line that makes the statement in the line below depend on a condition."""
        return f'{condition} and "'.encode() + sign(self.tag) + _JOINED + newline

    def block(self, lines: Sequence[str], newline: bytes) -> bytes:
        """Lines without marks, between two lines that have one."""
        begin = self._marked(f"{self.comment} What the probes need:") + _BEGIN
        end = self._marked(f"{self.comment} Here it ends.") + _END
        body = "\n".join(lines).encode().replace(b"\n", newline)
        return newline.join([begin, body, end, b""])

    def _marked(self, line: str) -> bytes:
        return f"{line}  {self.comment} ".encode() + sign(self.tag)


def remove(data: bytes, tag: str) -> tuple[bytes, list[int]]:
    """Remove every marked line and block; also returns the numbers, from 1, of the other lines.

    A block without an end is left alone, since it is unknown how far it went.
    """
    kept: list[bytes] = []
    numbers: list[int] = []
    mark = sign(tag)
    marked = [(start, end, data[start:end].rstrip(b"\r\n")) for start, end in _with(data, mark)]
    last = max((start for start, _, line in marked if line.endswith(mark + _END)), default=-1)
    inside = False
    position, number = 0, 1  # of the first line that was not processed

    def keep(end: int) -> None:
        if end > position:
            kept.append(data[position:end])
            numbers.extend(range(number, number + _line_count(data, position, end)))

    for start, end, line in marked:
        if not inside:
            keep(start)
        number += _line_count(data, position, start)
        position = start
        if inside or (start < last and line.endswith(mark + _BEGIN)):
            inside = not line.endswith(mark + _END)
        elif line.endswith(mark + _ADDED_NEWLINE):
            if kept:
                kept[-1] = _LAST_END.sub(b"", kept[-1])
        elif not line.endswith((mark, mark + _BEGIN, mark + _END, mark + _JOINED)):
            keep(end)
        position, number = end, number + 1
    keep(len(data))
    return b"".join(kept), numbers


def marked_lines(data: bytes, tag: str) -> list[bytes]:
    """The lines that end in a mark, without their line ends; lines in a block have no marks."""
    mark = sign(tag)
    marks = (mark, mark + _BEGIN, mark + _END, mark + _ADDED_NEWLINE, mark + _JOINED)
    stripped = (data[start:end].rstrip(b"\r\n") for start, end in _with(data, mark))
    return [line for line in stripped if line.endswith(marks)]


def _with(data: bytes, mark: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end, with the line end, of lines that contain a mark."""
    end = 0
    while (found := data.find(mark, end)) >= 0:
        start = data.rfind(b"\n", end, found) + 1 or end
        start = data.rfind(b"\r", start, found) + 1 or start
        newline = _LINE_END.search(data, found)
        end_of_line = newline.end() if newline else len(data)
        yield start, end_of_line
        end = end_of_line


def _line_count(data: bytes, start: int, end: int) -> int:
    """The number of lines from the start of one line to the end of another."""
    carriage_returns = data.count(b"\r", start, end)
    ends = data.count(b"\n", start, end) + carriage_returns
    ends -= data.count(b"\r\n", start, end) if carriage_returns else 0
    return ends + (end > start and data[end - 1] not in b"\r\n")


def lines(data: bytes) -> list[bytes]:
    """The lines of `data` with their ends."""
    return re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$", data)


def sign(tag: str) -> bytes:
    """What ends an inserted line."""
    return b"rewriter:" + tag.encode()
