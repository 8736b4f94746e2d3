"""Reads the structure of a pickle by its opcodes. Nothing is executed or imported.

It follows the stack and the memo as `pickle_values` does, for the keys and values of dictionaries;
the state of an object is a dictionary, too. Bytes in a pickle that are themselves a pickle are read
in the same way. Only binary pickles are supported: protocols 2 to 5. All offsets refer to the whole
file, also for nested bytes.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_values import ERRORS, Machine, Made, PickleError, pairs

PROTOCOLS: Final = range(2, 6)

# Opcodes whose operand follows its length, and the number of bytes of the length.
TEXT_OPCODES: Final = {"SHORT_BINUNICODE": 1, "BINUNICODE": 4, "BINUNICODE8": 8}
BYTES_OPCODES: Final = {"SHORT_BINBYTES": 1, "BINBYTES": 4, "BINBYTES8": 8}
_PROTO, _FRAME, _STOP = b"\x80\x95."
# Opcodes with a line of text, of which Python may accept more than `pickletools` does.
_LINES = frozenset(
    ord(opcode.code)
    for opcode in pickletools.opcodes
    if opcode.arg is not None and opcode.arg.n == pickletools.UP_TO_NEWLINE
)


@dataclass(frozen=True, eq=False)
class Text:
    """A string: the place of its bytes, and the opcode before them."""

    at: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Blob:
    """Bytes: their place, the opcode before them, and the pickle that they contain, if any."""

    at: int
    start: int
    end: int
    inside: Pickle | None


@dataclass(frozen=True, eq=False)
class Dictionary:
    """A dictionary: those of its items whose keys are strings."""

    items: list[tuple[Text, Value]]


# A value on the stack; those of other kinds are as `pickle_values` reads them.
Value = Text | Blob | Dictionary | Any


@dataclass(frozen=True)
class Frame:
    """A frame of protocol 4 and later: the place of its length, and its content."""

    at: int
    start: int
    end: int


@dataclass(frozen=True)
class ImportedName:
    """A name that a pickle would import: `module.name`, and the offset of the opcode for that."""

    module: str
    name: str
    at: int


@dataclass(frozen=True, eq=False)
class Pickle:
    """One pickle of a file, from `start` to `end`, as far as its structure is followed.

    Texts, blobs and dictionaries are in the order in which they begin.
    """

    data: bytes = field(repr=False)
    start: int
    end: int
    protocol: int
    frames: tuple[Frame, ...] = field(repr=False)
    texts: tuple[Text, ...] = field(repr=False)
    blobs: tuple[Blob, ...] = field(repr=False)
    dictionaries: tuple[Dictionary, ...] = field(repr=False)
    names: tuple[ImportedName, ...] = field(repr=False)

    def raw(self, text: Text | Blob) -> bytes:
        """The bytes of a string or of bytes."""
        return self.data[text.start : text.end]

    def text(self, text: Text) -> str:
        """The decoded string."""
        return self.raw(text).decode("utf-8", "surrogatepass")

    def walk(self) -> Iterator[Pickle]:
        """Yield this pickle and all pickles in it, outer ones first."""
        yield self
        for blob in self.blobs:
            if blob.inside is not None:
                yield from blob.inside.walk()


def read(data: bytes, start: int = 0, end: int | None = None) -> Pickle:
    """Read the pickle in `data` from `start` to `end`, and those inside it.

    Raises `RewriterError` if it is damaged, of another protocol, or beyond the bounds.
    """
    end = len(data) if end is None else end
    limits.require_size("the pickle", end - start, limits.PICKLE_BYTES)
    return _reader(data, start, end, 0).read()


def begins(data: bytes, start: int = 0) -> bool:
    """Whether bytes begin like a binary pickle."""
    return len(data) > start + 1 and data[start] == _PROTO and data[start + 1] in PROTOCOLS


def is_pickle(data: bytes, start: int = 0, end: int | None = None) -> bool:
    """Whether bytes begin and end like a binary pickle."""
    end = len(data) if end is None else end
    return end - start > 3 and begins(data, start) and data[end - 1] == _STOP


def damaged(offset: int, problem: str) -> RewriterError:
    """The error for a pickle that Python itself would not read."""
    return RewriterError(
        "damaged-pickle",
        f"a damaged pickle: {problem}, at offset {offset:,}",
        hint="Get the file from its maker again, or have torch make it again.",
    )


def _reader(data: bytes, start: int, end: int, depth: int) -> _Reader:
    if depth > limits.PICKLE_NESTING:
        raise limits.too_large(
            "the pickle", f"{depth} pickles in one another", f"{limits.PICKLE_NESTING}"
        )
    if end - start < 2 or not begins(data, start):
        raise damaged(start, "it does not begin as a binary pickle of protocol 2 to 5")
    return _Reader(data, start, end, depth)


class _Reader(Machine):
    """One pass over the opcodes of one pickle, which notes where strings and bytes are."""

    def __init__(self, data: bytes, start: int, end: int, depth: int) -> None:
        super().__init__()
        self.data, self.start, self.end, self.depth = data, start, end, depth
        self.at = start  # of the opcode
        self.frames: list[Frame] = []
        self.texts: list[Text] = []
        self.blobs: list[Blob] = []
        self.dictionaries: list[Dictionary] = []
        self.names: list[ImportedName] = []

    def all_names(self) -> list[ImportedName]:
        """The names so far, including those of nested pickles."""
        insides = (blob.inside for blob in self.blobs if blob.inside is not None)
        return self.names + [
            name for inside in insides for each in inside.walk() for name in each.names
        ]

    def read(self) -> Pickle:
        stream = io.BytesIO(self.data)
        stream.seek(self.start)
        try:
            for count, (opcode, argument, at) in enumerate(pickletools.genops(stream)):
                self.at, end = at or 0, stream.tell()
                if count > limits.PICKLE_OPCODES:
                    raise limits.too_large(
                        "the pickle", "more opcodes", f"{limits.PICKLE_OPCODES:,} of one pickle"
                    )
                if end > self.end:
                    raise PickleError(f"{opcode.name} goes beyond the end")
                self._step(opcode.name, argument, end)
                self.at = end
            self.result()
        except ERRORS as error:
            raise damaged(self.at, str(error)) from error
        self._require_end()
        return Pickle(
            self.data,
            self.start,
            self.end,
            self.data[self.start + 1],
            tuple(self.frames),
            tuple(self.texts),
            tuple(self.blobs),
            tuple(self.dictionaries),
            tuple(self.names),
        )

    def _require_end(self) -> None:
        if self.at != self.end:
            raise damaged(self.at, f"{self.end - self.at:,} bytes after its end")
        if self.frames and self.frames[-1].end > self.end:
            raise damaged(self.frames[-1].at, "a frame that is longer than the pickle")

    def _step(self, name: str, argument: Any, end: int) -> None:
        if name == "PROTO" and self.at > self.start:
            raise PickleError("the protocol is no opcode there")
        if name == "FRAME":
            self._begin_frame(end, argument)
        elif self.frames and self.at < self.frames[-1].end < end:
            raise PickleError("a frame ends within an opcode")
        if width := TEXT_OPCODES.get(name):
            argument = Text(self.at, self.at + 1 + width, end)
            self.texts.append(argument)
        elif width := BYTES_OPCODES.get(name):
            argument = self._blob(self.at + 1 + width, end)
            self.blobs.append(argument)
        self.run(name, argument)

    def _begin_frame(self, start: int, length: int) -> None:
        if self.frames and self.frames[-1].end > self.at:
            raise PickleError("a frame in another")
        if start + length > self.end:
            raise PickleError("a frame goes beyond the end")
        self.frames.append(Frame(self.at + 1, start, start + length))

    def imported(self, module: str, name: str) -> Made:
        self.names.append(ImportedName(module, name, self.at))
        return super().imported(module, name)

    def text(self, value: Any) -> str:
        if isinstance(value, Text):
            value = self.data[value.start : value.end].decode("utf-8", "replace")
        return super().text(value)

    def dictionary(self, values: list[Any]) -> Dictionary:
        new = Dictionary(_items(values))
        self.dictionaries.append(new)
        return new

    def update(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Dictionary):
            target.items.extend(_items(values))
        else:  # an object that behaves like a dictionary, such as an OrderedDict
            self.dictionary(values)

    def extend(self, values: list[Any]) -> None:
        self._top()  # of any type: no list is followed

    def _blob(self, start: int, end: int) -> Blob:
        inside = None
        if end - start > 3 and begins(self.data, start):
            reader = _reader(self.data, start, end, self.depth + 1)
            try:
                inside = reader.read()
            except RewriterError as error:
                # The first two bytes may look like a pickle by chance.
                is_sure = _is_framed(self.data, start, end) or self.data[reader.at] in _LINES
                is_whole = is_pickle(self.data, start, end)
                if error.slug != "damaged-pickle" or (is_whole and is_sure):
                    raise
                # Python would import these names before it reaches the damage.
                self.names += reader.all_names()
        return Blob(self.at, start, end, inside)


def _items(values: list[Any]) -> list[tuple[Text, Value]]:
    return [(key, value) for key, value in pairs(values) if isinstance(key, Text)]


def _is_framed(data: bytes, start: int, end: int) -> bool:
    """Whether bytes are certainly a pickle: the length of the first frame is possible."""
    if end - start < 12 or data[start + 2] != _FRAME:
        return False
    return int.from_bytes(data[start + 3 : start + 11], "little") <= end - start - 11
