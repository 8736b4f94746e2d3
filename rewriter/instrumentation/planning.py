"""Turns launches and probes into insertions. Values in, values out; nothing is edited here."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rewriter.core.source import Source
from rewriter.core.types import Format, Json, Phase, Which
from rewriter.instrumentation import choosing, probes
from rewriter.instrumentation.dialect import Dialect, expression
from rewriter.instrumentation.ends import Recorded, ends
from rewriter.instrumentation.lines import Lines
from rewriter.instrumentation.memory_waits import waiting
from rewriter.instrumentation.options_line import OptionsRecord, operators_hash
from rewriter.instrumentation.together import together
from rewriter.instrumentation.types import Plan, Selection, Skipped
from rewriter.locate.guards import NO_GUARDS, Guards
from rewriter.locate.inputs import row as table_row
from rewriter.locate.types import (
    Argument,
    EntryPoint,
    InputSpec,
    Launch,
    Located,
    MemoryEvent,
)
from rewriter.version import __version__


def plan_probes(
    source: Source,
    located: Located,
    selection: Selection,
    dialect: Dialect,
    operators: Sequence[Json] = (),
    *,
    label: str = "",
    key: str = "",
    guards: Guards = NO_GUARDS,
) -> Plan:
    """Plan the lines that instrumenting `source` puts in; `label` names it among others in prints.

    One short line goes before and after each chosen launch, as its probes ask for, one at the
    start of a call, one where the inputs of a call have names, and a header with the runtime and
    the facts of every probed launch. `operators` are what lay beside the source; the header has
    their hash. `key` is what torch called the file, of a text in a container. `guards` are checked
    with the inputs.
    """
    lines = Lines(source, dialect, is_dormant=selection.dormant)
    chosen = choosing.choose(located.launches, selection)
    inputs = _plan_entries(lines, located, selection)
    memory = _plan_memory(lines, located.memory, selection)
    launches = _plan_launches(lines, located, chosen, selection, inputs)
    waits = waiting(source.data, lines.of_memory(), dialect)
    memory = _marked(memory, "event", "waits", {line.event for line in waits})
    facts = _marked(launches.facts, "launch", "memory_waits", {line.launch for line in waits})
    phases = probes.phases(selection)
    if phases and chosen and not (launches.probed or launches.skipped or inputs.names):
        raise choosing.no_value(chosen, selection)
    name, operators_digest = Path(source.name).name, operators_hash(operators)
    checked = guards.rows if inputs.checks and inputs.names else ()
    record = OptionsRecord(name, dialect.packer, operators_digest, label, key, "; ".join(checked))
    sha256 = hashlib.sha256(source.data).hexdigest()
    options = _options(record, sha256, located, selection, inputs, memory)
    lines.header(located.header, selection, record, options, facts, inputs.names)
    every_input = (name for entry in located.entries for name in entry.inputs)
    return Plan(
        lines.insertions(),
        launches.probed if phases or "launch" in probes.memory(selection) else (),
        launches.skipped,
        located.unrecognised,
        choosing.unmatched(located.launches, selection, every_input),
        _unchecked(located, inputs.names, guards) if inputs.checks else (),
        lines.handed,
    )


def _marked(
    rows: Sequence[Json], key: str, mark: str, which: Container[int | None]
) -> tuple[Json, ...]:
    """The rows of a table, of which those with one of these under `key` have the mark."""
    return tuple({**row, mark: True} if row[key] in which else row for row in rows)


class _NoLines:
    """Takes the place of `Lines` where there is no source, and the table alone is made."""

    needs_releases = False

    def begin(self, entry: EntryPoint, *, checks: bool) -> None:
        pass

    def inputs(self, entry: EntryPoint, names: Sequence[str], at: int) -> None:
        pass

    def around(self, launch: Launch, phase: Phase, arguments: tuple[Argument, ...]) -> None:
        pass

    def checked(self, launch: Launch) -> None:
        pass

    def memory(self, event: MemoryEvent) -> None:
        pass


def plan_table(name: str, sha256: str, located: Located, selection: Selection) -> Json:
    """The table alone that instrumenting gives a wrapper: `options`, `launches` and `inputs`."""
    lines = _NoLines()
    chosen = choosing.choose(located.launches, selection)
    inputs = _plan_entries(lines, located, selection)
    launches = _plan_launches(lines, located, chosen, selection, inputs)
    record = OptionsRecord(name)
    memory = _plan_memory(lines, located.memory, selection)
    options = _options(record, sha256, located, selection, inputs, memory)
    return {"options": options, "launches": list(launches.facts), "inputs": list(inputs.names)}


@dataclass(frozen=True)
class _Inputs:
    """The inputs that each call hands over at its start; no names if it hands over none.

    `reads` tells whether probes read their values, `checks` whether they are held against `specs`.
    """

    reads: bool
    checks: bool
    names: tuple[str, ...] = ()
    specs: tuple[InputSpec, ...] = ()


@dataclass(frozen=True)
class _Launches:
    """The launches that get lines, with their rows in the header's table, and those that do not."""

    probed: tuple[Launch, ...]
    skipped: tuple[Skipped, ...]
    facts: tuple[Json, ...]


def _plan_entries(lines: Lines | _NoLines, located: Located, selection: Selection) -> _Inputs:
    """Add the lines at the start of each entry, and where its inputs have names."""
    checks = probes.checks_inputs(selection)
    reads = choosing.asks_for_inputs(selection) and probes.reads_inputs(selection)
    if checks and selection.tensors is not None:
        reads = False  # all of them are handed over to be checked
    inputs = _Inputs(reads, checks)
    has_weights = probes.which(selection) == "ends" and not checks
    for entry in located.entries:
        received, at = entry.inputs, entry.inputs_at
        if has_weights and entry.weights_at is not None:
            received, at = (*entry.inputs, *entry.weights), entry.weights_at
        names = received if checks else choosing.named_inputs(received, selection)
        given = bool(names) and at is not None and (reads or checks)
        lines.begin(entry, checks=given and checks)
        # There is one table of inputs: a second entry is served if it has the same.
        if given and names == (inputs.names or names):
            inputs = replace(inputs, names=names, specs=entry.input_specs)
            lines.inputs(entry, names, at or 0)
    return inputs


def _plan_memory(
    lines: Lines | _NoLines, events: Sequence[MemoryEvent], selection: Selection
) -> tuple[Json, ...]:
    """Add the lines where memory comes from or goes to, as probes need them; the rows of those, and
    of the lines that cannot be put in.

    What a reuse took over is only of interest where nothing reads it any more.
    """
    wanted = probes.memory(selection)
    if "allocate" in wanted and lines.needs_releases:
        wanted |= {"release"}
    rows: list[Json] = []
    for event in events:
        if event.action not in wanted or (event.action == "reuse" and not event.is_dead):
            continue
        obstacle = event.insertion_point.obstacle
        if not obstacle:
            lines.memory(event)
        row: Json = {"event": event.index, "action": event.action, "buffer": event.buffer}
        row |= {"of": event.of} if event.of else {}
        row |= {"held": True} if event.is_held else {}
        row |= {"obstacle": obstacle} if obstacle else {}
        rows.append({**row, "scope": event.scope, "line": event.line})
    return tuple(rows)


def _not_yet_shown(
    located: Located, chosen: Sequence[Launch], inputs: _Inputs
) -> dict[int, frozenset[str]]:
    """What launches read that is shown nowhere else, by their indices."""
    probed = [x for x in chosen if not x.insertion_point.obstacle and not x.is_last]
    return choosing.not_yet_shown(located.launches, probed, _shown_inputs(located, inputs))


def _shown_inputs(located: Located, inputs: _Inputs) -> dict[str, set[str]]:
    """The inputs that are shown at the start of a call, by scope."""
    names = set(inputs.names) if inputs.reads else set()
    return {one.name: names & {*one.inputs, *one.weights} for one in located.entries}


def _ends(
    located: Located, chosen: Sequence[Launch], inputs: _Inputs, selection: Selection
) -> dict[int, Recorded]:
    """What `--args ends` records besides what launches write, if that is asked for."""
    if probes.which(selection) != "ends":
        return {}
    probed = {launch.index for launch in chosen if not launch.insertion_point.obstacle}
    watched = selection.tensors or ()
    return ends(located, probed, _shown_inputs(located, inputs), watched)


def _plan_launches(
    lines: Lines | _NoLines,
    located: Located,
    chosen: Sequence[Launch],
    selection: Selection,
    inputs: _Inputs,
) -> _Launches:
    """Add the lines around each chosen launch."""
    phases = probes.phases(selection)
    unseen = _not_yet_shown(located, chosen, inputs)
    recorded = _ends(located, chosen, inputs, selection)
    checked = "launch" in probes.memory(selection)
    probed: list[Launch] = []
    skipped: list[Skipped] = []
    facts: list[Json] = []
    handed: dict[int, tuple[Argument, ...]] = {}
    for launch in chosen:
        point = launch.insertion_point
        if point.obstacle:
            skipped.append(Skipped(launch, point.obstacle))
            continue
        if launch.is_last and ("after" in phases or checked):
            skipped.append(Skipped(launch, f"no line can follow it: {point.open_ended}"))
        more = recorded.get(launch.index, {})
        values = _values(launch, phases, selection, unseen[launch.index], more)
        if phases and not values and not checked:
            continue
        for phase, arguments in values.items():
            lines.around(launch, phase, arguments)
        handed[launch.index] = tuple(x for x in values.get("after", ()) if x.type == "tensor")
        if checked and not launch.is_last:
            lines.checked(launch)
        facts.append(_facts(launch, values, reads=any(phases.values())))
        probed.append(launch)
    # `ends` finds launches that change what they are not given: so nothing waits for the next one.
    can_wait = probes.which(selection) != "ends"
    waiting = together(located, handed) if can_wait else frozenset[int]()
    for row in facts:
        if row["launch"] in waiting:
            row["together"] = True
    return _Launches(tuple(probed), tuple(skipped), tuple(facts))


def _unchecked(located: Located, inputs: tuple[str, ...], guards: Guards) -> tuple[str, ...]:
    """Why the inputs of an entry are not handed over, and which guards are not checked."""
    if not any(entry.inputs for entry in located.entries):
        return ("no entry gives names to any",)
    reasons = (
        f"no line can be put behind those of {entry.name}"
        if entry.inputs_at is None
        else f"those of {entry.name} are not those of the entry before it"
        for entry in located.entries
        if entry.inputs and (entry.inputs_at is None or entry.inputs != inputs)
    )
    unread = (f"a guard is no arithmetic of sizes: {text}" for text in guards.unread)
    return (*reasons, *unread)


def _values(
    launch: Launch,
    phases: dict[Phase, bool],
    selection: Selection,
    unseen: frozenset[str],
    more: Recorded,
) -> dict[Phase, tuple[Argument, ...]]:
    """What each phase of a launch reads, each value once.

    `unseen` are the expressions that the launch reads and that are shown nowhere else, `more` what
    `--args ends` adds. A phase without values because of what the user chose has a line only if a
    probe needs one.
    """
    which = probes.which(selection)
    chooses = selection.roles is not None or selection.tensors is not None
    needed = probes.needed(selection)
    result: dict[Phase, tuple[Argument, ...]] = {}
    for phase, reads in phases.items():
        if phase == "after" and launch.is_last:
            continue
        readable = (
            argument
            for argument in launch.args
            if reads
            and _is_read(argument, phase, selection.format)
            and _is_shown(which, launch, argument, phase, unseen)
            and choosing.is_asked(argument, phase, selection)
        )
        added = more.get(phase, {}) if reads else {}
        asked = {x: y for x, y in added.items() if choosing.is_asked(y, phase, selection)}
        values = tuple(({argument.expr: argument for argument in readable} | asked).values())
        # With `ends`, a line without values behind a launch says at least that the launch ran.
        is_bare = phase == "after" if which == "ends" else not chooses
        if values or phase in needed or is_bare:
            result[phase] = values
    return result


def _is_shown(
    which: Which, launch: Launch, argument: Argument, phase: Phase, unseen: frozenset[str]
) -> bool:
    """Whether `which` arguments of launches has this one."""
    if which == "all":
        return True
    if choosing.may_be_written(launch, argument):
        return which == "written" or phase == "after"
    return which == "written" and phase == "after" and argument.expr in unseen


def _is_read(argument: Argument, phase: Phase, style: Format) -> bool:
    """A pure output has no value before; a literal is in the source, but upstream prints it."""
    if argument.type == "other" or (phase == "before" and argument.role == "out"):
        return False
    if not expression(argument, phase):
        return False
    return argument.type == "tensor" or bool(argument.buffer) or style == "upstream"


def _facts(launch: Launch, values: dict[Phase, tuple[Argument, ...]], *, reads: bool) -> Json:
    """The row of a launch in the wrapper's table: what is known of it without running it.

    With `reads`, what it is given and no line hands over is named: data flow tells its value.
    """
    given = _left_out(launch, values) if reads else ()
    row: Json = {
        "launch": launch.index,
        "kernel": launch.kernel,
        "kind": launch.kind,
        "scope": launch.scope,
        "line": launch.line,
        "source_nodes": list(launch.source_nodes),
        "origins": list(launch.origins),
        "repeats": launch.repeats,
    }
    known = (*chain.from_iterable(values.values()), *given)
    memory = {a.name: a.buffer for a in known if _is_alias(a)}
    if memory:
        row["buffers"] = memory
    for phase, arguments in values.items():
        row[phase] = list(map(_label, arguments))
    if given:
        row["reads"] = list(map(_label, given))
    return row


def _label(argument: Argument) -> list[str]:
    named = [argument.role, argument.name]
    return named if argument.name == argument.expr else [*named, argument.expr]


def _left_out(launch: Launch, values: dict[Phase, tuple[Argument, ...]]) -> tuple[Argument, ...]:
    """The tensors that a launch is given and that no line of its hands over as they were then."""
    shown = {a.expr for a in values.get("before", ())}
    shown |= {a.expr for a in values.get("after", ()) if a.role == "in"}
    given = (a for a in launch.args if a.type == "tensor" and a.role != "out")
    return tuple({a.expr: a for a in given if a.expr not in shown}.values())


def _is_alias(argument: Argument) -> bool:
    """Whether an argument has its memory under another name: data flow goes by that."""
    return argument.type == "tensor" and argument.name.partition(".")[0] != argument.buffer


def _options(
    record: OptionsRecord,
    sha256: str,
    located: Located,
    selection: Selection,
    inputs: _Inputs,
    memory: Sequence[Json],
) -> Json:
    """What the table of a wrapper says of its probes; `memory` are the rows of lines for memory."""
    rows: Json = {"memory": list(memory)} if probes.memory(selection) else {}
    checks = _checks(inputs, record) if inputs.checks else {}
    options: Json = {
        "artifact": record.artifact,
        "sha256": sha256,
        "version": __version__,
        "probes": list(selection.probes),
        "when": selection.when,
        "format": selection.format,
        "values": selection.values,
        "label": record.label,
        "calls": selection.calls,
        "last": selection.last,
        "args": probes.which(selection),
        "recheck": selection.recheck,
        "max_bytes": selection.max_bytes,
        "allow": list(selection.allow),
        "stop": selection.stop,
        **({"dormant": True} if selection.dormant else {}),
        **({"on": list(selection.on)} if selection.on else {}),
        "outputs": {entry.name: list(entry.outputs) for entry in located.entries},
    }
    return rows | options | checks


def _checks(inputs: _Inputs, record: OptionsRecord) -> Json:
    conditions = record.guards.split("; ") if record.guards else ()
    rows = [*map(table_row, inputs.specs), *(f"if {one}" for one in conditions)]
    return {"expected": rows, "reads_inputs": inputs.reads}
