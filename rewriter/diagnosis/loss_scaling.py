"""Steps of a training that overflow on purpose: `torch.amp.GradScaler` tries a large factor, finds
infinities or NaN in the gradients, skips the step and halves the factor."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from rewriter.dump.reading import Dump, RunDump

_LAST = 10  # steps that may be skipped at the end of a run


def skipped(dump: Dump, is_finite: Callable[[RunDump], bool]) -> frozenset[str]:
    """The names of the calls of backward graphs whose step was skipped.

    A call with finite values behind one without shows that the weights have not taken the gradients
    of that one. Empty for a wrapper of which all calls, or the last ten, are not finite: there, no
    factor helps.
    """
    calls: dict[tuple[object, ...], list[RunDump]] = {}
    for run in sorted(dump.runs, key=lambda run: run.number):
        if run.names.direction == "backward":
            calls.setdefault((run.rank, run.facts.pid, run.sha256), []).append(run)
    names: set[str] = set()
    for runs in calls.values():
        finite = [is_finite(run) for run in runs]
        recovered = any(not a and b for a, b in itertools.pairwise(finite))
        if recovered and any(finite[-_LAST:]):
            names |= {run.name for run, known in zip(runs, finite, strict=True) if not known}
    return frozenset(names)


def note(names: frozenset[str]) -> str:
    """In one sentence; empty if no step was skipped."""
    if not names:
        return ""
    steps = "one step" if len(names) == 1 else f"{len(names)} steps"
    return (
        f"the gradients of {steps} are not finite and were not taken over into the weights, as "
        "with a loss that is scaled (torch.amp.GradScaler)"
    )
