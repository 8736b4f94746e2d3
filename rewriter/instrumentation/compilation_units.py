"""What is compiled for a C++ wrapper with probes, in parts that change as seldom as they can.

The text of an instrumented wrapper is one file that compiles by itself. A package is built from
three: the wrapper with the lines of probes, the table of what is known of its launches, and the
bodies of the runtime. The first takes the time. So it has the lines of every launch, before and
after, with all values; picks in the table say which of them count, and the others cost one
comparison. Then the wrapper is the same for all selections, but for those that have probes of
memory, whose lines take the place of statements. The runtime is the same for all packages. So
another patch of one package compiles the table alone, as the others are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewriter.artifact.types import OpenWrapper
from rewriter.core import edit
from rewriter.core.edit import Insertion
from rewriter.instrumentation import bundle
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.planning import plan_probes
from rewriter.instrumentation.probes import memory_actions, registry
from rewriter.instrumentation.types import INPUTS, Instrumented, LineKey, Plan, Selection

# What the wrapper is compiled with.
DEFINES = ("-DINDUCTOR_REWRITER_APART",)

_HANDS_OVER = re.compile(
    rb"^(?P<indent>\s*)(?P<variable>_rw_*)\.(?P<phase>inputs|before|after)\((?P<launch>\d*)"
)
_WRAPPER = "Wrapper wrapper("


@dataclass(frozen=True)
class CompilationUnits:
    """Sources of one library: `wrapper` is compiled with DEFINES, the others say so themselves."""

    wrapper: bytes
    table: str
    runtime: str


def plan_everything(wrapper: OpenWrapper, selection: Selection) -> Plan | None:
    """The plan that has all lines of a selection, and of any other of its format.

    None where there is no such plan: probes of memory.
    """
    if memory_actions(selection):
        return None
    every = Selection(("print",), when="both", args="all", format=selection.format)
    dialect = dialect_of(wrapper, standalone=False)
    return plan_probes(wrapper.plain, wrapper.located, every, dialect)


def split(result: Instrumented, everything: Plan | None = None) -> CompilationUnits:
    """The compilation units of an instrumented file of C++.

    With the plan of everything, the wrapper has the lines of that, if those of `result` are among
    them.
    """
    selection = result.selection
    interface = bundle.interface(selection.format).encode()
    picks = None if everything is None else _picks(result.plan, everything)
    lines = everything.insertions if everything and picks else result.plan.insertions
    (header,) = (one for one in result.plan.insertions if one.origin == HEADER)
    return CompilationUnits(
        edit.apply(result.original, [_compiled(one, interface, bool(picks)) for one in lines]),
        bundle.table(_table(header.text.decode(), picks)),
        bundle.apart(_all_probes(selection.probes), selection.format, is_dormant=selection.dormant),
    )


def _compiled(line: Insertion, interface: bytes, is_picked: bool) -> Insertion:
    """A line as the compiler gets it: one that may not count asks first."""
    if line.origin == HEADER:
        return replace(line, text=interface)
    match = _HANDS_OVER.match(line.text) if is_picked else None
    if match is None:
        return line
    asks = b"if (%(variable)b.asks_%(phase)b(%(launch)b)) " % {
        name.encode(): value for name, value in match.groupdict().items()
    }
    start = match.end("indent")
    return replace(line, text=line.text[:start] + asks + line.text[start:])


def _table(header: str, picks: Sequence[str] | None) -> str:
    """The lines of the table in a header, with picks."""
    text = header[header.index("\n".join(bundle.TABLE_BEGIN)) :]
    if picks is None:
        return text
    before, _, after = text.rpartition(_WRAPPER)
    arguments, end, rest = after.partition(");\n")
    rows = "".join(f"    {row},\n" for row in picks)
    return f"{before}const Pick picks[] = {{\n{rows}}};\n{_WRAPPER}{arguments}, picks{end}{rest}"


def _picks(plan: Plan, everything: Plan) -> list[str] | None:
    """The rows of picks, or None where lines of a plan are not among those of everything."""
    if not _places(plan) <= _places(everything):
        return None
    for origin in ("begin", "inputs"):
        places = _places(plan, origin)
        if places != _places(everything, origin) and (places or origin == "begin"):
            return None
    keys = [key for key in everything.handed if key != INPUTS]
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
    """Which of the values of a line are those of a plan; raises `ValueError` if one is not."""
    if key not in plan.handed:
        return "nullptr"
    return '"' + "".join(_marks(plan.handed[key], everything.handed[key])) + '"'


def _marks(wanted: Sequence[str], handed: Sequence[str]) -> Iterator[str]:
    left = list(wanted)
    for value in handed:
        is_wanted = bool(left) and left[0] == value
        yield "1" if is_wanted else "0"
        del left[:is_wanted]
    if left:
        raise ValueError(f"{left[0]} is not handed over")


def _places(plan: Plan, origin: str = "") -> set[tuple[int, str]]:
    """Where lines stand, and what they are for."""
    return {
        (one.offset, one.origin)
        for one in plan.insertions
        if one.origin != HEADER and origin in ("", one.origin)
    }


def _all_probes(names: Sequence[str]) -> list[str]:
    """These probes and all that are there beside them: with all of them one runtime is for all."""
    return sorted({*names, *filter(bundle.has, registry())})
