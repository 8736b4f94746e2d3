"""Reads of many rows what a figure needs: a fraction of the time that whole rows take.

Half a microsecond a row, where a row in full takes a hundred times that: what is made of all calls
of a dump, or of all ranks, goes through here. What these rows show is looked into by the others.
"""

from __future__ import annotations

import math

import msgspec

from rewriter.core.errors import RewriterError
from rewriter.dump.reading import RunDump

Number = float | int | str | None


class LightTime(msgspec.Struct, gc=False):
    """How long the launch took."""

    duration_us: float = 0.0


class LightRow(msgspec.Struct, gc=False):
    """A row of any kind, with the fields that figures are made of: see `rewriter.dump.rows`."""

    phase: str
    launch: int | None = None
    iteration: int = 0
    kernel: str = ""
    arg: str = ""
    role: str = ""
    dtype: str = ""
    min: Number = None
    max: Number = None
    mean: Number = None
    std: Number = None
    nan: int = 0
    inf: int = 0
    time: LightTime | None = None
    error: str = ""
    unexpected: str = ""

    @property
    def is_result(self) -> bool:
        """Whether a launch wrote it, and this is what it wrote."""
        return self.phase == "after" and self.role in ("out", "inout")

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value of the finite elements; `None` where it is not known."""
        low, high = finite(self.min), finite(self.max)
        return None if low is None or high is None else max(abs(low), abs(high))


_DECODER = msgspec.json.Decoder(LightRow)


def light_rows(run: RunDump) -> tuple[list[LightRow], bool] | None:
    """The rows of a call, and whether its last line was cut short; `None` where a line is not as a
    runtime writes it, or the call is not there any more."""
    try:
        data = run.event_bytes()
        end = data.rfind(b"\n") + 1
        return _DECODER.decode_lines(data[:end]), end < len(data)
    except (RewriterError, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def finite(value: Number) -> float | None:
    """A statistic as a number, `None` for what is not finite."""
    if value is None or isinstance(value, str):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
