"""The lists of items that torch writes: a CRC-32 of the rest, then numbers and bytes.

A number has 8 bytes, the highest first. Bytes follow their length, and a string is in base64
(`BytesWriter` in torch/utils/_appending_byte_serializer.py).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rewriter.core import pickle_strings
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import Pickle

_CHECKSUM = 4
_NUMBER = 8


@dataclass(frozen=True, eq=False)
class Item:
    """Bytes in a list: the offsets of their length and of themselves, and what is known of them.

    `text` is the decoded string if the bytes are one.
    """

    at: int
    start: int
    end: int
    inside: Pickle | ItemList | None = None
    text: str | None = None


@dataclass(frozen=True, eq=False)
class ItemList:
    """A list of items, from its checksum to its end."""

    start: int
    end: int
    items: tuple[Item, ...] = field(repr=False)


class Reader:
    """Reads a list of items from its start. Raises `RewriterError` if the list is damaged."""

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self.data, self.start = data, start
        self.end = len(data) if end is None else end
        self.position = start + _CHECKSUM

    @property
    def is_finished(self) -> bool:
        return self.position == self.end

    def check(self) -> None:
        """Compare the checksum with the bytes."""
        stored = self.data[self.start : self.start + _CHECKSUM]
        if stored != _checksum(memoryview(self.data)[self.start + _CHECKSUM : self.end]):
            raise damaged("its checksum does not match its bytes", self.start)

    def number(self) -> int:
        start, self.position = self.position, self.position + _NUMBER
        if self.position > self.end:
            raise damaged("it ends before it is complete", start)
        return int.from_bytes(self.data[start : self.position], "big")

    def item(self) -> Item:
        """Read bytes, and return their place."""
        at = self.position
        length = self.number()
        start, self.position = self.position, self.position + length
        if self.position > self.end:
            raise damaged("it ends before it is complete", at)
        return Item(at, start, self.position)

    def raw(self) -> bytes:
        """Read bytes."""
        item = self.item()
        return self.data[item.start : item.end]

    def text(self) -> str:
        """Read a string."""
        return self.text_item().text or ""

    def text_item(self) -> Item:
        """Read a string, and return it with the place of its bytes."""
        item = self.item()
        try:
            text = base64.b64decode(self.data[item.start : item.end], validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise damaged("a string that is not base64", item.at) from error
        return replace(item, text=text)


def begins_with(data: bytes, header: bytes) -> bool:
    """Whether the first item of a file is `header`."""
    return data.startswith(len(header).to_bytes(_NUMBER, "big") + header, _CHECKSUM)


def rebuild(data: bytes, items: ItemList, texts: Mapping[int, str | bytes]) -> bytes:
    """A list with new strings in it and in its pickles, and with new lengths and a new checksum.

    `texts` are the new strings by the `start` of the old ones. If they equal the old ones, the
    result has the same bytes.
    """
    pieces = []
    position = items.start + _CHECKSUM
    for item in items.items:
        mine = {at: text for at, text in texts.items() if item.start <= at < item.end}
        if not mine:
            continue
        new = _rebuilt(data, item, mine)
        pieces += [data[position : item.at], len(new).to_bytes(_NUMBER, "big"), new]
        position = item.end
    body = b"".join([*pieces, data[position : items.end]])
    return _checksum(body) + body


def _rebuilt(data: bytes, item: Item, texts: Mapping[int, str | bytes]) -> bytes:
    if item.text is not None:
        text = texts[item.start]
        return base64.b64encode(text.encode() if isinstance(text, str) else text)
    if isinstance(item.inside, Pickle):
        return pickle_strings.splice(item.inside, texts)
    if item.inside is None:
        raise ValueError(f"no string at offset {min(texts)}")
    return rebuild(data, item.inside, texts)


def damaged(problem: str, offset: int) -> RewriterError:
    """The error for a list that torch itself would not read."""
    return RewriterError(
        "damaged-container",
        f"a damaged file of torch's cache: {problem}, at offset {offset:,}",
        hint="Get the file from its maker again, or have torch make it again.",
    )


def _checksum(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM, "big")
