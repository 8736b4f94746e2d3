"""Chooses the values that `--args ends` records in addition to what launches write.

Each value is recorded where it is written (or where the call receives it), and again after the last
launch that reads it. If something else writes to its memory in between, the two recordings differ,
however many launches read the value.
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
_START = -1  # the position of the start of a call, before the launch at position 0


@dataclass
class _Value:
    """A value, and the variable that has it. Launches are given by their position in the scope.

    `recorded` is the launch after which the value is recorded, `reader` the last launch so far that
    reads it, `named` the first launch at which the variable has it.
    """

    argument: Argument
    recorded: int
    reader: int | None = None
    named: int = _START


@dataclass
class _Scope:
    """The launches of one scope, in order, and the current values of its variables.

    `memory` is the launch at which the memory of each buffer was last recorded. Values of `watched`
    variables are recorded after each launch between the two ends.
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
            return  # perhaps no variable has all of the memory
        whole = replace(argument, name=name, expr=name, later=None)
        same_memory = [x for x in self.values.values() if x.argument.buffer == argument.buffer]
        if same_memory and name not in self.values:
            # It has been renamed, `buf1 = buf0`, and the first variable may be deleted.
            value = same_memory[-1]
            del self.values[value.argument.name]
            self.values[name] = value
            value.argument, value.named = whole, place
        if not same_memory:
            if name != argument.buffer:
                return
            if name in self.inputs:
                recorded = _START
            else:  # not recorded so far: a constant, or an argument of a subgraph
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
        """The value of a variable ends: record it after its last reader."""
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
            # If the memory was not recorded before, there is nothing to compare with.
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
    """What to record before and after launches in addition to their results, by launch index.

    `probed` are the launches that get lines, `inputs` the inputs that are recorded at the start of
    a call, by scope. `watched` variables are also recorded after each launch in between.
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
            scope.end_all()  # in a loop, a name has another value each time
            continue
        tensors = launch.tensors
        written = [x for x in tensors if matching.may_be_written(launch, x)]
        buffers = {argument.buffer for argument in written}
        for argument in tensors:
            if argument.buffer not in buffers:
                scope.read(place, argument)
        for argument in written:
            scope.write(place, argument)
    scope.end_all()
