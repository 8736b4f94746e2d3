"""A key for the comparison of a rank with the reference: ranks with equal keys compare alike.

Replicas write the same lines except for their device and the measurements. If two ranks have the
lines of the reference, and their values differ from its values at the same places and in the same
ways, one comparison serves for both. Only the lines of the reference are parsed; those of the other
ranks are matched with them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import MsgspecError
from msgspec.json import Decoder

from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import Tolerance
from rewriter.comparison.dumps.values import Measured, statistics_state
from rewriter.core import json_text
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow, read_row

# A value as both runtimes write it: in this order, and with these spaces. Inside a string, a
# quotation mark would have a backslash before it.
_NUMBER = rb'(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|null|"inf"|"-inf"|"nan")'
_COUNT = rb"(?:0|[1-9]\d{0,17})"
_VALUE = re.compile(
    rb'("min": %b, "max": %b, "mean": %b, "std": %b, "nan": %b, "inf": %b'
    rb'(?:, "neginf": %b)?(?:, "near_limit": %b)?), "fingerprint": "([0-9a-zA-Z]+)"'
    % (*(_NUMBER,) * 4, *(_COUNT,) * 4)
)
_DEVICE = re.compile(rb'"device": "[a-z]+:(\d+)"')
_SAVED = b'"file"'
_measured = Decoder(Measured)

Likeness = tuple[Hashable, ...]


@dataclass(frozen=True)
class _Lines:
    """The lines of a run, split into its values and the text around them."""

    data: bytes
    rest: list[bytes]
    statistics: list[bytes]
    digests: list[bytes]

    @classmethod
    def of(cls, data: bytes) -> _Lines:
        parts = _VALUE.split(data)
        return cls(data, parts[0::3], parts[1::3], parts[2::3])

    @property
    def values(self) -> Iterable[tuple[bytes, bytes]]:
        return zip(self.statistics, self.digests, strict=True)


@dataclass(frozen=True)
class _ReferenceRun:
    run: RunDump
    lines: _Lines
    places: tuple[list[int], list[int]]
    measured: tuple[Measured, ...]  # the values in order, as are their tolerances
    tolerances: tuple[Tolerance, ...]


class Reference:
    """The calls of the rank that others are compared with. `find` raises nothing for an unusual or
    damaged dump, which the comparison will read."""

    def __init__(self, runs: Sequence[RunDump], tolerances: Tolerances) -> None:
        self._runs: list[_ReferenceRun] | None = []
        self._starts = _starts(runs)
        for run in runs:
            known = None if tolerances.overrides else _read(run, tolerances)
            if known is None:
                self._runs = None
                break
            self._runs.append(known)

    @property
    def is_comparable(self) -> bool:
        return self._runs is not None

    def find(self, runs: Sequence[RunDump]) -> Likeness | None:
        """The key for the comparison of these calls; `None` if it cannot be shared."""
        if self._runs is None or len(runs) != len(self._runs) or _starts(runs) != self._starts:
            return None
        found = []
        for run, known in zip(runs, self._runs, strict=True):
            one = None if _facts(run) != _facts(known.run) else _differences(run, known)
            if one is None:
                return None
            found.append(one)
        return tuple(found)


def _facts(run: RunDump) -> tuple[object, ...]:
    facts = run.facts
    return facts.artifact, facts.sha256, facts.outputs, facts.launches


def _starts(runs: Iterable[RunDump]) -> list[int]:
    """The process of a rank that made each call, as a number."""
    return _places([run.facts.pid for run in runs])


def _places(values: Iterable[Hashable]) -> list[int]:
    """The first position of each value: equal lists have the same values repeated."""
    firsts: dict[Hashable, int] = {}
    return [firsts.setdefault(value, at) for at, value in enumerate(values)]


def _read(run: RunDump, tolerances: Tolerances) -> _ReferenceRun | None:
    """A call of the reference; `None` if its lines are not as the runtimes write them."""
    data = _bytes(run)
    if data is None or _SAVED in data:
        return None
    lines = _Lines.of(data)
    allowed = []
    try:
        for line in data.splitlines():
            values = len(_VALUE.findall(line))
            if not values:
                continue
            row = read_row(json_text.parse_object(line))
            if values > 1 or not isinstance(row, TensorRow):
                return None
            allowed.append(tolerances.of(row.kernel, row.dtype, row.dtype))
        measured = tuple(_measured.decode(b"{%b}" % one) for one in lines.statistics)
    except (ValueError, MsgspecError):  # the comparison reports what is wrong
        return None
    return _ReferenceRun(run, lines, _alike(lines), measured, tuple(allowed))


def _bytes(run: RunDump) -> bytes | None:
    """The events of a call without the number of its device; `None` if they are cut off."""
    try:
        data = run.event_bytes()
    except OSError:
        return None
    if data and not data.endswith(b"\n"):
        return None
    # For a rank with several devices, it matters which values are on the same device.
    devices = set(_DEVICE.findall(data))
    if len(devices) != 1:
        return data
    (number,) = devices
    return data.replace(b':%b"' % number, b':*"') if b':*"' not in data else data


def _alike(lines: _Lines) -> tuple[list[int], list[int]]:
    """Which values of a call are equal, by all known facts, and by their digests."""
    digests = _places(lines.digests)
    if digests == list(range(len(digests))):  # if no digests are equal, no values are
        return digests, digests
    return _places(lines.values), digests


def _differences(run: RunDump, known: _ReferenceRun) -> Hashable | None:
    """How the values of a call differ from those of the reference, value by value."""
    data = _bytes(run)
    if data is None:
        return None
    if data == known.lines.data:
        return b""
    lines = _Lines.of(data)
    if lines.rest != known.lines.rest or _alike(lines) != known.places:
        return None
    try:
        return bytes(
            4 * (digest == other_digest) + _difference(text, other_text, other, tolerance)
            for text, other_text, digest, other_digest, other, tolerance in zip(
                lines.statistics,
                known.lines.statistics,
                lines.digests,
                known.lines.digests,
                known.measured,
                known.tolerances,
                strict=True,
            )
        )
    except MsgspecError:  # a number that is out of range
        return None


def _difference(text: bytes, known: bytes, other: Measured, tolerance: Tolerance) -> int:
    """The result of comparing a value, as bits: whether counts and statistics agree."""
    if text == known and b'"nan",' not in text:  # NaN does not equal itself
        return 3
    one = _measured.decode(b"{%b}" % text)
    counts = (one.nan, one.inf) == (other.nan, other.inf)
    return 2 * counts + (statistics_state(one, other, tolerance) == "equal")
