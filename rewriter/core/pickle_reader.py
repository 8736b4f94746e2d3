"""Reads the structure of a pickle by its opcodes. Nothing is executed or imported.

The stack and the memo are followed just far enough to know the keys and values of dictionaries; the
state of an object is a dictionary, too. Bytes in a pickle that are themselves a pickle are read in
the same way. Only binary pickles are supported: protocols 2 to 5.

All offsets refer to the whole file, also for nested bytes. The format is that of Python's
`pickletools`, which provides the table of opcodes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rewriter.core import limits
from rewriter.core.errors import RewriterError

PROTOCOLS: Final = range(2, 6)

OPCODES: Final = {opcode_info.name: ord(opcode_info.code) for opcode_info in pickletools.opcodes}

# Opcodes whose operand follows its length, and the number of bytes of the length.
TEXT_OPCODES: Final = {
    OPCODES["SHORT_BINUNICODE"]: 1,
    OPCODES["BINUNICODE"]: 4,
    OPCODES["BINUNICODE8"]: 8,
}
BYTES_OPCODES: Final = {
    OPCODES["SHORT_BINBYTES"]: 1,
    OPCODES["BINBYTES"]: 4,
    OPCODES["BINBYTES8"]: 8,
}
# The widths of lengths and arguments, by their description in `pickletools`.
_SIZED_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


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

    items: list[tuple[Text, Value]] = field(default_factory=list)


# A value on the stack; None stands for any kind of value that is not followed.
Value = Text | Blob | Dictionary | None


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
        """The decoded string. Raises `RewriterError` if it is not UTF-8."""
        try:
            return self.raw(text).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise damaged(text.start, "a string that is not UTF-8") from error

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


_PROTO, _STOP = OPCODES["PROTO"], OPCODES["STOP"]
_FRAME, _MARK = OPCODES["FRAME"], OPCODES["MARK"]
_PUTS = {OPCODES["BINPUT"], OPCODES["LONG_BINPUT"], OPCODES["PUT"]}
_GETS = {OPCODES["BINGET"], OPCODES["LONG_BINGET"], OPCODES["GET"]}
_MEMOIZE, _POP, _DUP = OPCODES["MEMOIZE"], OPCODES["POP"], OPCODES["DUP"]
_STACK_GLOBAL = OPCODES["STACK_GLOBAL"]
_GLOBALS = {OPCODES["GLOBAL"], OPCODES["INST"]}
_NEW_DICTIONARIES = {OPCODES["EMPTY_DICT"], OPCODES["DICT"]}
_SETS_ITEMS = {OPCODES["SETITEM"], OPCODES["SETITEMS"]}
# Opcodes that change the object on the stack and leave it there.
_CHANGES_OBJECT = {"SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS", "BUILD"}


@dataclass(frozen=True)
class _Opcode:
    """An opcode: its argument, what it takes from the stack, and how many values it leaves there.

    The argument has `size` bytes, or follows its length of `width` bytes, or is `lines` of text.
    With `to_mark`, the opcode takes everything above the last mark, and the mark.
    """

    name: str
    size: int
    width: int
    lines: int
    takes: int
    to_mark: bool
    leaves: int


def _opcode(one: pickletools.OpcodeInfo) -> _Opcode:
    size = 0 if one.arg is None else one.arg.n
    lines = 0
    if size == pickletools.UP_TO_NEWLINE:
        lines = 2 if ord(one.code) in _GLOBALS else 1
    before, leaves = list(one.stack_before), len(one.stack_after)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    if one.name in _CHANGES_OBJECT:
        takes, leaves = takes - 1, 0
    return _Opcode(
        one.name, max(size, 0), _SIZED_WIDTHS.get(size, 0), lines, takes, to_mark, leaves
    )


_TABLE: Final[list[_Opcode | None]] = [None] * 256
for _one in pickletools.opcodes:
    _TABLE[ord(_one.code)] = _opcode(_one)


def _reader(data: bytes, start: int, end: int, depth: int) -> _Reader:
    if depth > limits.PICKLE_NESTING:
        raise limits.too_large(
            "the pickle", f"{depth} pickles in one another", f"{limits.PICKLE_NESTING}"
        )
    if end - start < 2 or not begins(data, start):
        raise damaged(start, "it does not begin as a binary pickle of protocol 2 to 5")
    return _Reader(data, start, end, depth)


class _Reader:
    """One pass over the opcodes of one pickle."""

    def __init__(self, data: bytes, start: int, end: int, depth: int) -> None:
        self.data, self.start, self.end, self.depth = data, start, end, depth
        self.stack: list[Value] = []
        self.marks: list[int] = []  # the height of the stack at each mark
        self.memo: dict[int, Value] = {}
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
        position = self.start + 2
        for _ in range(limits.PICKLE_OPCODES):
            if position >= self.end:
                raise damaged(position, "it ends before it is complete")
            code = self.data[position]
            if code == _STOP:
                return self._finish(position)
            position = self._step(code, position)
        raise limits.too_large(
            "the pickle", "more opcodes", f"{limits.PICKLE_OPCODES:,} of one pickle"
        )

    def _finish(self, position: int) -> Pickle:
        if position + 1 != self.end:
            raise damaged(position + 1, f"{self.end - position - 1:,} bytes after its end")
        if len(self.stack) != 1 or self.marks:
            raise damaged(position, "it ends with other than one object")
        self._require_frame(position, position + 1)
        if self.frames and self.frames[-1].end > position + 1:
            raise damaged(self.frames[-1].at, "a frame that is longer than the pickle")
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

    def _step(self, code: int, at: int) -> int:
        """Follow one opcode; returns the offset of the next one."""
        opcode = _TABLE[code]
        if opcode is None or code == _PROTO:
            raise damaged(at, f"byte {code:#04x} is no opcode there")
        start = at + 1 + opcode.width
        if opcode.width:
            end = start + self._number(at + 1, opcode.width)
        elif opcode.lines:
            end = self._end_of_lines(start, opcode.lines)
        else:
            end = start + opcode.size
        if end >= self.end:
            raise damaged(at, f"{opcode.name} goes beyond the end")
        if code == _FRAME:
            self._begin_frame(at, end)
            return end
        self._require_frame(at, end)
        if code in TEXT_OPCODES:
            text = Text(at, start, end)
            self.texts.append(text)
            self.stack.append(text)
        elif code in BYTES_OPCODES:
            self.stack.append(self._blob(at, start, end))
        elif code == _MEMOIZE:
            self.memo[len(self.memo)] = self._top(at)
        elif code in _PUTS:
            self.memo[self._index(at, start, end, opcode)] = self._top(at)
        elif code in _GETS:
            index = self._index(at, start, end, opcode)
            if index not in self.memo:
                raise damaged(at, f"the memo has nothing under {index}")
            self.stack.append(self.memo[index])
        elif code == _MARK:
            self.marks.append(len(self.stack))
        else:
            self._follow(code, opcode, at, start, end)
        return end

    def _follow(self, code: int, opcode: _Opcode, at: int, start: int, end: int) -> None:
        if code == _POP and self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
            return
        if code == _DUP:
            self.stack.append(self._top(at))
            return
        taken = self._take(opcode, at)
        if code in _SETS_ITEMS:
            self._set_items(self._top(at), taken, at)
        elif opcode.name in _CHANGES_OBJECT:
            self._top(at)
        elif code in _NEW_DICTIONARIES:
            new = Dictionary()
            self.dictionaries.append(new)
            self._set_items(new, taken, at)
            self.stack.append(new)
        else:
            if code in _GLOBALS:
                module, name = self.data[start : end - 1].split(b"\n")
                self._import(module, name, at)
            elif code == _STACK_GLOBAL:
                self._import(self._raw(taken[0], at), self._raw(taken[1], at), at)
            self.stack.extend([None] * opcode.leaves)

    def _take(self, opcode: _Opcode, at: int) -> list[Value]:
        """Take from the stack what an opcode takes, including its mark."""
        if opcode.to_mark:
            if not self.marks:
                raise damaged(at, f"{opcode.name} without a mark")
            height = self.marks.pop()
            taken = self.stack[height:]
            del self.stack[height:]
            if not opcode.takes:
                return taken
        floor = self.marks[-1] if self.marks else 0
        height = len(self.stack) - opcode.takes
        if height < floor:
            raise damaged(at, f"{opcode.name} takes more than there is")
        if not opcode.to_mark:
            taken = self.stack[height:]
        del self.stack[height:]
        return taken

    def _set_items(self, into: Value, taken: list[Value], at: int) -> None:
        if len(taken) % 2:
            raise damaged(at, "a key without a value")
        if not isinstance(
            into, Dictionary
        ):  # an object that behaves like a dictionary, such as an OrderedDict
            into = Dictionary()
            self.dictionaries.append(into)
        pairs = zip(taken[::2], taken[1::2], strict=True)
        into.items.extend((key, value) for key, value in pairs if isinstance(key, Text))

    def _blob(self, at: int, start: int, end: int) -> Blob:
        inside = None
        if end - start > 3 and begins(self.data, start):
            reader = _reader(self.data, start, end, self.depth + 1)
            try:
                inside = reader.read()
            except RewriterError as error:
                # The first two bytes may look like a pickle by chance.
                is_sure = is_pickle(self.data, start, end) and _is_framed(self.data, start, end)
                if error.slug != "damaged-pickle" or is_sure:
                    raise
                # Python would import these names before it reaches the damage.
                self.names += reader.all_names()
        blob = Blob(at, start, end, inside)
        self.blobs.append(blob)
        return blob

    def _import(self, module: bytes, name: bytes, at: int) -> None:
        self.names.append(
            ImportedName(module.decode("utf-8", "replace"), name.decode("utf-8", "replace"), at)
        )

    def _raw(self, value: Value, at: int) -> bytes:
        if not isinstance(value, Text):
            raise damaged(at, "a name to import that is no string")
        return self.data[value.start : value.end]

    def _top(self, at: int) -> Value:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise damaged(at, "it needs an object and there is none")
        return self.stack[-1]

    def _begin_frame(self, at: int, start: int) -> None:
        if self.frames and self.frames[-1].end > at:
            raise damaged(at, "a frame in another")
        length = self._number(at + 1, 8)
        if start + length > self.end:
            raise damaged(at, "a frame goes beyond the end")
        self.frames.append(Frame(at + 1, start, start + length))

    def _require_frame(self, at: int, end: int) -> None:
        """Raise unless an opcode that begins in a frame ends in it."""
        if self.frames and at < (frame := self.frames[-1]).end < end:
            raise damaged(frame.end, "a frame ends within an opcode")

    def _number(self, at: int, width: int) -> int:
        if at + width > self.end:
            raise damaged(at, "it ends before it is complete")
        return int.from_bytes(self.data[at : at + width], "little")

    def _index(self, at: int, start: int, end: int, opcode: _Opcode) -> int:
        if not opcode.lines:
            return self._number(start, opcode.size)
        digits = self.data[start : end - 1]
        if not digits.isdigit() or len(digits) > 10:
            raise damaged(at, "an index of the memo that is no number")
        return int(digits)

    def _end_of_lines(self, start: int, lines: int) -> int:
        end = start
        for _ in range(lines):
            found = self.data.find(b"\n", end, self.end)
            if found < 0:
                raise damaged(start, "a line without an end")
            end = found + 1
        return end


def _is_framed(data: bytes, start: int, end: int) -> bool:
    """Whether bytes are certainly a pickle: the length of the first frame is possible."""
    if end - start < 12 or data[start + 2] != _FRAME:
        return False
    return int.from_bytes(data[start + 3 : start + 11], "little") <= end - start - 11
