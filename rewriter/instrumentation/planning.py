"""Plans which lines to insert for a selection. Nothing is edited here."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.core.source import Source
from rewriter.core.types import ArgsMode, Format, Json, Phase
from rewriter.instrumentation import matching, probes, table
from rewriter.instrumentation.dialect import Dialect, expression
from rewriter.instrumentation.ends import Recorded, ends
from rewriter.instrumentation.lines import Lines
from rewriter.instrumentation.memory_waits import waiting
from rewriter.instrumentation.options_line import OptionsRecord, operators_hash
from rewriter.instrumentation.together import together
from rewriter.instrumentation.types import Plan, Selection, Skipped
from rewriter.locate.guards import NO_GUARDS, Guards
from rewriter.locate.types import (
    Argument,
    InputSpec,
    Launch,
    Located,
    MemoryEvent,
)


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
    """Plan the lines that instrumenting inserts into `source`.

    There is a short line before or after each chosen launch, as its probes need it, one at the
    start of a call, one where the inputs of a call have names, and a header with the runtime and
    the facts of every probed launch. `operators` are from the file beside the source; the header
    has their hash. `label` and `key` are those of `OptionsRecord`. `guards` are checked with the
    inputs.
    """
    lines = Lines(source, dialect, is_dormant=selection.dormant)
    chosen = matching.choose(located.launches, selection)
    inputs = _plan_entries(lines, located, selection)
    memory = _plan_memory(lines, located.memory, selection)
    launches = _plan_launches(lines, located, chosen, selection, inputs)
    waits = waiting(source.data, lines.of_memory(), dialect)
    memory = _flagged(memory, "event", "waits", {line.event for line in waits})
    rows = _flagged(launches.rows, "launch", "memory_waits", {line.launch for line in waits})
    phases = probes.phases(selection)
    if phases and chosen and not (launches.probed or launches.skipped or inputs.names):
        raise matching.no_value(chosen, selection)
    name, operators_digest = Path(source.name).name, operators_hash(operators)
    checked = guards.rows if inputs.checks and inputs.names else ()
    record = OptionsRecord(name, dialect.packer, operators_digest, label, key, "; ".join(checked))
    sha256 = hashlib.sha256(source.data).hexdigest()
    options = table.options(
        record,
        sha256,
        located,
        selection,
        memory=memory,
        inputs=table.expected_inputs(inputs.specs, record.guards, reads=inputs.reads)
        if inputs.checks
        else {},
    )
    lines.header(located.header, selection, record, options, rows, inputs.names)
    every_input = (name for entry in located.entries for name in entry.inputs)
    return Plan(
        lines.insertions(),
        launches.probed if phases or "launch" in probes.memory_actions(selection) else (),
        launches.skipped,
        located.unrecognised,
        matching.unmatched(located.launches, selection, every_input),
        _unchecked(located, inputs.names, guards) if inputs.checks else (),
        lines.passed,
    )


def _flagged(
    rows: Sequence[Json], key: str, flag: str, numbers: Container[int | None]
) -> tuple[Json, ...]:
    """The rows of a table, with a flag in those whose `key` is one of the numbers."""
    return tuple({**row, flag: True} if row[key] in numbers else row for row in rows)


@dataclass(frozen=True)
class _Inputs:
    """The inputs that each call passes to the probes at its start, if any.

    `reads` says whether probes read the values, `checks` whether `specs` are checked.
    """

    reads: bool
    checks: bool
    names: tuple[str, ...] = ()
    specs: tuple[InputSpec, ...] = ()


@dataclass(frozen=True)
class _Launches:
    """The launches that get lines, those that do not, and the rows for the table."""

    probed: tuple[Launch, ...]
    skipped: tuple[Skipped, ...]
    rows: tuple[Json, ...]


def _plan_entries(lines: Lines, located: Located, selection: Selection) -> _Inputs:
    """Add the lines at the start of each entry, and where its inputs have names."""
    checks = probes.checks_inputs(selection)
    reads = matching.asks_for_inputs(selection) and probes.reads_inputs(selection)
    if checks and selection.tensors is not None:
        reads = False  # all inputs are passed, to be checked, so the choice cannot be kept
    inputs = _Inputs(reads, checks)
    has_weights = probes.args_mode(selection) == "ends" and not checks
    for entry in located.entries:
        received, at = entry.inputs, entry.inputs_at
        if has_weights and entry.weights_at is not None:
            received, at = (*entry.inputs, *entry.weights), entry.weights_at
        names = received if checks else matching.named_inputs(received, selection)
        given = bool(names) and at is not None and (reads or checks)
        lines.begin(entry, checks=given and checks)
        # The table has one list of inputs: a second entry needs the same ones.
        if given and names == (inputs.names or names):
            inputs = replace(inputs, names=names, specs=entry.input_specs)
            lines.inputs(entry, names, at or 0)
    return inputs


def _plan_memory(
    lines: Lines, events: Sequence[MemoryEvent], selection: Selection
) -> tuple[Json, ...]:
    """Add the lines of memory events, as probes need them. Returns the rows of these events, also
    of those whose line cannot be inserted.

    A reuse only matters if nothing reads the old value any more.
    """
    wanted = probes.memory_actions(selection)
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
    """By launch index, the expressions that it reads and that no other probed launch shows."""
    probed = [x for x in chosen if not x.insertion_point.obstacle and not x.is_last]
    return matching.not_yet_shown(located.launches, probed, _shown_inputs(located, inputs))


def _shown_inputs(located: Located, inputs: _Inputs) -> dict[str, set[str]]:
    """The inputs that are shown at the start of a call, by scope."""
    names = set(inputs.names) if inputs.reads else set()
    return {entry.name: names & {*entry.inputs, *entry.weights} for entry in located.entries}


def _ends(
    located: Located, chosen: Sequence[Launch], inputs: _Inputs, selection: Selection
) -> dict[int, Recorded]:
    """What `--args ends` records in addition to the results of launches."""
    if probes.args_mode(selection) != "ends":
        return {}
    probed = {launch.index for launch in chosen if not launch.insertion_point.obstacle}
    watched = selection.tensors or ()
    return ends(located, probed, _shown_inputs(located, inputs), watched)


def _plan_launches(
    lines: Lines,
    located: Located,
    chosen: Sequence[Launch],
    selection: Selection,
    inputs: _Inputs,
) -> _Launches:
    """Add the lines around each chosen launch."""
    phases = probes.phases(selection)
    unseen = _not_yet_shown(located, chosen, inputs)
    recorded = _ends(located, chosen, inputs, selection)
    checked = "launch" in probes.memory_actions(selection)
    probed: list[Launch] = []
    skipped: list[Skipped] = []
    rows: list[Json] = []
    passed: dict[int, tuple[Argument, ...]] = {}
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
        passed[launch.index] = tuple(x for x in values.get("after", ()) if x.type == "tensor")
        if checked and not launch.is_last:
            lines.checked(launch)
        rows.append(table.launch_row(launch, values, reads=any(phases.values())))
        probed.append(launch)
    # `--args ends` looks for launches that write memory they were not given, so no value can wait
    # to be measured with those of the next launch.
    can_wait = probes.args_mode(selection) != "ends"
    waiting = together(located, passed) if can_wait else frozenset[int]()
    return _Launches(tuple(probed), tuple(skipped), _flagged(rows, "launch", "together", waiting))


def _unchecked(located: Located, inputs: tuple[str, ...], guards: Guards) -> tuple[str, ...]:
    """Why the inputs of entries are not checked, and which guards are not."""
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
    """The values to read at each phase of a launch, each once.

    `unseen` are the expressions that the launch reads and that are shown nowhere else, `more` what
    `--args ends` adds. If --roles or --tensors leave a phase without values, it has a line only if
    a probe needs one.
    """
    mode = probes.args_mode(selection)
    chooses = selection.roles is not None or selection.tensors is not None
    needed = probes.unconditional_phases(selection)
    result: dict[Phase, tuple[Argument, ...]] = {}
    for phase, reads in phases.items():
        if phase == "after" and launch.is_last:
            continue
        readable = (
            argument
            for argument in launch.args
            if reads
            and _is_read(argument, phase, selection.format)
            and _is_shown(mode, launch, argument, phase, unseen)
            and matching.is_asked(argument, phase, selection)
        )
        added = more.get(phase, {}) if reads else {}
        asked = {x: y for x, y in added.items() if matching.is_asked(y, phase, selection)}
        values = tuple(({argument.expr: argument for argument in readable} | asked).values())
        # With `ends`, a line without values after a launch still records that the launch ran.
        is_bare = phase == "after" if mode == "ends" else not chooses
        if values or phase in needed or is_bare:
            result[phase] = values
    return result


def _is_shown(
    mode: ArgsMode, launch: Launch, argument: Argument, phase: Phase, unseen: frozenset[str]
) -> bool:
    """Whether an argument is among those that `--args` asks for."""
    if mode == "all":
        return True
    if matching.may_be_written(launch, argument):
        return mode == "written" or phase == "after"
    return mode == "written" and phase == "after" and argument.expr in unseen


def _is_read(argument: Argument, phase: Phase, style: Format) -> bool:
    """Whether an argument has a value to read. A pure output has none before the launch; a literal
    is in the source already, but the upstream format prints it."""
    if argument.type == "other" or (phase == "before" and argument.role == "out"):
        return False
    if not expression(argument, phase):
        return False
    return argument.type == "tensor" or bool(argument.buffer) or style == "upstream"
