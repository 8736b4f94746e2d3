"""Reads the plain values in a pickle without loading it: looks up no class and calls nothing.

What loading would create by a call becomes a `Made` with the name, the arguments and the state.
Opcodes are read by `pickletools.genops` of the standard library. `pickle_reader.py` also notes
where strings are, to replace them.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_GET = frozenset({"GET", "BINGET", "LONG_BINGET"})
_PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_IGNORED = frozenset({"PROTO", "FRAME", "STOP", "READONLY_BUFFER"})
_PLAIN = (str, int, float, bytes, type(None))  # keys that are kept

# What `pickletools` and a machine raise for bytes that are no pickle.
ERRORS = (ValueError, IndexError, KeyError, OverflowError, TypeError)


class PickleError(ValueError):
    """The data is not a valid pickle."""


@dataclass(eq=False)
class Made:
    """An object that loading would create by a call. `name` is that of what is called, `state` the
    state that it would get afterwards, `items` what would be added to it."""

    name: str
    arguments: Any = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)

    def get(self, key: str) -> Any:
        """An attribute from its state; `None` if there is none of that name."""
        state = self.state
        if isinstance(state, tuple) and len(state) == 2:  # the second member is for slots
            state = {**_dict(state[0]), **_dict(state[1])}
        return _dict(state).get(key)


def read(data: bytes) -> Any:
    """The value of the first pickle in `data`: lists, tuples, dictionaries, strings, bytes, numbers
    and `Made`. Sets are lists. Raises `PickleError`."""
    machine = Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.run(opcode.name, argument)
    except PickleError:
        raise
    except ERRORS as error:
        raise PickleError(f"{type(error).__name__}: {error}") from error
    return machine.result()


def objects(value: Any) -> Iterator[Made]:
    """Every `Made` in a value, the outer one first; each once."""
    seen: set[int] = set()
    left = [value]
    while left:
        one = left.pop()
        if not isinstance(one, (Made, list, tuple, dict)) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Made):
            yield one
            left += [one.items, one.state, one.arguments]
        else:
            left += reversed(list(one.values() if isinstance(one, dict) else one))


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


class Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks below the marks
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        """The value, after the last opcode."""
        if len(self.stack) != 1 or self._below:
            raise PickleError(f"it ends with {len(self.stack)} values, and not with one object")
        return self.stack[0]

    def run(self, name: str, argument: Any) -> None:
        """Execute one opcode, given by its name in `pickletools`."""
        if name == "MEMOIZE":
            self._memo[len(self._memo)] = self._top()
        elif name in _GET:
            if (index := int(argument)) not in self._memo:
                raise PickleError(f"the memo has nothing under {index}")
            self.stack.append(self._memo[index])
        elif name in _PUT:
            self._memo[int(argument)] = self._top()
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_LIST", "EMPTY_SET"):
            self.stack.append([])
        elif name == "MARK":
            self._below.append(self.stack)
            self.stack = []
        elif name in _TUPLES:
            self.stack.append(tuple(self._take(_TUPLES[name])))
        elif name in ("TUPLE", "LIST", "FROZENSET"):
            given = self._marked()
            self.stack.append(tuple(given) if name == "TUPLE" else given)
        elif name in ("EMPTY_DICT", "DICT"):
            given = self._marked() if name == "DICT" else []
            self.stack.append(self.dictionary(given))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            self.extend(self._take(1) if name == "APPEND" else self._marked())
        elif name in ("SETITEM", "SETITEMS"):
            self.update(self._take(2) if name == "SETITEM" else self._marked())
        elif name in ("POP", "DUP", "POP_MARK"):
            self._shuffle(name)
        elif name not in _IGNORED and not self._calls(name, argument):
            if argument is None:
                raise PickleError(f"the opcode {name}")
            self.stack.append(argument)

    def _calls(self, name: str, argument: Any) -> bool:
        """Execute an opcode that names or calls something; returns false for other opcodes."""
        if name in ("GLOBAL", "INST"):
            made = self.imported(*argument.split(" ", 1))
            made.arguments = tuple(self._marked()) if name == "INST" else ()
            self.stack.append(made)
        elif name in ("EXT1", "EXT2", "EXT4", "PERSID"):
            self.stack.append(Made(str(argument)))
        elif name == "NEXT_BUFFER":
            self.stack.append(Made("buffer"))
        elif name == "BINPERSID":
            self.stack.append(Made("persistent", tuple(self._take(1))))
        elif name == "STACK_GLOBAL":
            self.stack.append(self.imported(*map(self.text, self._take(2))))
        elif name in ("REDUCE", "NEWOBJ"):
            self.stack.append(_made(*self._take(2)))
        elif name == "NEWOBJ_EX":
            what, arguments, _ = self._take(3)
            self.stack.append(_made(what, arguments))
        elif name == "OBJ":
            what, *given = self._marked()
            self.stack.append(_made(what, tuple(given)))
        elif name == "BUILD":
            (state,) = self._take(1)
            if isinstance(built := self._top(), Made):
                built.state = state
        else:
            return False
        return True

    def imported(self, module: str, name: str) -> Made:
        """What a name that would be imported stands for."""
        return Made(f"{module}.{name}")

    def text(self, value: Any) -> str:
        """A part of such a name."""
        # The text of other values may be exponentially longer than the pickle.
        if not isinstance(value, str):
            raise PickleError("a name to import that is no string")
        return value

    def dictionary(self, values: list[Any]) -> Any:
        """A dictionary of alternating keys and values; leaves out keys that are not plain."""
        return {key: value for key, value in pairs(values) if isinstance(key, _PLAIN)}

    def update(self, values: list[Any]) -> None:
        """Set items of what is on top of the stack."""
        target = self._top()
        if isinstance(target, Made):
            target.items += values
        elif isinstance(target, dict):
            target.update(self.dictionary(values))
        else:
            raise PickleError("it sets items of what is no dictionary")

    def extend(self, values: list[Any]) -> None:
        """Add to what is on top of the stack."""
        target = self._top()
        if isinstance(target, Made):
            target = target.items
        if not isinstance(target, list):
            raise PickleError("it appends to what is no list")
        target.extend(values)

    def _shuffle(self, name: str) -> None:
        if name == "DUP":
            self.stack.append(self._top())
        elif name == "POP_MARK" or not self.stack:
            self._marked()
        else:
            self.stack.pop()

    def _top(self) -> Any:
        if not self.stack:
            raise PickleError("it needs an object and there is none")
        return self.stack[-1]

    def _take(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise PickleError("it takes more values than there are")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def _marked(self) -> list[Any]:
        """Take the values above the last mark."""
        if not self._below:
            raise PickleError("it has no mark for what it takes")
        taken, self.stack = self.stack, self._below.pop()
        return taken


def _made(what: Any, arguments: Any) -> Made:
    return Made(what.name if isinstance(what, Made) else "", arguments)


def pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Alternating keys and values."""
    if len(values) % 2:
        raise PickleError("a key without a value")
    return zip(values[::2], values[1::2], strict=True)
