"""The probes there are, and which launches a request selects.

A probe is one file in `rewriter/runtime/probes/`; its class says how it wants to be placed. Reading
that imports no torch.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module

from rewriter.errors import FAILED, RewriterError
from rewriter.runtime import probes as package
from rewriter.runtime.probes import Probe
from rewriter.types import Launch, Phase, Selection

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
    found: dict[str, type[Probe]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        probe = getattr(import_module(f"{package.__name__}.{module.name}"), "PROBE", None)
        if not (isinstance(probe, type) and issubclass(probe, Probe) and hasattr(probe, "summary")):
            raise RewriterError(
                "probe-invalid",
                f"rewriter/runtime/probes/{module.name}.py has no class PROBE with a summary",
                hint="See CONTRIBUTING.md for what a probe's file holds.",
                code=FAILED,
            )
        found[module.name] = probe
    return found


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


def phases(selection: Selection) -> dict[Phase, bool]:
    """The phases at which any selected probe acts, and whether one of them reads values there."""
    result: dict[Phase, bool] = {}
    for name in selection.probes:
        probe = registry()[name]
        if probe.when == "inputs":
            continue
        when = probe.when if probe.spans else selection.when or probe.when
        both: tuple[Phase, ...] = ("before", "after")
        for phase in both:
            if when in (phase, "both"):
                result[phase] = result.get(phase, False) or probe.reads_values
    return result


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


def unmatched(launches: Iterable[Launch], selection: Selection) -> tuple[str, ...]:
    """The patterns and indices of a selection that no launch has."""
    launches = tuple(launches)
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
    )


def matches(kernel: str, patterns: Iterable[str]) -> bool:
    """Whether a kernel name fits a pattern, upper and lower case alike, as upstream filters."""
    return any(fnmatchcase(kernel.lower(), pattern.strip().lower()) for pattern in patterns)


def _written(indices: range) -> str:
    """A range as `--launches` takes it."""
    return f"{indices[0]}-{indices[-1]}" if len(indices) > 1 else str(indices[0])


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
