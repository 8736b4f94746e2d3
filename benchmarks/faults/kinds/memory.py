"""Faults in the wrapper: memory reused or freed too early, launches out of order or missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.faults.kinds.base import Change, Kind, line_of
from benchmarks.faults.source import Edit, Source, Target
from rewriter.locate.types import Launch

_RUNS = ("cpp", "triton", "extern_out")  # kinds that write into arguments and return nothing


def _written(launch: Launch) -> set[str]:
    return {one.buffer for one in launch.args if one.role in ("out", "inout") and one.buffer}


def _read(launch: Launch) -> set[str]:
    return {one.buffer for one in launch.args if one.role in ("in", "inout") and one.buffer}


def _same_scope(source: Source, launch: Launch) -> list[Launch]:
    return [one for one in source.launches if one.scope == launch.scope and not one.repeats]


class StaleReuse(Kind):
    """A buffer takes over the memory of another one that is still read later."""

    name = "stale reuse"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        launches = _same_scope(source, launch)
        for arg in launch.args:
            if arg.role != "out" or arg.name not in source.layouts or arg.name != arg.expr:
                continue
            for old, layout in source.layouts.items():
                if old == arg.name or layout != source.layouts[arg.name]:
                    continue
                before = [x for x in launches if x.index < launch.index and old in _named(x, "out")]
                after = [x for x in launches if x.index >= launch.index and old in _named(x, "in")]
                if before and after and (edit := _alias(source, arg.name, old)):
                    what = f"{arg.name} has the memory of {old}, which #{after[-1].index} reads"
                    culprits = tuple(dict.fromkeys([launch.index, *(x.index for x in after)]))
                    outputs = tuple({old} & source.returned)
                    yield Change(what, (edit,), culprits, (arg.name, old), outputs=outputs)


def _named(launch: Launch, role: str) -> set[str]:
    """The names of arguments of a role as they stand in the text, not the buffers behind them."""
    return {one.name for one in launch.args if role in one.role}


def _alias(source: Source, name: str, old: str) -> Edit | None:
    """The edit that gives `name` the memory of `old`; None if `old` is not allocated before it."""
    if source.is_cpp:
        new, there = rf"aoti_torch_empty_strided\([^;]*&{name}_handle\)", f"{old}_handle)"
        text = f"aoti_torch_new_tensor_handle({old}, &{name}_handle)"
    else:
        new, there = rf"(?m)^ *{name} = empty_strided_\w+\(.*\)$", f"{old} = "
        text = f"{name} = {old}"
    match = re.search(new, source.text)
    if match is None or not 0 <= source.text.find(there) < match.start():
        return None
    indent = re.match(r" *", match[0])
    return Edit(match.start(), match.end(), (indent[0] if indent else "") + text)


class EarlyFree(Kind):
    """The memory of a buffer is freed before a launch that reads it."""

    name = "early free"

    def changes(self, target: Target) -> Iterator[Change]:
        launch, source = target.launch, target.source
        if launch.repeats:
            return
        indent = launch.insertion_point.indent.decode()
        start, _ = source.statement(launch)
        for name in sorted(_named(launch, "in")):
            if not re.fullmatch(r"buf\d+", name):
                continue
            free = f"{name}.reset();" if source.is_cpp else f"{name}.untyped_storage().resize_(0)"
            what = f"{name} is released before #{launch.index} {launch.kernel} reads it"
            yield Change(what, (Edit(start, start, f"{indent}{free}\n"),), (launch.index,), (name,))


class MissingLaunch(Kind):
    """A launch is removed."""

    name = "missing launch"

    def changes(self, target: Target) -> Iterator[Change]:
        launch, source = target.launch, target.source
        if launch.kind not in _RUNS or launch.repeats or launch.insertion_point.obstacle:
            return
        start, end = source.statement(launch)
        edits = [Edit(start, end, ""), *(Edit(a, b, "") for a, b in _comments(source, start))]
        order = tuple(one.index for one in source.launches if one is not launch)
        later = [one for one in _same_scope(source, launch) if one.index > launch.index]
        readers = []
        for buffer in _written(launch):
            for one in later:
                if buffer in _read(one):
                    readers.append(order.index(one.index))
                if buffer in _written(one):
                    break
        what = f"#{launch.index} {launch.kernel} is not launched"
        names = tuple(sorted(_named(launch, "out") | _written(launch)))
        outputs = () if readers else tuple(sorted(_named(launch, "out")))
        yield Change(what, tuple(edits), tuple(sorted(set(readers))), names, order, outputs)


class ReorderedLaunches(Kind):
    """A launch runs after the one that reads its result."""

    name = "reordered launches"

    def changes(self, target: Target) -> Iterator[Change]:
        launch, source = target.launch, target.source
        following = [x for x in _same_scope(source, launch) if x.index == launch.index + 1]
        if launch.kind not in _RUNS or launch.repeats or not following:
            return
        (second,) = following
        if second.kind not in _RUNS or not _written(launch) & _read(second):
            return
        start, text = line_of(source, launch)
        end, after = start + len(text), source.statement(second)[1]
        moved = [Edit(start, end, ""), *(Edit(a, b, "") for a, b in _comments(source, start))]
        block = "".join(source.text[one.start : one.end] for one in reversed(moved))
        kept = self._between(source, end, source.statement(second)[0], block)
        if kept is None:
            return
        block, released = kept
        tail = "".join(source.text[one.start : one.end] for one in released)
        order = list(range(len(source.launches)))
        order[launch.index], order[second.index] = second.index, launch.index
        what = f"#{second.index} {second.kernel} runs before #{launch.index} {launch.kernel}"
        edits = (*moved, *released, Edit(after, after, block + tail))
        names = tuple(sorted(_named(launch, "out")))
        yield Change(what, edits, (launch.index, second.index), names, tuple(order))

    def _between(
        self, source: Source, start: int, end: int, block: str
    ) -> tuple[str, list[Edit]] | None:
        """Prepare moving the text `block` behind the lines between two offsets.

        Returns the text with names as they are after these lines, and edits that remove lines
        which free its buffers, so that they can follow it. None if it cannot be moved.
        """
        released = []
        for match in re.finditer(r"(?m)^ *(.*)\n", source.text[start:end]):
            line = match[1]
            used = set(re.findall(r"\b(?:buf|arg)\w+\b", block)) & set(
                re.findall(r"\b(?:buf|arg)\w+\b", line)
            )
            if not used or line.startswith(("#", "//", "assert_")):
                continue
            renamed = re.fullmatch(
                r"(?:auto )?(\w+) = (?:std::move\((\w+)\);  // reuse|(\w+); del \3  # reuse)", line
            )
            if renamed:
                old = renamed[2] or renamed[3]
                block = re.sub(rf"\b{old}\b", renamed[1], block)
            elif re.fullmatch(r"del \w+|\w+\.reset\(\);", line):
                at = start + match.start()
                released.append(Edit(at, at + len(match[0]), ""))
            else:
                return None
        return block, released


def _comments(source: Source, start: int) -> list[tuple[int, int]]:
    """The spans of the comments above a launch that belong to it, the nearest first."""
    found, at = [], start
    while at > 0:
        begin = source.text.rfind("\n", 0, at - 1) + 1
        line = source.text[begin:at].strip()
        if line.startswith(("#", "//")):
            found.append((begin, at))
        elif not line.startswith(("static constexpr", "stream")):
            break
        at = begin
    return found
