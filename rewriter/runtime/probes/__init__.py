"""The probes: each other file of this folder declares one, and `cpp/probes/` has what it does."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal


class InvalidProbe(Exception):  # noqa: N818 - the tool makes an error of it
    """A file of a probe is not as it has to be."""


@dataclass(frozen=True)
class Probe:
    """What a probe needs of the lines of a wrapper."""

    summary: str
    # Where the probe acts, unless the user chooses: around launches, at the inputs of each call, or
    # on memory. The last two do not depend on the launches and phases that the user chose.
    when: Literal["before", "after", "both", "inputs", "memory"] = "both"
    # For "memory", the points that it needs: "allocate", "reuse", "release", or "launch" (after
    # each chosen launch).
    memory: frozenset[str] = frozenset()
    spans: bool = False  # always acts both before and after a launch
    # Acts only after launches, on what they write, and on the inputs of each call, unless the user
    # wants all arguments.
    of_results: bool = False
    reads_values: bool = False  # needs the values
    idle: bool = False  # does nothing at a launch whose values the user does not want
    measures: bool = False  # needs the statistics of the values
    saves: bool = False  # needs a dump directory, also if `REWRITER_DUMP` is not set
    prompt: bool = False  # needs statistics from before a launch before it runs
    marks: bool = False  # leaves marks before and after each launch; reads after it


MARK = Probe("mark that a launch begins", when="before")
"""Has a wrapper call `before` at each launch, without values, for a probe that `marks`."""


@cache
def registry() -> dict[str, Probe]:
    """Every probe by name, found by the files of this folder. Raises `InvalidProbe`."""
    found: dict[str, Probe] = {}
    for module in pkgutil.iter_modules(__path__):
        probe = getattr(import_module(f"{__name__}.{module.name}"), "PROBE", None)
        if not isinstance(probe, Probe):
            raise InvalidProbe(f"rewriter/runtime/probes/{module.name}.py declares no PROBE")
        found[module.name] = probe
    return found
