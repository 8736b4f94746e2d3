"""Faults in indexing: masks, strides, offsets, bounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from benchmarks.faults.kinds.base import Change, KernelKind, line_of, simply
from benchmarks.faults.source import Edit, Target

_LOOP = (
    r"for\(int64_t (?P<x>x\d+)=static_cast<int64_t>\((?P<from>0)L\); "
    r"(?P=x)<static_cast<int64_t>\((?P<to>\d+)L\); (?P=x)\+=static_cast<int64_t>\((?P<by>\d+)L\)\)"
)


def _less(digits: str, least: int = 2) -> str | None:
    """The number minus one; None if the number is less than `least`."""
    return str(int(digits) - 1) if int(digits) >= least else None


class WrongMask(KernelKind):
    """The first or last elements are skipped, a mask is dropped, or a comparison is off by one."""

    name = "wrong mask"
    cpp = (
        # The number of elements of a partial vector; a full one has no such argument.
        (
            re.compile(r"(?:loadu|store)\(.*, static_cast<int64_t>\((\d+)L\)\);"),
            simply(lambda m: _less(m[1])),
        ),
        (re.compile(_LOOP), simply(lambda m: _less(m["to"]) if m["by"] == "1" else None, 3)),
        (
            re.compile(_LOOP),
            simply(
                lambda m: m["by"] if int(m["by"]) < int(m["to"]) and m["by"] != "1" else None, 2
            ),
        ),
        (re.compile(r"auto tmp\d+ = tmp\d+ (<|>=|>|<=) tmp\d+;"), simply(lambda m: _EDGE[m[1]])),
        (re.compile(r"auto tmp\d+ = (tmp\d+ \? (tmp\d+) : tmp\d+);"), simply(lambda m: m[2])),
    )
    triton = (
        (
            re.compile(r"^ +[xyz]mask = \w+index < ([xyz]numel)$", re.M),
            simply(lambda m: f"{m[1]} - 1"),
        ),
        (
            re.compile(r"^ +([xyz])mask = (\w+index < [xyz]numel)$", re.M),
            simply(lambda m: f"({m[2]}) | True", 2),
        ),
        (
            re.compile(r"^ +tmp\d+ = tmp\d+ (<|>=|>|<=) tmp\d+$", re.M),
            simply(lambda m: _EDGE[m[1]]),
        ),
        (re.compile(r"= (tl\.where\(tmp\d+, (tmp\d+), tmp\d+\))$", re.M), simply(lambda m: m[2])),
    )


_EDGE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


class DroppedTail(KernelKind):
    """A reduction ends before its last terms."""

    name = "dropped reduction tail"
    cpp = (
        (
            re.compile(
                r"tmp_acc\d+\w* = [^;]*;\s+(?:\w+ \w+ = [^;]*;\s+)*(?:#pragma[^\n]*\s+)*" + _LOOP
            ),
            simply(lambda m: _without_tail(int(m["to"]), int(m["by"])), 3),
        ),
    )
    triton = (
        (
            re.compile(r"for r\d_offset in (?:tl\.)?range\(0, (r\d_numel), R\d_BLOCK\)"),
            simply(lambda m: f"{m[1]} - 1"),
        ),
        (
            re.compile(r"^ +r\d_mask = r\d_index < (r\d_numel)$", re.M),
            simply(lambda m: f"{m[1]} - 1"),
        ),
        (
            re.compile(r"= tl\.sum\((tmp\d+), 1\)"),
            simply(lambda m: f"tl.where(r0_index < r0_numel - 1, {m[1]}, 0)"),
        ),
    )


def _without_tail(to: int, by: int) -> str | None:
    shorter = to - (to % by or by)
    return str(shorter) if shorter > 0 else None


class WrongStride(KernelKind):
    """A kernel indexes rows that are one element too short, or a view gets contiguous strides."""

    name = "wrong stride"
    cpp = (
        (
            re.compile(
                r"\bin\w*_ptr\d+(?: \+ |\[)static_cast<int64_t>\([^()\n]*?\b(\d+)L\*x\d+[^()\n]*\)"
            ),
            simply(lambda m: _less(m[1])),
        ),
    )
    triton = (
        (
            re.compile(r"tl\.load\(in\w*_ptr\d+ \+ \([^,\n]*?\b(\d+)\*[xyr]\w*[^,\n]*\)"),
            simply(lambda m: _less(m[1])),
        ),
        (re.compile(r"^ +[xy]\d+ = \(?[xy]index % (\d+)\)?", re.M), simply(lambda m: _less(m[1]))),
    )

    def changes(self, target: Target) -> Iterator[Change]:
        yield from super().changes(target)
        start, text = line_of(target.source, target.launch)
        for match in re.finditer(r"reinterpret_tensor\(\w+, (\(.*?\)), (\(.*?\)), \d+\)", text):
            new = _other_strides(match[1], match[2])
            if new is not None:
                edit = Edit(start + match.start(2), start + match.end(2), new)
                what = f"{target.launch.kernel}: strides {match[2]} of a view are {new}"
                yield Change(what, (edit,), (target.launch.index,))


def _other_strides(size: str, stride: str) -> str | None:
    """Contiguous strides for a view that covers all of its memory in another order; else None."""
    try:
        sizes, strides = ast.literal_eval(size), ast.literal_eval(stride)
    except (ValueError, SyntaxError):
        return None
    dense, step = [], 1
    for one in reversed(sizes):
        dense.insert(0, step)
        step *= one
    reach = sum((one - 1) * by for one, by in zip(sizes, strides, strict=True))
    if len(sizes) < 2 or reach != step - 1 or list(strides) == dense:
        return None
    return f"({', '.join(map(str, dense))})"


class WrongOffset(KernelKind):
    """A kernel reads one element too far, or a view with an offset begins at 0."""

    name = "wrong offset"
    cpp = (
        (
            re.compile(r"\bin\w*_ptr\d+(?: \+ |\[)static_cast<int64_t>\(([^()\n]*)\)"),
            simply(lambda m: f"{m[1]} + 1L"),
        ),
    )
    triton = (
        (re.compile(r"tl\.load\(in\w*_ptr\d+ \+ \(([^,\n]*)\)"), simply(lambda m: f"{m[1]} + 1")),
    )

    def changes(self, target: Target) -> Iterator[Change]:
        yield from super().changes(target)
        start, text = line_of(target.source, target.launch)
        pattern = r"reinterpret_tensor(?:_wrapper)?\([^()]*(?:\([^()]*\)[^()]*)*, ([1-9]\d*)(L?)\)"
        for match in re.finditer(pattern, text):
            edit = Edit(start + match.start(1), start + match.end(1), "0")
            what = f"{target.launch.kernel}: a view begins at 0, not at {match[1]}"
            yield Change(what, (edit,), (target.launch.index,))


class OutOfBoundsStore(KernelKind):
    """Results are written 16 elements too far: the last ones land behind the end of the buffer."""

    name = "out-of-bounds store"
    cpp = (
        (
            re.compile(r"\.store\((?:in_)?out_ptr\d+ \+ static_cast<int64_t>\(([^()\n]*)\)"),
            simply(lambda m: f"{m[1]} + 16L"),
        ),
        (
            re.compile(r"^ +(?:in_)?out_ptr\d+\[static_cast<int64_t>\(([^()\n]*)\)\] = ", re.M),
            simply(lambda m: f"{m[1]} + 16L"),
        ),
    )
    triton = (
        (
            re.compile(r"tl\.store\((?:in_)?out_ptr\d+ \+ \(([^,\n]*)\)"),
            simply(lambda m: f"{m[1]} + 16"),
        ),
    )


class UninitialisedRead(KernelKind):
    """A result is not stored, so its readers read uninitialised memory."""

    name = "uninitialised read"
    cpp = (
        (re.compile(r"^ +(tmp\d+\.store\(out_ptr\d+ .*\);)$", re.M), simply(lambda m: ";")),
        (re.compile(r"^ +(out_ptr\d+\[.*\] = .*;)$", re.M), simply(lambda m: ";")),
    )
    triton = ((re.compile(r"^ +(tl\.store\(out_ptr\d+ .*\))$", re.M), simply(lambda m: "pass")),)
