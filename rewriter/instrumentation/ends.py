"""Which values are looked at where they begin and where they are read last.

Memory that changes in between shows with two looks at each value, however many launches read it:
the first one behind the launch that writes it (or where the call is given it), the second one
behind the last launch that reads it, while the variable still has it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rewriter.core.types import Phase
from rewriter.instrumentation import choosing
from rewriter.locate.types import Argument, Launch, Located, MemoryEvent

_VIEW = re.compile(r"\.\d+$")  # a further view of the same variable
Looks = dict[Phase, dict[str, Argument]]  # by expression


@dataclass
class _Held:
    """A variable and what it holds: `since` is the place of the launch behind which it was looked
    at, -1 for the start of the call, `reader` that of the last one that reads it."""

    argument: Argument
    since: int
    reader: int | None = None
    named: int = -1  # from which launch on it has this name


@dataclass
class _Scope:
    """The launches of one scope, in order, and what its variables hold, by their names.

    `seen` has where the memory of an owner was looked at last. Of the `watched` variables each
    launch between the two ends gets a look.
    """

    launches: Sequence[Launch]
    probed: Collection[int]
    watched: Collection[str]
    inputs: Collection[str]
    looks: dict[int, Looks]
    held: dict[str, _Held] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def look(self, place: int, phase: Phase, argument: Argument) -> None:
        launch = self.launches[place]
        if launch.index in self.probed and not (phase == "after" and _is_last(launch)):
            looks = self.looks.setdefault(launch.index, {"before": {}, "after": {}})
            looks[phase].setdefault(argument.expr, argument)
            self.seen[argument.buffer] = place

    def read(self, place: int, argument: Argument) -> None:
        """A launch reads a variable, or a part of its memory."""
        name = _VIEW.sub("", argument.name)
        if not name.isidentifier() or not re.search(rf"\b{name}\b", argument.expr):
            return  # whether there is a variable with all of it nobody knows
        whole = replace(argument, name=name, expr=name, later=None)
        of_it = [x for x in self.held.values() if x.argument.buffer == argument.buffer]
        if of_it and name not in self.held:
            # Another variable has it now: `buf1 = buf0`, and the first one may be gone.
            del self.held[of_it[-1].argument.name]
            self.held[name] = of_it[-1]
            of_it[-1].argument, of_it[-1].named = whole, place
        if not of_it:
            if name != argument.buffer:
                return
            if name in self.inputs:
                since = -1
            else:  # nobody showed it: a constant, or what a subgraph is given
                self.look(place, "before", whole)
                since = place - 1
            self.held[name] = held = _Held(whole, since)
            of_it = [held]
        launch = self.launches[place]
        for one in of_it:
            if launch.index not in self.probed or _is_last(launch):
                continue
            if one.argument.name != name:
                continue
            if launch.conditional:
                self.look(place, "after", one.argument)
            else:
                one.reader = place

    def close(self, name: str) -> None:
        """A variable holds its value no more."""
        one = self.held.pop(name, None)
        if one is None or one.reader is None:
            return
        is_watched = bool({one.argument.name, one.argument.buffer} & {*self.watched})
        first = max(one.since + 1, one.named) if is_watched else one.reader
        for place in range(first, one.reader + 1):
            self.look(place, "after", one.argument)

    def write(self, place: int, argument: Argument) -> None:
        """A launch writes a variable, or a part of its memory."""
        for name, one in list(self.held.items()):
            parts = {one.argument.name, argument.name}
            if one.argument.buffer == argument.buffer and (
                name == argument.name or argument.buffer in parts
            ):
                self.close(name)
        if argument.is_whole and argument.name.isidentifier():
            first = -1 if argument.buffer in self.inputs else place  # nobody saw it
            if argument.role == "inout" and self.seen.get(argument.buffer, first) < place - 1:
                self.look(place, "before", argument)
            whole = replace(argument, expr=argument.name, role="in", later=None)
            self.held[argument.name] = _Held(whole, place)
        self.seen[argument.buffer] = place

    def forget(self) -> None:
        for name in list(self.held):
            self.close(name)


def ends(
    located: Located,
    probed: Collection[int],
    inputs: Mapping[str, Collection[str]],
    watched: Collection[str] = (),
) -> dict[int, Looks]:
    """What is looked at before and behind launches, besides what they write, by their indices.

    `probed` are the launches that get lines, `inputs` the inputs that are shown at the start of a
    call, by scope. Variables that are `watched` are looked at behind each launch in between.
    """
    looks: dict[int, Looks] = {}
    for name in dict.fromkeys(launch.scope for launch in located.launches):
        launches = [x for x in located.launches if x.scope == name]
        events = [x for x in located.memory if x.scope == name and x.action != "allocate"]
        _walk(_Scope(launches, probed, watched, inputs.get(name, ()), looks), events)
    return looks


def _walk(scope: _Scope, events: Sequence[MemoryEvent]) -> None:
    starts = [launch.insertion_point.start for launch in scope.launches]
    gone: dict[int, list[MemoryEvent]] = {}
    for event in events:
        gone.setdefault(bisect_left(starts, event.insertion_point.start), []).append(event)
    for place, launch in enumerate(scope.launches):
        for event in gone.get(place, ()):
            scope.close(event.of or event.buffer)
        if launch.repeats:
            scope.forget()  # its names mean something else each time
            continue
        tensors = [argument for argument in launch.args if argument.type == "tensor"]
        written = [x for x in tensors if choosing.may_be_written(launch, x)]
        owners = {argument.buffer for argument in written}
        for argument in tensors:
            if argument.buffer not in owners:
                scope.read(place, argument)
        for argument in written:
            scope.write(place, argument)
    scope.forget()


def _is_last(launch: Launch) -> bool:
    return bool(launch.insertion_point.open_ended)
