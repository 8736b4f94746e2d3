"""Formats events as rows of the dump: one line of JSON each."""

from __future__ import annotations

import json
import math
from typing import Any

from .event import Event, Value
from .statistics import Statistics


def event_rows(event: Event) -> str:
    """The rows of an event: one per value, or a single one if no value was read."""
    base = base_row(event)
    last = {"captured": True} if event.captured else {}
    rows = [
        {**base, **described(value), **_unexpected(event, value), **last} for value in event.values
    ] or [base]
    return "".join(json.dumps(row) + "\n" for row in rows)


def note_row(event: Event, facts: dict[str, Any]) -> str:
    """A separate row with `facts` about an event."""
    return json.dumps({**base_row(event), **facts}) + "\n"


def base_row(event: Event) -> dict[str, Any]:
    """The members that all rows of an event begin with."""
    base: dict[str, Any] = {"phase": event.phase}
    if event.launch is not None:
        base = {"launch": event.launch.index, **base, "kernel": event.launch.kernel}
        if event.launch.repeats or event.iteration:
            base["iteration"] = event.iteration
    return base


def _unexpected(event: Event, value: Value) -> dict[str, str]:
    problem = event.unexpected.get(value.label.name)
    return {"unexpected": problem} if problem else {}


def described(value: Value) -> dict[str, Any]:
    """The members of a row about a value."""
    row: dict[str, Any] = {"arg": value.label.name, "role": value.label.role}
    if not value.is_tensor:
        return {**row, "type": value.kind, "value": value.text}
    row |= {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "stride": list(value.stride),
        "device": value.device,
    }
    if value.statistics is not None:
        row |= _statistics(value.statistics)
    if value.fingerprint:
        row["fingerprint"] = value.fingerprint
    if value.file:
        row["file"] = value.file
    if value.unsaved:
        row["unsaved"] = value.unsaved
    return row


def _statistics(statistics: Statistics) -> dict[str, Any]:
    row: dict[str, Any] = {
        "numel": statistics.numel,
        "min": _finite(statistics.minimum),
        "max": _finite(statistics.maximum),
        "mean": _finite(statistics.mean),
        "std": _finite(statistics.std),
        "nan": statistics.nan,
        "inf": statistics.inf,
    }
    if statistics.negative_inf:
        row["neginf"] = statistics.negative_inf
    if statistics.near_limit:
        row["near_limit"] = statistics.near_limit
    return row if statistics.of == "value" else {**row, "of": statistics.of}


def _finite(value: int | float | None) -> int | float | str | None:
    """The number, or its text if it is not finite: JSON has no infinity and NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
