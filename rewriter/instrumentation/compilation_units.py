"""Splits an instrumented C++ wrapper into files, so that another patch compiles only a small one.

The text of an instrumented wrapper is one file, which needs the recorder's library. A package is
built from three files, and needs nothing else: the wrapper with the lines of probes, the table with
the facts of its launches, and the recorder. Compiling the wrapper takes most of the time. So it
gets the lines for every launch, before and after, with all values, and picks in the table say which
values are used; the others cost two small calls. With that, the wrapper is the same for all
selections, except those with memory probes, whose lines replace statements. The recorder is the
same for all packages. Another patch of a package therefore compiles only the table; the other two
files come from the build cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.artifact.types import Wrapper
from rewriter.core import edit
from rewriter.core.edit import Insertion
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.dialects.cpp import TABLE_BEGIN, TABLE_END
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.planning import plan_probes
from rewriter.instrumentation.probes import memory_actions
from rewriter.instrumentation.types import INPUTS, Instrumented, LineKey, Plan, Selection
from rewriter.runtime import bundle

# How the wrapper gets what is in the file with the table.
_NAMED = 'extern "C" __attribute__((visibility("hidden")))'
_DECLARED = f"""\
{_NAMED} Table inductor_rewriter_table;
{_NAMED} const Pick inductor_rewriter_picks[];
"""
_WRAPPER = "Table& wrapper = inductor_rewriter_table;\n"
_PROBE_CALL = re.compile(
    rb"^(?P<indent>\s*)(?P<call>(?P<variable>_rw_*)\.(?P<phase>inputs|before|after)"
    rb"\((?P<launch>\d*)[^\n]*;)(?P<mark>  //[^\n]*\n)$"
)


@dataclass(frozen=True)
class CompilationUnits:
    """The sources of one library."""

    wrapper: bytes
    table: str
    runtime: str


def plan_everything(wrapper: Wrapper, selection: Selection) -> Plan | None:
    """The plan with the lines of every selection of this format; `None` for memory probes."""
    if memory_actions(selection):
        return None
    every = Selection(("print",), when="both", args="all", format=selection.format)
    dialect = dialect_of(wrapper, standalone=False)
    return plan_probes(wrapper.plain, wrapper.located, every, dialect)


def split(result: Instrumented, everything: Plan | None = None) -> CompilationUnits:
    """The compilation units of an instrumented C++ wrapper.

    With the plan `everything`, the wrapper gets its lines, if they include those of `result`.
    """
    picks = None if everything is None else _picks(result.plan, everything)
    lines = everything.insertions if everything and picks else result.plan.insertions
    (header,) = (insertion for insertion in result.plan.insertions if insertion.origin == HEADER)
    begin, table = _parts(header.text.decode())
    named = f"{bundle.picks()}{bundle.BEGIN}\n{_DECLARED}{_WRAPPER}{bundle.END}\n"
    interface = (begin + named).encode()
    return CompilationUnits(
        edit.apply(result.original, [_compiled(line, interface, bool(picks)) for line in lines]),
        _table(table, picks),
        bundle.recorder(),
    )


def _compiled(line: Insertion, interface: bytes, is_picked: bool) -> Insertion:
    """A line as it is compiled: one that the table may switch off asks the table first."""
    if line.origin == HEADER:
        return replace(line, text=interface)
    match = _PROBE_CALL.match(line.text) if is_picked else None
    if match is None:
        return line
    text = (
        b"%(indent)bif (inductor_rewriter::inductor_rewriter_picks[%(pick)d].%(side)b) "
        b"INDUCTOR_REWRITER_LINE { %(call)b }();%(mark)b"
    )
    parts: dict[bytes, bytes | int] = {name.encode(): x for name, x in match.groupdict().items()}
    parts[b"side"] = b"after" if match["phase"] == b"after" else b"before"
    parts[b"pick"] = int(match["launch"]) + 1 if match["launch"] else 0
    return replace(line, text=text % parts)


def _parts(header: str) -> tuple[str, str]:
    """The interface in a header, closed, and the lines of its table."""
    begin, _, rest = header[header.index("#include") :].partition(TABLE_BEGIN)
    lines, end, last = rest.partition(f"\n{TABLE_END}")
    return f"{begin}{bundle.END}\n", f"{TABLE_BEGIN}{lines}{end}{last.partition(chr(10))[0]}\n"


def _table(lines: str, picks: Sequence[str] | None) -> str:
    """A file with the table, and with picks if there are any. It includes nothing, so it compiles
    fast."""
    rows = "".join(f"    {row},\n" for row in picks or ["{nullptr, nullptr}"])
    before, _, after = lines.rpartition(f"{TABLE_END}{{")
    table = after.removesuffix(", nullptr, nullptr};\n")
    used = "nullptr" if picks is None else "inductor_rewriter_picks"
    return (
        f"// The table of a wrapper.\n{bundle.picks()}{bundle.BEGIN}\n{bundle.declarations()}"
        f"{_DECLARED}const Pick inductor_rewriter_picks[] = {{\n{rows}}};\n{before}"
        f"Table inductor_rewriter_table{{{table}, {used}, nullptr}};\n{bundle.END}\n"
    )


def _picks(plan: Plan, everything: Plan) -> list[str] | None:
    """The rows of picks; `None` if `everything` lacks a line of the plan."""
    if not _places(plan) <= _places(everything):
        return None
    for origin in ("begin", "inputs"):
        places = _places(plan, origin)
        if places != _places(everything, origin) and (places or origin == "begin"):
            return None
    keys = [key for key in everything.passed if key != INPUTS]
    last = max((launch for launch, _ in keys), default=-1)
    try:
        rows = [(_pick(plan, everything, INPUTS), "nullptr")]
        rows += (
            (
                _pick(plan, everything, (launch, "before")),
                _pick(plan, everything, (launch, "after")),
            )
            for launch in range(last + 1)
        )
    except ValueError:
        return None
    return [f"{{{before}, {after}}}" for before, after in rows]


def _pick(plan: Plan, everything: Plan, key: LineKey) -> str:
    """Which values of a line a plan uses, as a string of 0 and 1. Raises `ValueError` if the line
    lacks one of them."""
    if key not in plan.passed:
        return "nullptr"
    return '"' + "".join(_marks(plan.passed[key], everything.passed[key])) + '"'


def _marks(wanted: Sequence[str], passed: Sequence[str]) -> Iterator[str]:
    left = list(wanted)
    for value in passed:
        is_wanted = bool(left) and left[0] == value
        yield "1" if is_wanted else "0"
        del left[:is_wanted]
    if left:
        raise ValueError(f"{left[0]} is not passed")


def _places(plan: Plan, origin: str = "") -> set[tuple[int, str]]:
    """The offsets and origins of a plan's lines."""
    return {
        (insertion.offset, insertion.origin)
        for insertion in plan.insertions
        if insertion.origin != HEADER and origin in ("", insertion.origin)
    }
