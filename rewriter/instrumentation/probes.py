"""The available probes, and when those of a selection act.

A probe is declared by a file in `rewriter/runtime/probes/`, which says where its lines go. Reading
these does not import torch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.types import ArgsMode, Json, Phase
from rewriter.instrumentation.types import Selection
from rewriter.runtime import probes as package
from rewriter.runtime.probes import MARK, Probe

# As AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER counts.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "0": (),
    "1": ("save",),
    "2": ("print",),
    "3": ("names",),
}

# The default of `--dormant`: the probes that need only the arguments of launches.
SWITCHED = ("names", "print", "hash", "nan", "save", "sync", "time")

# What `runtime/plain.py` has, and the options that it does not have, by fields of a selection.
PLAIN = ("names", "nan", "print", "save", "sync", "time")
NOT_PLAIN = {"last": "--keep", "max_bytes": "--max-bytes", "on": "--on", "dormant": "--dormant"}
NOT_PLAIN |= {"values": "--values", "allow": "--allow", "stop": "--stop"}


@cache
def registry() -> dict[str, Probe]:
    """Every probe by name."""
    try:
        return package.registry()
    except package.InvalidProbe as problem:
        raise RewriterError(
            "probe-invalid",
            str(problem),
            hint="See docs/project/extending.md for what a probe's file holds.",
            code=FAILED,
        ) from None


def check(names: Iterable[str]) -> tuple[str, ...]:
    """These names, each once, in a fixed order. Raises `RewriterError` for an unknown one."""
    known = registry()
    for name in (wanted := list(dict.fromkeys(names))):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            guess = f"Did you mean {near[0]!r}? " if near else ""
            raise RewriterError(
                "unknown-probe",
                f"unknown probe {name!r}",
                hint=f"{guess}Probes: {', '.join(sorted(known))}.",
            )
    return tuple(name for name in known if name in wanted)


def phases(selection: Selection) -> dict[Phase, bool]:
    """The phases at which any selected probe acts, and whether one of them reads values there."""
    result: dict[Phase, bool] = {}
    for probe, phase in _acting(selection):
        result[phase] = result.get(phase, False) or probe.reads_values
    return result


def unconditional_phases(selection: Selection) -> frozenset[Phase]:
    """The phases at which a selected probe acts even if there are no values to read."""
    return frozenset(phase for probe, phase in _acting(selection) if not probe.idle)


def recorded(selection: Selection) -> Json:
    """What the table of a wrapper and the manifest of a package both say of a selection, beside its
    probes and what they print."""
    return {
        "calls": selection.calls,
        "last": selection.last,
        "args": args_mode(selection),
        "max_bytes": selection.max_bytes,
        "allow": list(selection.allow),
        "stop": selection.stop,
        **({"dormant": True} if selection.dormant else {}),
    }


def args_mode(selection: Selection) -> ArgsMode:
    """Which arguments of launches are read: what `--args` says, or else a default.

    The default is what launches write. It is all arguments if the selection looks before launches,
    chooses arguments by role or name, prints as upstream does, or has a probe that waits for the
    device to find a crash: after a crash, it is too late to read what the launch was given.
    """
    if selection.args is not None:
        return selection.args
    chooses = selection.roles is not None or selection.tensors is not None
    hunts = any(probe.prompt for probe in _chosen(selection))
    sides = selection.when in ("before", "both")
    every = chooses or hunts or sides or selection.format == "upstream"
    return "all" if every else "written"


def reads_inputs(selection: Selection) -> bool:
    """Whether a selected probe reads the inputs of a call: before all launches, each once."""
    shown = args_mode(selection)
    if any(probe.marks or (shown != "all" and probe.of_results) for probe in _chosen(selection)):
        return True
    return phases(selection).get("before", False)


def _chosen(selection: Selection) -> Iterator[Probe]:
    return (registry()[name] for name in selection.probes)


def _acting(selection: Selection) -> Iterator[tuple[Probe, Phase]]:
    shown = args_mode(selection)
    for probe in _chosen(selection):
        if probe.when in ("inputs", "memory"):
            continue
        own = "after" if shown == "written" and probe.of_results else probe.when
        is_fixed = probe.spans or probe.marks
        when = probe.when if is_fixed else selection.when or own
        if probe.marks:
            yield MARK, "before"
        both: tuple[Phase, ...] = ("before", "after")
        yield from ((probe, phase) for phase in both if when in (phase, "both"))


def memory_actions(selection: Selection) -> frozenset[str]:
    """The memory events at which selected probes act: see `Probe.memory`."""
    return frozenset(action for probe in _chosen(selection) for action in probe.memory)


def checks_inputs(selection: Selection) -> bool:
    """Whether a selected probe checks the inputs of a call, whatever launches are chosen."""
    return any(probe.when == "inputs" for probe in _chosen(selection))
