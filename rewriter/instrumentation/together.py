"""Which values can be measured together with those of the next launch.

A launch of the measuring kernel takes a GPU about as long as reading a small tensor does. Where
nobody writes or frees what a launch wrote before the line behind the next launch is reached, one
launch measures the values of both (`Gpu::When` in rewriter/runtime/cpp/engine/gpu.h).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rewriter.instrumentation import choosing
from rewriter.locate.types import Argument, Launch, Located

_POOL = re.compile(r"pool\d+$")  # whose parts may overlap, and are not released


def together(located: Located, handed: Mapping[int, Sequence[Argument]]) -> frozenset[int]:
    """The indices of the launches whose values can wait for those of the next launch.

    `handed` are the values that the line behind a launch hands over, by its index.
    """
    scopes = {launch.scope for launch in located.launches}
    own = {event.buffer for event in located.memory}
    if len(scopes) != 1 or located.unrecognised or any(map(_POOL.match, own)):
        return frozenset()
    owners = {
        argument.name.partition(".")[0]: argument.buffer
        for launch in located.launches
        for argument in launch.args
    }
    for event in located.memory:
        if event.action == "reuse":
            owners.setdefault(event.buffer, owners.get(event.of, event.of))
    releases = sorted(
        (event.insertion_point.start, owners.get(event.buffer, event.buffer))
        for event in located.memory
        if event.action == "release"
    )
    result: set[int] = set()
    waiting: set[str] = set()  # who owns the memory of what waits
    place = 0  # among the releases
    for launch, following in pairwise(located.launches):
        values = handed.get(launch.index, ())
        waiting |= {argument.buffer for argument in values}
        while place < len(releases) and releases[place][0] < launch.insertion_point.end:
            place += 1
        freed = set()
        while place < len(releases) and releases[place][0] < following.insertion_point.end:
            freed.add(releases[place][1])
            place += 1
        if (
            values
            and following.index in handed
            and _follows(launch, following)
            and waiting <= own
            and not waiting & (freed | _written(following))
        ):
            result.add(launch.index)
        else:
            waiting.clear()
    return frozenset(result)


def _follows(launch: Launch, following: Launch) -> bool:
    """Whether the one always runs right behind the other, on the same stream."""
    return not any(x.repeats or x.conditional or x.stream for x in (launch, following))


def _written(launch: Launch) -> set[str]:
    return {x.buffer for x in launch.args if choosing.may_be_written(launch, x)}
