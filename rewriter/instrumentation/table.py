"""The table in the header of an instrumented wrapper: its probes, launches and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from rewriter.core.types import Json, Phase
from rewriter.instrumentation import probes
from rewriter.instrumentation.options_line import OptionsRecord
from rewriter.instrumentation.types import Selection
from rewriter.locate.inputs import row as input_row
from rewriter.locate.types import Argument, InputSpec, Launch, Located
from rewriter.version import __version__

Values = Mapping[Phase, tuple[Argument, ...]]


def launch_row(launch: Launch, values: Values, *, reads: bool) -> Json:
    """The row of a launch: what is known of it without running it.

    `values` are the arguments that its lines pass. With `reads`, the row also names the tensors
    that the launch takes and no line passes: their values follow from data flow.
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
    if any(a.parameter for a in launch.args):
        row["parameters"] = _parameters(launch.args)
    return row


def _parameters(arguments: Sequence[Argument]) -> dict[str, list[str]]:
    """The parameters of an operator that each tensor is: the same one may be several."""
    found: dict[str, list[str]] = {}
    for argument in arguments:
        if argument.type == "tensor" and argument.parameter:
            found.setdefault(argument.name, []).append(argument.parameter)
    return found


def _label(argument: Argument) -> list[str]:
    named = [argument.role, argument.name]
    return named if argument.name == argument.expr else [*named, argument.expr]


def _left_out(launch: Launch, values: Values) -> tuple[Argument, ...]:
    """The tensors that a launch takes and that none of its lines passes as they are then."""
    shown = {a.expr for a in values.get("before", ())}
    shown |= {a.expr for a in values.get("after", ()) if a.role == "in"}
    given = (a for a in launch.tensors if a.role != "out")
    return tuple({a.expr: a for a in given if a.expr not in shown}.values())


def _is_alias(argument: Argument) -> bool:
    """Whether the buffer of an argument has another name: data flow goes by buffers."""
    return argument.type == "tensor" and argument.name.partition(".")[0] != argument.buffer


def options(
    record: OptionsRecord,
    sha256: str,
    located: Located,
    selection: Selection,
    *,
    memory: Sequence[Json],
    inputs: Json,
) -> Json:
    """What the table says of the probes. `memory` are the rows of memory events, `inputs` is what
    `expected_inputs` gives, empty if they are not checked."""
    rows: Json = {"memory": list(memory)} if probes.memory_actions(selection) else {}
    options: Json = {
        "artifact": record.artifact,
        "sha256": sha256,
        "version": __version__,
        "probes": list(selection.probes),
        "when": selection.when,
        "format": selection.format,
        "values": selection.values,
        "label": record.label,
        **probes.recorded(selection),
        **({"on": list(selection.on)} if selection.on else {}),
        "outputs": {entry.name: list(entry.outputs) for entry in located.entries},
    }
    return rows | options | inputs


def expected_inputs(specs: Sequence[InputSpec], guards: str, *, reads: bool) -> Json:
    """What the inputs of a call are checked against; `reads` says whether probes read them, too."""
    conditions = guards.split("; ") if guards else ()
    rows = [*map(input_row, specs), *(f"if {condition}" for condition in conditions)]
    return {"expected": rows, "reads_inputs": reads}
