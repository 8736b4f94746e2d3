"""What `rewriter triage` prints for artifacts and programs alike: steps, and results without a
launch."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rewriter.commands._documents.triage import EmptyTriageDocument, TriageStep
from rewriter.commands._output import emit
from rewriter.core.errors import INTERRUPTED, OK
from rewriter.core.exit_status import ExitStatus
from rewriter.core.terminal import message, say
from rewriter.core.text import counted
from rewriter.instrumentation import probes

AS_IT_IS = "without changes"
WAITING = "waiting for each launch, without cached GPU memory"
UNPROBED = (
    "verdict: it crashes without probes only: it depends on timing, or on where its memory lies. "
    "On NVIDIA, `compute-sanitizer --target-processes all` in front of {} looks for both."
)


class Steps:
    """Prints each step as it is done; on standard error, if the result is `json`."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._say: Callable[[str], None] = message if json else say
        self.done: list[TriageStep] = []

    def add(self, name: str, ended: ExitStatus | None, seconds: float, note: str = "") -> bool:
        """Add a run; `ended` is `None` if it came to its end. Returns whether it crashed."""
        how = "ran to its end" if ended is None else str(ended)
        if ended is not None and not ended.stopped:
            how = f"crashed: {how}"
        step = TriageStep(
            name=name, crashed=ended is not None, how=how + note, seconds=round(seconds, 3)
        )
        self.done.append(step)
        self._say(f"{len(self.done)}. {step}")
        sys.stdout.flush()
        return ended is not None

    def say(self, text: str) -> None:
        self._say(text)
        sys.stdout.flush()

    @property
    def crashed(self) -> bool:
        """Whether any run crashed."""
        return any(step.crashed for step in self.done)

    def interrupted(self) -> int:
        """End a triage that was interrupted before a run had probes."""
        self._emit_nothing()
        message(
            "interrupted before a run had probes; for what hangs, --timeout SECONDS ends each run, "
            "and the last one names the launch"
        )
        return INTERRUPTED

    def nothing(self) -> int:
        """End a triage in which nothing crashed."""
        self._emit_nothing()
        if not self.json:
            say(f"it ran; nothing crashed in {counted(len(self.done), 'run')}")
        return OK

    def _emit_nothing(self) -> None:
        if self.json:
            emit(EmptyTriageDocument(steps=tuple(self.done)))


def probes_for_crash() -> list[str]:
    """The probes that find the launch that crashes."""
    return [name for name in ("names", "sync", "inputs") if name in probes.registry()]
