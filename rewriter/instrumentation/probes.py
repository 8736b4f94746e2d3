"""The probes there are, and which launches a request selects.

A probe is one file in `rewriter/runtime/probes/`; its class says how it wants to be placed. Reading
that imports no torch.
"""

from __future__ import annotations

import difflib
import pkgutil
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import get_args

from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.types import Phase, Role
from rewriter.instrumentation.types import Selection
from rewriter.locate.types import Argument, Launch
from rewriter.runtime import probes as package
from rewriter.runtime.calls import Calls
from rewriter.runtime.probes import Probe

ROLES: tuple[Role, ...] = get_args(Role)
NO_MATCH = ("no-launch-matches", "no-tensor-matches")
"""Errors of a wrapper in which a selection names nothing: others may have it."""

# As AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER counts.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "0": (),
    "1": ("save",),
    "2": ("print",),
    "3": ("names",),
}


@cache
def registry() -> dict[str, type[Probe]]:
    """Every probe by name, found by the files that stand in the package."""
    classes: dict[str, type[Probe]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        probe = getattr(import_module(f"{package.__name__}.{module.name}"), "PROBE", None)
        if not (isinstance(probe, type) and issubclass(probe, Probe) and hasattr(probe, "summary")):
            raise RewriterError(
                "probe-invalid",
                f"rewriter/runtime/probes/{module.name}.py has no class PROBE with a summary",
                hint="See CONTRIBUTING.md for what a probe's file holds.",
                code=FAILED,
            )
        classes[module.name] = probe
    return classes


def check(names: Iterable[str]) -> tuple[str, ...]:
    """The probes of these names, each once, in a fixed order. Unknown ones are an error."""
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


def check_roles(names: Iterable[str]) -> tuple[Role, ...]:
    """The roles of these names. Unknown ones are an error."""
    wanted = list(names)
    for name in wanted or [""]:
        if name not in ROLES:
            raise RewriterError(
                "bad-roles",
                f"--roles: {name!r} is no role of an argument",
                hint="in: what a launch reads; out: what it writes; inout: what it changes.",
            )
    return tuple(role for role in ROLES if role in wanted)


def check_calls(text: str) -> str:
    """The text of `--calls` without spaces; anything but calls and ranges of them is an error."""
    text = "".join(text.split())
    try:
        if text:
            Calls(text)
    except ValueError as error:
        raise RewriterError(
            "bad-calls",
            f"--calls {text!r}: {error}",
            hint="Write calls of the wrapper, counted from 0, such as 0,3-5 or 100-.",
        ) from error
    return text


def check_number(option: str, number: int) -> int:
    """A number of something, at least one."""
    if number < 1:
        raise RewriterError(
            "bad-number",
            f"{option} is {number}",
            hint="Expected a number greater than 0.",
        )
    return number


def phases(selection: Selection) -> dict[Phase, bool]:
    """The phases at which any selected probe acts, and whether one of them reads values there."""
    result: dict[Phase, bool] = {}
    for probe, phase in _acting(selection):
        result[phase] = result.get(phase, False) or probe.reads_values
    return result


def needed(selection: Selection) -> frozenset[Phase]:
    """The phases at which a selected probe acts whether or not it is handed values."""
    return frozenset(phase for probe, phase in _acting(selection) if not probe.idle)


def _acting(selection: Selection) -> Iterator[tuple[type[Probe], Phase]]:
    for name in selection.probes:
        probe = registry()[name]
        if probe.when == "inputs":
            continue
        when = probe.when if probe.spans else selection.when or probe.when
        both: tuple[Phase, ...] = ("before", "after")
        yield from ((probe, phase) for phase in both if when in (phase, "both"))


def is_asked(argument: Argument, phase: Phase, selection: Selection) -> bool:
    """Whether a selection has an argument of a launch at a phase.

    Of its roles, `in` is what a launch reads, before it; `out` what it writes, after it; `inout`
    what it changes, before and after.
    """
    if selection.tensors is not None and not _is_named(argument, selection.tensors):
        return False
    if selection.roles is None or argument.role in selection.roles:
        # What is only read is shown where it is read, unless it is only looked at afterwards.
        return argument.role != "in" or phase in ("before", selection.when) or not selection.roles
    return argument.role == "inout" and ("in" if phase == "before" else "out") in selection.roles


def asks_for_inputs(selection: Selection) -> bool:
    """Whether a selection has the inputs of a call among the values that it asks for.

    They are no launch: who asks for certain launches does not ask for them.
    """
    everything = selection.kernels is None and selection.launches is None
    return everything and (selection.roles is None or "in" in selection.roles)


def named_inputs(names: Sequence[str], selection: Selection) -> tuple[str, ...]:
    """Those of the inputs of a call that a selection names."""
    if selection.tensors is None:
        return tuple(names)
    return tuple(name for name in names if _fits(name, selection.tensors))


def chosen_text(selection: Selection) -> str:
    """Which launches and values a selection chooses, as options of the command line."""
    ranges = None if selection.launches is None else map(_written, selection.launches)
    given = {
        "--kernels": selection.kernels,
        "--launches": ranges,
        "--roles": selection.roles,
        "--tensors": selection.tensors,
    }
    words = [(name, ",".join(value)) for name, value in given.items() if value is not None]
    return shlex.join(word for pair in words for word in pair)


def _is_named(argument: Argument, patterns: Iterable[str]) -> bool:
    patterns = tuple(patterns)
    return _fits(argument.name, patterns) or _fits(argument.buffer, patterns)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    # A name may hold brackets itself: of a list of tensors.
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def checks_inputs(selection: Selection) -> bool:
    """Whether a selected probe looks at the inputs of a call, whatever launches are chosen."""
    return any(registry()[name].when == "inputs" for name in selection.probes)


def choose(launches: Iterable[Launch], selection: Selection) -> tuple[Launch, ...]:
    """The launches that a selection names. Raises where it names none of some."""
    launches = tuple(launches)
    chosen = tuple(
        launch
        for launch in launches
        if (selection.launches is None or any(launch.index in x for x in selection.launches))
        and (selection.kernels is None or matches(launch.kernel, selection.kernels))
    )
    if launches and not chosen:
        raise _no_match(launches, selection)
    return chosen


def unmatched(
    launches: Iterable[Launch], selection: Selection, inputs: Iterable[str] = ()
) -> tuple[str, ...]:
    """The patterns and indices of a selection that no launch has, nor any of the inputs."""
    launches, inputs = tuple(launches), tuple(inputs)
    indices = {launch.index for launch in launches}
    return (
        *(
            f"kernel {pattern}"
            for pattern in selection.kernels or ()
            if not any(matches(launch.kernel, [pattern]) for launch in launches)
        ),
        *(
            f"launch {_written(wanted)}"
            for wanted in selection.launches or ()
            if not any(index in wanted for index in indices)
        ),
        *(
            f"tensor {pattern}"
            for pattern in selection.tensors or ()
            if not any(_is_named(a, [pattern]) for launch in launches for a in launch.args)
            and not any(_fits(name, [pattern]) for name in inputs)
        ),
    )


def matches(kernel: str, patterns: Iterable[str]) -> bool:
    """Whether a kernel name fits a pattern, upper and lower case alike, as upstream filters."""
    return any(fnmatchcase(kernel.lower(), pattern.strip().lower()) for pattern in patterns)


def _written(indices: range) -> str:
    """A range as `--launches` takes it."""
    return f"{indices[0]}-{indices[-1]}" if len(indices) > 1 else str(indices[0])


def no_value(launches: Sequence[Launch], selection: Selection) -> RewriterError:
    """The error of a selection that has launches, and none of their arguments."""
    arguments = [argument for launch in launches for argument in launch.args]
    wanted = []
    near: list[str] = []
    if selection.tensors is not None:
        names = list(dict.fromkeys(a.name for a in arguments if a.type != "other"))
        wanted.append(f"is called {','.join(selection.tensors)}")
        for pattern in selection.tensors:
            near += difflib.get_close_matches(pattern.replace("*", ""), names, n=2, cutoff=0.5)
    if selection.roles is not None:
        wanted.append(f"has the role {','.join(selection.roles)}")
    guess = f"Nearest names: {', '.join(dict.fromkeys(near))}. " if near else ""
    when = "" if selection.when is None else f" where --when {selection.when} looks"
    return RewriterError(
        "no-tensor-matches",
        f"no argument of the {len(launches)} chosen launches {' and '.join(wanted)}{when}",
        hint=f"{guess}`rewriter list` shows what each launch reads and writes.",
    )


def _no_match(launches: tuple[Launch, ...], selection: Selection) -> RewriterError:
    wanted = []
    near: list[str] = []
    kernels = sorted({launch.kernel for launch in launches})
    if selection.kernels is not None:
        wanted.append(f"kernels {','.join(selection.kernels)}")
        for pattern in selection.kernels:
            part = pattern.replace("*", "").lower()
            near += [kernel for kernel in kernels if part and part in kernel.lower()][:2]
            near += difflib.get_close_matches(part, kernels, n=2, cutoff=0.5)
    if selection.launches is not None:
        wanted.append(f"launches {','.join(map(_written, selection.launches))}")
    guess = f"Nearest kernels: {', '.join(dict.fromkeys(near))}. " if near else ""
    return RewriterError(
        "no-launch-matches",
        f"no launch matches {' and '.join(wanted)}; "
        f"there are {len(launches)} launches, 0 to {len(launches) - 1}, of {len(kernels)} kernels",
        hint=f"{guess}`rewriter list` shows them all.",
    )
