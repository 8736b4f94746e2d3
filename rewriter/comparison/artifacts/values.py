"""Identifies the arguments of launches independently of the names that the compiler gave them.

A buffer is identified by its producer: the launch, and the position among its results. So an
inserted launch, which renames every later buffer, changes no argument, and two swapped operands are
a change whatever their names are.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rewriter.comparison.artifacts.buffer_facts import BufferFacts, plain
from rewriter.core.types import Role
from rewriter.locate.types import Argument, Launch, Located

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Names that have numbers; all other names were chosen by people.
_NUMBERED = re.compile(r"(?:\w*_)?(?:buf|tmp|var|workspace|pool)_?\d+\w*$")
_STREAM = re.compile(r"(?:raw_)?stream\d*$")
_ALONE = re.compile(r"\w+")


@dataclass(frozen=True)
class OperandValue:
    """What an operand holds. `which` is, by the kind:

    - `result`, of a launch: the launch, and the position among its results
    - `input`, from the caller: the position among the inputs
    - `named`, of which only the name is known, such as a weight: the name
    - `unwritten`, a buffer that a launch is about to write: the position among these, in the order
      in which they were allocated
    """

    kind: Literal["result", "input", "named", "unwritten"]
    which: Any
    name: str = field(default="", compare=False)


class NameMapping:
    """Maps names of A to names of B, one to one; it grows with each matching pair."""

    def __init__(self) -> None:
        self._to: dict[Hashable, Hashable] = {}
        self._from: dict[Hashable, Hashable] = {}

    def match(self, a: Hashable, b: Hashable) -> bool:
        """Whether two names may be a pair; if so, they are a pair from then on."""
        if self._to.get(a, b) != b or self._from.get(b, a) != a:
            return False
        self._to[a], self._from[b] = b, a
        return True


@dataclass(frozen=True)
class Operand:
    """An argument. `form` is its expression with `@` for the variable, which holds `value`.

    `value` is `None` for an argument without a value before the launch, or that is not a tensor.
    """

    form: str
    role: Role
    type: str
    value: OperandValue | None
    argument: Argument = field(compare=False)
    scope: str = field(default="", compare=False)

    @property
    def place(self) -> tuple[str, str]:
        """The variable, and the scope of its name."""
        return self.scope, variable(self.argument)


@dataclass(frozen=True)
class Operands:
    """The operands of each launch of a wrapper, by index, and their known shapes.

    `written` has the positions of the results of each launch, `inputs` the caller's inputs.
    """

    of: tuple[tuple[Operand, ...], ...]
    written: tuple[tuple[int, ...], ...]
    shapes: tuple[Hashable, ...]
    inputs: tuple[str, ...]


def follow_operands(located: Located, buffers: BufferFacts) -> Operands:
    """Follow the buffers through the launches of a wrapper, in file order."""
    inputs = max((entry.inputs for entry in located.entries), key=len, default=())
    follow = _Follow(buffers, {name: position for position, name in enumerate(inputs)})
    by_launch = tuple(follow.launch(launch) for launch in located.launches)
    shapes = tuple(
        tuple(_shape(operand, buffers) for operand in launch if operand.type != "other")
        for launch in by_launch
    )
    written = tuple(
        tuple(position for position, operand in enumerate(launch) if _is_result(operand.argument))
        for launch in by_launch
    )
    return Operands(by_launch, written, shapes, inputs)


class _Follow:
    def __init__(self, buffers: BufferFacts, inputs: Mapping[str, int]) -> None:
        self._buffers = buffers
        self._inputs = inputs
        self._allocations = {name: i for i, name in enumerate(buffers.sizes)}
        self._writers: dict[tuple[str, str], OperandValue] = {}

    def launch(self, launch: Launch) -> tuple[Operand, ...]:
        args = (x for x in launch.args if x.type != "other" or not _STREAM.match(x.name))
        operands = self._allocated([self._operand(argument, launch) for argument in args])
        slots: dict[str, int] = {}
        for argument in launch.args:
            if _is_result(argument):
                slot = slots.setdefault(argument.buffer, len(slots))
                for name in {argument.buffer, variable(argument)}:
                    written = OperandValue("result", (launch.index, slot), argument.name)
                    # In its scope and in all others, since graph partitions pass names on.
                    self._writers[launch.scope, name] = self._writers["", name] = written
        return operands

    def _allocated(self, launch: Sequence[Operand]) -> tuple[Operand, ...]:
        """The operands, with the order in which the results were allocated, if all of them were."""
        names = {x.place[1] for x in launch if x.role == "out" and x.type == "tensor"}
        if len(names) < 2 or not names <= self._allocations.keys():
            return tuple(launch)
        order = {name: i for i, name in enumerate(sorted(names, key=self._allocations.__getitem__))}
        return tuple(
            replace(x, value=OperandValue("unwritten", order[x.place[1]]))
            if x.role == "out" and x.type == "tensor"
            else x
            for x in launch
        )

    def _operand(self, argument: Argument, launch: Launch) -> Operand:
        # The expression that made a handle which the launch takes, in torch 2.6.
        taken = argument.later if argument.later and "(" in argument.later else argument.expr
        form = plain(self._buffers.expand(taken, launch.line))
        if argument.type != "tensor":
            return Operand(form, argument.role, argument.type, None, argument, launch.scope)
        form = self._form(form, variable(argument), argument.buffer, launch.line)
        value = None if argument.role == "out" else self._value(launch.scope, argument)
        return Operand(form, argument.role, argument.type, value, argument, launch.scope)

    def _form(self, form: str, name: str, root: str, line: int) -> str:
        """`form` with `@` for the variable; a variable that is a view is replaced by the view."""
        for _ in range(8):
            if name == root or name not in self._buffers.views:
                break
            view = plain(self._buffers.expand(self._buffers.views[name], line))
            form = _replace(form, name, view)
            words = _IDENTIFIER.findall(view)
            name = next((x for x in words if x == root or self._is_known(x)), name)
        replaced = _replace(form, name, "@")
        if replaced == form and (first := _IDENTIFIER.match(form)):
            # The variable `buf8` is a name for `buf7[0]`.
            return "@" + form[first.end() :]
        return replaced

    def _is_known(self, name: str) -> bool:
        """Whether a variable is a view itself, or was written."""
        return name in self._buffers.views or ("", name) in self._writers

    def _value(self, scope: str, argument: Argument) -> OperandValue:
        for name in (variable(argument), argument.buffer):
            if written := self._writers.get((scope, name)):
                return written
        for name in (argument.buffer, variable(argument)):
            if name in self._inputs:
                return OperandValue("input", self._inputs[name], name)
        known = self._writers.get(("", argument.buffer))
        return known or OperandValue("named", argument.buffer, argument.buffer)


def variable(argument: Argument) -> str:
    """The variable that an argument names: `buf4.2` is a second view of `buf4`."""
    match = _ALONE.match(argument.name)
    return match.group() if match else argument.name


def is_variable(word: str) -> bool:
    """Whether a word looks like the compiler's name for a buffer, handle or stream."""
    return bool(_NUMBERED.match(word) or _STREAM.match(word))


def _is_result(argument: Argument) -> bool:
    return argument.type == "tensor" and argument.role != "in"


def _is_grid(operand: Operand) -> bool:
    return operand.type == "other" and operand.form.startswith("grid(")


def _replace(text: str, name: str, by: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", lambda _: by, text)


def _shape(operand: Operand, buffers: BufferFacts) -> str:
    if operand.type == "scalar" or "(" in operand.form:
        return operand.form
    argument = operand.argument
    return buffers.sizes.get(variable(argument)) or buffers.sizes.get(argument.buffer, "")


class Matcher:
    """Compares the operands of paired launches.

    `partner` maps launches of A to their positions in B. Two variables about which only the name is
    known are equal if they have the same name. A numbered name that the other side lacks is paired
    with the first name that it is compared with. Names of results are paired separately.
    """

    def __init__(self, a: Operands, b: Operands, partner: Mapping[int, int]) -> None:
        self._a, self._b, self._partner, self._names = a, b, partner, NameMapping()
        self._by_position = len(a.inputs) == len(b.inputs)
        self._names_a, self._names_b = _named(a), _named(b)

    def same(self, a: Operand, b: Operand) -> bool:
        return (a.form, a.role, a.type) == (b.form, b.role, b.type) and self._same_operand(a, b)

    def _same_operand(self, a: Operand, b: Operand) -> bool:
        if a.type != "tensor" or b.type != "tensor":
            return True
        if a.role == "out" and b.role == "out":
            known = a.value is not None and b.value is not None
            return (not known or a.value == b.value) and self._names.match(a.place, b.place)
        if not self._same_value(a.value, b.value):
            return False
        # Equal whatever their names are. Results can no longer pair these names differently.
        self._names.match(a.place, b.place)
        return True

    def _same_value(self, a: OperandValue | None, b: OperandValue | None) -> bool:
        if a is None or b is None or a.kind != b.kind:
            return a is b
        if a.kind == "result":
            (launch_a, slot_a), (launch_b, slot_b) = a.which, b.which
            if self._partner.get(launch_a) != launch_b:
                return False
            # A kernel with other parameters has its results in another order.
            ordered = self._a.written[launch_a] == self._b.written[launch_b]
            return slot_a == slot_b or not ordered
        if a.kind == "input":
            return a.which == b.which if self._by_position else a.name == b.name
        if a.kind == "named" and a != b:
            fresh = a.name not in self._names_b and b.name not in self._names_a
            counted = _NUMBERED.match(a.name) and _NUMBERED.match(b.name)
            return bool(fresh and counted) and self._names.match(a.name, b.name)
        return a == b

    def differences(self, a: Sequence[Operand], b: Sequence[Operand]) -> Iterator[str]:
        """Yield text about what differs in the arguments of two launches."""
        if any(map(_is_grid, a)) != any(map(_is_grid, b)):
            # Since torch 2.7 the kernel computes the grid from the sizes that it is passed.
            a, b = ([operand for operand in side if not _is_grid(operand)] for side in (a, b))
        if len(a) == len(b):
            for position, (one, other) in enumerate(zip(a, b, strict=True), 1):
                if not self.same(one, other):
                    yield f"argument {position}: {self._difference(one, other)}"
            return
        # `same` is not an equivalence, so nothing can be hashed: skip equal ends, report the rest.
        start = next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if not self.same(x, y)),
            min(len(a), len(b)),
        )
        end = 0
        while end < min(len(a), len(b)) - start and self.same(a[-1 - end], b[-1 - end]):
            end += 1
        gone, new = (", ".join(map(shown, side[start : len(side) - end])) for side in (a, b))
        yield f"{len(a)} arguments -> {len(b)}: {gone or 'nothing'} -> {new or 'nothing'}"

    def _difference(self, a: Operand, b: Operand) -> str:
        if a.role != b.role:
            return f"{a.role} {shown(a)} -> {b.role} {shown(b)}"
        if a.form != b.form and self._same_operand(a, b):
            return f"{a.form} -> {b.form}".replace("@", variable(b.argument))
        if a.form != b.form or a.type != b.type:
            return f"{shown(a)} -> {shown(b)}"
        kinds = {x.value.kind for x in (a, b) if x.value is not None}
        ours, theirs = (getattr(x.value, "which", None) for x in (a, b))
        if kinds == {"input"}:
            return f"input {ours} -> input {theirs}"
        if kinds == {"result"} and ours and theirs and _source(a) == _source(b):
            return f"{_source(a)}, result {ours[1]} -> {theirs[1]}"
        return f"{_source(a)} -> {_source(b)}"


def _source(operand: Operand, text: str = "@") -> str:
    """The variable of an operand, or a text that has it as `@`, and the launch that wrote it."""
    text = text.replace("@", variable(operand.argument))
    if operand.value is None or operand.value.kind != "result":
        return text
    return f"{text} of #{operand.value.which[0]}"


def shown(operand: Operand) -> str:
    """An operand for people: its text, and the launch that wrote it."""
    return _source(operand, operand.form)


def _named(operands: Operands) -> frozenset[str]:
    values = (operand.value for launch in operands.of for operand in launch)
    return frozenset(x.name for x in values if x is not None and x.kind == "named")


def learn_renames(pairs: Sequence[tuple[Operand, Operand]]) -> dict[str, str]:
    """The variables of A by their names in B, as far as equal operands tell.

    Leaves out names that are renamed in two ways, or to which two names are renamed.
    """
    forward: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for a, b in pairs:
        names = [
            (a.argument.buffer, b.argument.buffer),
            (variable(a.argument), variable(b.argument)),
        ]
        words = _IDENTIFIER.findall(a.argument.expr), _IDENTIFIER.findall(b.argument.expr)
        if len(words[0]) == len(words[1]):
            names += zip(*words, strict=True)
        for old, new in names:
            if old and new:
                forward.setdefault(old, set()).add(new)
                back.setdefault(new, set()).add(old)
    return {
        old: new
        for old, news in forward.items()
        if len(news) == 1 and len(back[new := next(iter(news))]) == 1 and new != old
    }
