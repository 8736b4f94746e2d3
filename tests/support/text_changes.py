"""Changes of a wrapper's layout, in either language, and what holds of its probes after them."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

import rewriter
from rewriter.artifact.types import Artifact
from rewriter.core import markers
from rewriter.core.errors import BAD_INPUT, RewriterError
from rewriter.instrumentation.types import Instrumented

Change = Callable[[bytes, st.DataObject], bytes]

PROBES = [
    *(
        ",".join(probes)
        for count in (1, 2, 3)
        for probes in itertools.combinations(("names", "print", "save"), count)
    ),
    "hash",
    "hash,names,print,save,sync,time",
]
# In comments, behind what begins one.
TEXTS = [
    b" rewriter:0123abcd",
    b" rewriter:0123abcd +newline",
    b" [rewriter 0] #12 after  triton_poi_fused_0",
    " größer \u2028 naïve \U0001f600 日本語".encode(),
    b" " + b"x" * 20_000,
    b"\x0c form feed",
]
# Layouts of a file, without any choice.
FILES: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "BOM": lambda data: b"\xef\xbb\xbf" + data,
    "no final newline": lambda data: data.rstrip(),
    "blank lines at the end": lambda data: data + b"\n\n  \n",
}

_HEADER = re.compile(rb"(?:#|//) Instrumented by inductor-rewriter.*")


def insert(data: bytes, offset: int, text: bytes) -> bytes:
    return data[:offset] + text + data[offset:]


def behind(data: bytes, end: int, text: bytes) -> bytes:
    """Add to the line that ends at an offset."""
    bare = data[:end].rstrip(b"\r\n")
    return bare + text + data[len(bare) :]


def crlf(data: bytes, draw: st.DataObject) -> bytes:
    return re.sub(rb"\r\n|\r|\n", b"\r\n", data)


def lone_cr(data: bytes, draw: st.DataObject) -> bytes:
    return re.sub(rb"\r\n|\r|\n", b"\r", data)


def byte_order_mark(data: bytes, draw: st.DataObject) -> bytes:
    return data if data.startswith(b"\xef\xbb\xbf") else b"\xef\xbb\xbf" + data


def no_final_newline(data: bytes, draw: st.DataObject) -> bytes:
    return data.rstrip(b"\r\n \t\x0c")


@dataclass(frozen=True)
class Language:
    """A language of wrappers, and changes of their text. `starts` are offsets where a line may be
    inserted in a text, `comments` lines of a comment, `opened` locates a text, `names` are the
    `new` names that one may get. `check` is all that is promised of an instrumented text."""

    opened: Callable[[bytes], Artifact]
    instrumented: Callable[..., Instrumented]
    check: Callable[[bytes, Instrumented], None]
    starts: Callable[[bytes], Sequence[int]]
    comments: Sequence[bytes]
    new: Sequence[str]

    def attempt(self, data: bytes, probes: str, **options: Any) -> bool:
        """Instrument what may be refused, as wrong input only; whether it was not."""
        try:
            self.check(data, self.instrumented(data, probes, **options))
        except RewriterError as error:
            if error.code != BAD_INPUT:
                raise
            return False
        return True

    def several(self, data: bytes, changes: Sequence[Change], draw: st.DataObject) -> None:
        """Change a text as long as it has launches, and instrument it."""
        for change in changes:
            try:
                if not self.opened(data).launches:
                    break
            except RewriterError:
                break
            data = change(data, draw)
        self.attempt(data, draw.draw(st.sampled_from(PROBES)), when="both")

    def header_of(self, data: bytes) -> bytes:
        """A true header line of ours, as a file might quote it; or one of another file."""
        match = _HEADER.search(self.instrumented(data).source)
        assert match
        return match.group()

    def check_quoted_header(self, other: bytes, data: bytes) -> bytes:
        """At the start of a line nobody can tell a header from ours: it is refused, and nothing is
        made of it. Returns the header of the other text."""
        quoted = self.header_of(other)
        assert not self.attempt(quoted + b"\n" + data, "print")
        assert not rewriter.strip(self.opened(quoted + b"\n" + data)).exact
        return quoted

    def check_mark(
        self, data: bytes, lines: Sequence[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A mark that is in the file, in one of these lines, is not drawn."""
        first = collide(data, monkeypatch)
        for line in lines:
            marked = data + line.format(first).encode() + b"\n"
            assert markers.draw_tag(marked) != first
            assert self.attempt(marked, "print")

    def header_like(self, data: bytes, draw: st.DataObject) -> bytes:
        line = self.header_of(data)
        if draw.draw(st.booleans()):
            line = line.replace(b" Instrumented", b"  Instrumented")
        return self.inserted(data, draw, b"    " + line + b"\n")

    def renamed(self, data: bytes, draw: st.DataObject) -> bytes:
        names = sorted(set(re.findall(rb"\b(?:buf|arg|primals_)\d+(?:_1)?\b", data)))
        if not names:
            return data
        old, new = (draw.draw(st.sampled_from(some)) for some in (names, self.new))
        return re.sub(rb"\b" + old + rb"\b", new.encode(), data)

    def inserted(self, data: bytes, draw: st.DataObject, text: bytes) -> bytes:
        return insert(data, draw.draw(st.sampled_from(self.starts(data))), text)

    def comment(self, data: bytes, draw: st.DataObject) -> bytes:
        text = draw.draw(st.sampled_from(self.comments))
        return self.inserted(data, draw, b" " * draw.draw(st.integers(0, 9)) + text + b"\n")

    def blank_lines(self, data: bytes, draw: st.DataObject) -> bytes:
        texts = [b"\n", b"\n\n\n", b"   \n", b"\t\n", b"\x0c\n", b" \x0c\n"]
        return self.inserted(data, draw, draw.draw(st.sampled_from(texts)))

    def trailing_comment(self, data: bytes, draw: st.DataObject) -> bytes:
        comments = [one for one in self.comments if not one.startswith(b"/*")]
        return self._behind_a_launch(data, draw, b"  " + draw.draw(st.sampled_from(comments)))

    def trailing_space(self, data: bytes, draw: st.DataObject) -> bytes:
        text = draw.draw(st.sampled_from([b" ", b"\t", b"   "]))
        return self._behind_a_launch(data, draw, text)

    def _behind_a_launch(self, data: bytes, draw: st.DataObject, text: bytes) -> bytes:
        launch = draw.draw(st.sampled_from(self.opened(data).launches))
        return behind(data, launch.insertion_point.end, text)


def check_restored(opened: Callable[[bytes], Artifact], data: bytes, result: Instrumented) -> None:
    """What is promised of every instrumented file, but for the arguments of its launches."""
    again = opened(result.source)
    stripped = rewriter.strip(again)
    assert stripped.source == data
    assert stripped.exact
    # Lines were added and nothing else: each launch is on the line that says so.
    before, after = markers.lines(data), markers.lines(result.source)
    for now, then in zip(again.launches, opened(data).launches, strict=True):
        assert after[now.line - 1].rstrip(b"\r\n") == before[then.line - 1].rstrip(b"\r\n")
    with pytest.raises(RewriterError) as caught:
        rewriter.instrument(again, result.selection)
    assert caught.value.slug == "already-instrumented"
    assert caught.value.code == BAD_INPUT


def collide(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    """The mark that a file gets, which from now on is the first one drawn for any other."""
    first = markers.draw_tag(data)
    assert first == hashlib.sha256(b"0:" + data).hexdigest()[:8]
    real = hashlib.sha256

    def collision(text: bytes = b"") -> Any:
        return real(b"0:" + data) if text.startswith(b"0:") else real(text)

    monkeypatch.setattr(markers.hashlib, "sha256", collision)
    return first
