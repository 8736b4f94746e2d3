"""Finds the strings of a pickle by their keys, and replaces strings in it.

Nothing is unpickled: see `pickle_reader`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rewriter.core import limits
from rewriter.core.pickle_reader import (
    BYTES_OPCODES,
    TEXT_OPCODES,
    Blob,
    Pickle,
    Text,
    read,
)

_CODES = {opcode.name: opcode.code.encode("latin-1") for opcode in pickletools.opcodes}


@dataclass(frozen=True)
class PickledString:
    """A string that is the value of a key, and the place of its bytes in the file."""

    key: str
    value: str
    start: int
    end: int


def strings(data: bytes, keys: Iterable[str]) -> list[PickledString]:
    """The strings under these keys in all dictionaries of a pickle and of nested pickles.

    The state of an object is a dictionary, too. A string that several dictionaries share is listed
    for each. Raises `RewriterError` if `data` is not a valid pickle or beyond the bounds.
    """
    wanted = tuple(keys)
    return [string for pickle in read(data).walk() for string in strings_of(pickle, wanted)]


def strings_of(pickle: Pickle, keys: Iterable[str]) -> list[PickledString]:
    """As `strings`, for one pickle that was read, without those nested in it."""
    wanted = {key.encode(): key for key in keys}
    return [
        PickledString(wanted[key], pickle.text(value), value.start, value.end)
        for dictionary in pickle.dictionaries
        for name, value in dictionary.items
        if isinstance(value, Text) and (key := pickle.raw(name)) in wanted
    ]


def splice(pickle: bytes | Pickle, texts: Mapping[int, str | bytes]) -> bytes:
    """The same pickle with new strings; `texts` has them, also as UTF-8, by the `start` of the old
    ones.

    Lengths, frames, and the bytes around them are adjusted; all other bytes stay. A string that is
    used several times through the memo is replaced everywhere. Raises `RewriterError` as `strings`
    does, and `ValueError` if no string is at an offset.
    """
    pickle = pickle if isinstance(pickle, Pickle) else read(pickle)
    new = {
        start: text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        for start, text in texts.items()
    }
    there = {text.start for value in pickle.walk() for text in value.texts}
    if missing := sorted(new.keys() - there):
        raise ValueError(f"no string at offset {missing[0]}")
    return _rebuild(pickle, new)


@dataclass(frozen=True)
class _Change:
    """Bytes to replace in a pickle (an opcode with its argument, or a length), and the new ones."""

    start: int
    end: int
    new: bytes


def _rebuild(pickle: Pickle, new: Mapping[int, bytes]) -> bytes:
    data = pickle.data
    changes = [
        _Change(text.at, text.end, _encoded(pickle, text, new[text.start]))
        for text in pickle.texts
        if text.start in new and pickle.raw(text) != new[text.start]
    ]
    for blob in pickle.blobs:
        if blob.inside is None or not _holds(blob, new):
            continue
        inside = _rebuild(blob.inside, new)
        if inside != pickle.raw(blob):
            changes.append(_Change(blob.at, blob.end, _encoded(pickle, blob, inside)))
    for frame in pickle.frames:
        grown = sum(
            len(change.new) - (change.end - change.start)
            for change in changes
            if frame.start <= change.start < frame.end
        )
        if grown:
            length = frame.end - frame.start + grown
            changes.append(_Change(frame.at, frame.at + 8, length.to_bytes(8, "little")))
    pieces, position = [], pickle.start
    for change in sorted(changes, key=lambda x: x.start):
        pieces += [data[position : change.start], change.new]
        position = change.end
    return b"".join([*pieces, data[position : pickle.end]])


def _holds(blob: Blob, new: Mapping[int, bytes]) -> bool:
    return any(blob.start <= start < blob.end for start in new)


def _encoded(pickle: Pickle, one: Text | Blob, operand: bytes) -> bytes:
    """A string or bytes with the opcode that Python's pickler would choose for its length."""
    is_text = isinstance(one, Text)
    widths = TEXT_OPCODES if is_text else BYTES_OPCODES
    short, usual, _ = widths
    name = usual if len(operand) > 0xFF or (is_text and pickle.protocol < 4) else short
    limits.require_size("the pickle", len(operand), limits.PICKLE_BYTES)
    return _CODES[name] + len(operand).to_bytes(widths[name], "little") + operand
