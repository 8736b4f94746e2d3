"""Which values can be measured together with those of the next launch.

On a GPU, launching the measuring kernel takes about as long as reading a small tensor. If nothing
writes or frees the results of a launch until the line behind the next launch, the values of both
are measured by one launch of that kernel (`Gpu::When` in rewriter/runtime/cpp/engine/gpu.h).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rewriter.instrumentation import matching
from rewriter.locate.types import Argument, Launch, Located

_MOST = 48  # buffers that wait: a launch measures 12, and all that wait are checked each time
_MOST_SHARED = 256  # buffers that may share memory: all of them are checked for each launch
_POOL = re.compile(r"pool\d+$")  # its parts may overlap, and are not released


def together(located: Located, passed: Mapping[int, Sequence[Argument]]) -> frozenset[int]:
    """The indices of the launches whose values can wait for those of the next launch.

    `passed` are the values that the line after each launch passes, by launch index.
    """
    scopes = {launch.scope for launch in located.launches}
    own = {event.buffer for event in located.memory}
    if len(scopes) != 1 or located.unrecognised or any(map(_POOL.match, own)):
        return frozenset()
    owners = _owners(located)
    # Memory that was taken over may be written by a line that is not a launch, such as a copy.
    ended = (x for x in located.memory if x.action != "allocate")
    releases = _Lines((x.insertion_point.start, x.of or x.buffer) for x in ended)
    uses = _Lines((x.start, x.buffer) for x in located.other_uses)
    lasting = _Lines((x.start, x.buffer) for x in located.other_uses if x.lasts)
    # Memory with a known end: a release, maybe under the name that took it over, or the package's.
    ending = {owners.get(buffer, buffer) for buffer in own}
    kept = ending.union(own, *(entry.weights for entry in located.entries))
    made, shared = _made(located)
    result: set[int] = set()
    waiting: set[str] = set()  # owners of the memory that waits to be measured
    lost: set[str] = set()  # buffers that may be written at any time from now on
    done = 0
    for launch, following in pairwise(located.launches):
        values = passed.get(launch.index, ())
        waiting |= {argument.buffer for argument in values}
        start, end = launch.insertion_point.end, following.insertion_point.end
        freed = releases.buffers(start, end, owners)
        used = uses.buffers(start, end, owners)
        lost |= lasting.buffers(done, end, owners)
        done = end
        if (
            values
            and passed.get(following.index)
            and _follows(launch, following)
            and len(waiting) <= _MOST
            and waiting <= kept
            and not waiting & freed
            and "" not in used
            and not _may_overlap(waiting, used | lost | _written(following, made), shared)
        ):
            result.add(launch.index)
        else:
            waiting.clear()
    return frozenset(result)


class _Lines:
    """Lines that do something to buffers, by their offsets."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self._lines = sorted(lines)
        self._starts = [start for start, _ in self._lines]

    def buffers(self, start: int, end: int, owners: Mapping[str, str]) -> set[str]:
        """The owners of the memory that the lines from `start` to before `end` name."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return {owners.get(buffer, buffer) for _, buffer in self._lines[first:last]}


def _owners(located: Located) -> dict[str, str]:
    """For each variable, the one that owns its memory."""
    owners = {
        argument.name.partition(".")[0]: argument.buffer
        for launch in located.launches
        for argument in launch.args
    }
    for event in located.memory:
        if event.action == "reuse":
            owners.setdefault(event.buffer, owners.get(event.of, event.of))
    return owners


def _follows(launch: Launch, following: Launch) -> bool:
    """Whether `following` always runs right after `launch`, on the same stream."""
    return not any(x.repeats or x.conditional or x.stream for x in (launch, following))


def _made(located: Located) -> tuple[dict[int, set[str]], dict[str, set[str]]]:
    """The results that calls allocate themselves: those that each launch makes, by its index, and
    for each result the buffers that it may be a view of.

    A result may be a view of the arguments of its call, as for `aten.view_as_real`; results of
    `extern_kernels` are new. A launch that writes to a result under another name, which took over
    its memory, does not make the result.
    """
    allocated = {event.buffer for event in located.memory if event.action != "release"}
    made: dict[int, set[str]] = {}
    shared: dict[str, set[str]] = {}
    for launch in located.launches:
        tensors = launch.tensors
        outs = [x for x in tensors if x.role == "out" and x.name.partition(".")[0] == x.buffer]
        results = {x.buffer for x in outs} - allocated
        is_new = launch.kind == "extern_alloc"
        given = set[str]() if is_new else {x.buffer for x in tensors} - results
        made[launch.index] = results - shared.keys()
        for result in results:
            shared[result] = shared.get(result, set()) | given
    return made, shared


def _may_overlap(one: set[str], other: set[str], shared: Mapping[str, set[str]]) -> bool:
    """Whether two sets of buffers may share memory, also through views of views."""
    if not other:
        return False
    reached = [_with(buffers, shared) for buffers in (one, other)]
    return any(len(x) > _MOST_SHARED for x in reached) or not reached[0].isdisjoint(reached[1])


def _with(buffers: set[str], shared: Mapping[str, set[str]]) -> set[str]:
    """These buffers and all that they may be views of; the search ends above `_MOST_SHARED`."""
    found, new = set(buffers), list(buffers)
    while new and len(found) <= _MOST_SHARED:
        more = shared.get(new.pop(), set()) - found
        found |= more
        new += more
    return found


def _written(launch: Launch, made: Mapping[int, set[str]]) -> set[str]:
    """The buffers that a launch writes, except for results that it makes."""
    return {
        argument.buffer
        for argument in launch.args
        if matching.may_be_written(launch, argument)
        and not (argument.role == "out" and argument.buffer in made[launch.index])
    }
