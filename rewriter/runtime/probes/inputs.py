"""Compares the inputs of each call with those that the wrapper was compiled for, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Probe, ProbeRecorder

if TYPE_CHECKING:
    from ..event import Event
    from ..running_call import RunningCall

_MOST = 4  # inputs that the warning about unknown facts names


class InputsProbe(Probe):
    summary = "check sizes, strides, dtypes and devices of the inputs at the start of each call"
    when = "inputs"
    reads_values = True

    def __init__(self) -> None:
        self._noted = False

    def given(
        self, event: Event, values: Sequence[Any], call: RunningCall, recorder: ProbeRecorder
    ) -> None:
        from ..expected import Symbols, compare, violated

        rows = recorder.expected
        if len(values) != len(rows):
            names = f"{rows[0].name} to {rows[-1].name}" if rows else "none"
            event.unexpected[""] = f"{len(values)} values, expected {len(rows)} ({names})"
            recorder.write([f"{recorder.about(event)}: {event.unexpected['']}\n"])
            return
        symbols = Symbols(rows, values)
        guards = violated(recorder.guards, symbols)
        for row, value in zip(rows, values, strict=True):
            try:
                problems = [compare(row, value, symbols), *guards.get(row.name, ())]
            except Exception as error:
                recorder.warn(f"inputs {row.name}", f"{type(error).__name__}: {error}")
                continue
            if problem := "; ".join(filter(None, problems)):
                event.unexpected[row.name] = problem
                recorder.write([f"{recorder.about(event)} {row.name}: {problem}\n"])
        if not self._noted:
            self._noted = True
            self._note(symbols, recorder)

    def _note(self, symbols: Any, recorder: ProbeRecorder) -> None:
        """Warn about facts that are not checked, because the wrapper does not state them."""
        from ..expected import unknown

        facts = {row.name: unknown(row, symbols) for row in recorder.expected}
        inputs = [f"{name} ({', '.join(missing)})" for name, missing in facts.items() if missing]
        if inputs:
            more = f" and {len(inputs) - _MOST} more" if len(inputs) > _MOST else ""
            recorder.warn(
                "inputs",
                f"{len(inputs)} of {len(facts)} inputs cannot be checked in full, since the "
                f"wrapper does not say what it expects: {', '.join(inputs[:_MOST])}{more}",
            )


PROBE = InputsProbe
