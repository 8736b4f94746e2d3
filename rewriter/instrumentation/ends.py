"""Chooses the values that `--args ends` records besides what launches write.

Each value is recorded where it is written (or where the call receives it), and again after the last
launch that reads it. If something else writes to its memory in between, the two differ, however
many launches read it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rewriter.core.types import Phase
from rewriter.instrumentation import matching
from rewriter.locate.types import Argument, Launch, Located, MemoryEvent

_VIEW = re.compile(r"\.\d+$")  # a further view of the same variable
Recorded = dict[Phase, dict[str, Argument]]
"""What is recorded before and after a launch, by expression."""
_START = -1  # the place of the start of a call: before the launch at place 0


@dataclass
class _Value:
    """A value, and the variable that has it. Places are those of launches in their scope.

    `recorded` is the place behind which the value is recorded, `reader` that of the last launch so
    far that reads it, `named` that of the first launch at which the variable has it.
    """

    argument: Argument
    recorded: int
    reader: int | None = None
    named: int = _START


@dataclass
class _Scope:
    """The launches of one scope, in order, and the values that its variables have, by their names.

    `memory` has the place at which the memory of a buffer was recorded last. Values of the
    `watched` variables are recorded behind each launch between the two ends.
    """

    launches: Sequence[Launch]
    probed: Collection[int]
    watched: Collection[str]
    inputs: Collection[str]
    result: dict[int, Recorded]
    values: dict[str, _Value] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def record(self, place: int, phase: Phase, argument: Argument) -> None:
        launch = self.launches[place]
        if launch.index in self.probed and not (phase == "after" and launch.is_last):
            recorded = self.result.setdefault(launch.index, {"before": {}, "after": {}})
            recorded[phase].setdefault(argument.expr, argument)
            self.memory[argument.buffer] = place

    def read(self, place: int, argument: Argument) -> None:
        """A launch reads a variable, or a part of its memory."""
        name = _VIEW.sub("", argument.name)
        if not name.isidentifier() or not re.search(rf"\b{name}\b", argument.expr):
            return  # it is not known whether a variable has all of the memory
        whole = replace(argument, name=name, expr=name, later=None)
        same_memory = [x for x in self.values.values() if x.argument.buffer == argument.buffer]
        if same_memory and name not in self.values:
            # Another variable has it now: `buf1 = buf0`, and the first one may be deleted.
            value = same_memory[-1]
            del self.values[value.argument.name]
            self.values[name] = value
            value.argument, value.named = whole, place
        if not same_memory:
            if name != argument.buffer:
                return
            if name in self.inputs:
                recorded = _START
            else:  # nothing has recorded it: a constant, or an argument of a subgraph
                self.record(place, "before", whole)
                recorded = place - 1
            self.values[name] = _Value(whole, recorded)
        launch = self.launches[place]
        if launch.index not in self.probed or launch.is_last:
            return
        if (read := self.values.get(name)) is None or read.argument.buffer != argument.buffer:
            return
        if launch.conditional:
            self.record(place, "after", read.argument)
        else:
            read.reader = place

    def end(self, name: str) -> None:
        """The value of a variable ends: it is recorded behind its last reader."""
        value = self.values.pop(name, None)
        if value is None or value.reader is None:
            return
        is_watched = bool({value.argument.name, value.argument.buffer} & {*self.watched})
        first = max(value.recorded + 1, value.named) if is_watched else value.reader
        for place in range(first, value.reader + 1):
            self.record(place, "after", value.argument)

    def end_all(self) -> None:
        for name in list(self.values):
            self.end(name)

    def write(self, place: int, argument: Argument) -> None:
        """A launch writes a variable, or a part of its memory."""
        for name, value in list(self.values.items()):
            has_owner = argument.buffer in (value.argument.name, argument.name)
            if value.argument.buffer == argument.buffer and (name == argument.name or has_owner):
                self.end(name)
        if argument.is_whole and argument.name.isidentifier():
            # Memory that was recorded nowhere has nothing to be compared with.
            default = _START if argument.buffer in self.inputs else place
            recorded = self.memory.get(argument.buffer, default)
            if argument.role == "inout" and recorded < place - 1:
                self.record(place, "before", argument)
            whole = replace(argument, expr=argument.name, role="in", later=None)
            self.values[argument.name] = _Value(whole, place)
        self.memory[argument.buffer] = place


def ends(
    located: Located,
    probed: Collection[int],
    inputs: Mapping[str, Collection[str]],
    watched: Collection[str] = (),
) -> dict[int, Recorded]:
    """What is recorded before and after launches besides what they write, by their indices.

    `probed` are the launches that get lines, `inputs` the inputs that are recorded at the start of
    a call, by scope. Variables that are `watched` are recorded behind each launch in between.
    """
    result: dict[int, Recorded] = {}
    for name in dict.fromkeys(launch.scope for launch in located.launches):
        launches = [x for x in located.launches if x.scope == name]
        events = [x for x in located.memory if x.scope == name and x.action != "allocate"]
        _walk(_Scope(launches, probed, watched, inputs.get(name, ()), result), events)
    return result


def _walk(scope: _Scope, events: Sequence[MemoryEvent]) -> None:
    starts = [launch.insertion_point.start for launch in scope.launches]
    before: dict[int, list[MemoryEvent]] = {}
    for event in events:
        before.setdefault(bisect_left(starts, event.insertion_point.start), []).append(event)
    for place, launch in enumerate(scope.launches):
        for event in before.get(place, ()):
            scope.end(event.of or event.buffer)
        if launch.repeats:
            scope.end_all()  # its names mean something else each time
            continue
        tensors = [argument for argument in launch.args if argument.type == "tensor"]
        written = [x for x in tensors if matching.may_be_written(launch, x)]
        buffers = {argument.buffer for argument in written}
        for argument in tensors:
            if argument.buffer not in buffers:
                scope.read(place, argument)
        for argument in written:
            scope.write(place, argument)
    scope.end_all()
