"""The types of rows in `events.jsonl`, with the one reader and the one writer of them.

A row is one line: a launch that was reached, a value at one phase of it, its duration, or a fault.
The runtime (`rewriter/runtime/cpp/`, `rewriter/runtime/plain.py`) writes the same fields by hand;
the schemas of the site are made of these types, and tests check that it writes no other fields.

A number that is not finite is a string, in the types as on disk; `number` returns the float. So
rows are equal if their lines are, which would not hold with NaN. A missing field is `UNSET`, or
empty; `null` is a statistic of too few elements.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Annotated, Literal, TypeVar

from msgspec import (
    UNSET,
    Meta,
    Struct,
    UnsetType,
    ValidationError,
    convert,
    defstruct,
    structs,
    to_builtins,
)

from rewriter.core.dtypes import is_floating
from rewriter.core.types import Json, Role

# A tensor has fewer elements, and JSON readers need not support more.
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
# Too many digits in JSON would be read as an infinity.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Statistic = int | Finite | Literal["inf", "-inf", "nan"] | None
_LONG = 10**18
_BOUNDS = Meta(gt=-_LONG, lt=_LONG)
Microseconds = Annotated[int, _BOUNDS] | Annotated[float, _BOUNDS]
RowPhase = Literal["inputs", "before", "after"]
NonFinite = Literal["nan", "inf"]

ValueFields = Annotated[
    Json,
    Meta(
        description="A row of events.jsonl, less what says which launch it is of",
        extra_json_schema={"required": ["arg", "role"]},
    ),
]

_T = TypeVar("_T", bound=Struct)
_PLACE = re.compile(r" - at `\$(.+)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class EventRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A launch was reached, and no value was read; the other rows have these fields, too.

    `launch` is the launch's index in its wrapper, unset for the inputs of the call; `iteration`
    counts the runs of that launch in one call, unset where it is none of a loop. `captured` is true
    of what was issued into a CUDA graph, whose statistics are those of a replay.
    """

    launch: Count | UnsetType = UNSET
    phase: RowPhase
    kernel: str = ""
    iteration: Count | UnsetType = UNSET
    captured: bool = False

    @property
    def name(self) -> str:
        """The name of the value that the row is about; empty if it is about no value."""
        return ""

    @property
    def which(self) -> tuple[int | None, int]:
        """The launch, `None` for the inputs of the call, and which run of it."""
        return (None if self.launch is UNSET else self.launch), self.iteration or 0


class ValueRow(EventRow, frozen=True, kw_only=True, omit_defaults=True):
    """A value at one phase of a launch, by its name in the wrapper."""

    arg: str
    role: Role

    @property
    def name(self) -> str:
        return self.arg

    @property
    def of_value(self) -> ValueFields:
        """The row as JSON, less what says which launch it is of."""
        of_launch = ("launch", "phase", "kernel", "iteration")
        return {name: item for name, item in to_json(self).items() if name not in of_launch}

    @property
    def is_result(self) -> bool:
        """Whether it is a result of the launch, as the launch wrote it."""
        return self.phase == "after" and self.role != "in"


class TensorRow(ValueRow, frozen=True, kw_only=True, omit_defaults=True):
    """A tensor. `dtype` is torch's name, such as `float32`; `stride` counts elements.

    The statistics are unset where it was not measured: `numel` elements, of which `nan` are NaN and
    `inf` infinite, `neginf` of them -Inf; of a type of 16 or 8 bits, `near_limit` are more than
    half of its largest number. The others are over the finite elements, of the magnitude where `of`
    says so (of complex numbers). `fingerprint` tells the elements from others, as the manifest
    names it; `sha256` does so in a dump of an earlier version. `file` is the path of the saved
    tensor in the directory of the call, which may be missing where the program was killed;
    `unsaved` is why there is none. `unexpected` says how an input is not what the wrapper was
    compiled for.
    """

    dtype: str
    shape: tuple[Count, ...]
    stride: tuple[Count, ...] | UnsetType = UNSET
    device: str = ""
    numel: Count | UnsetType = UNSET
    min: Statistic | UnsetType = UNSET
    max: Statistic | UnsetType = UNSET
    mean: Statistic | UnsetType = UNSET
    std: Statistic | UnsetType = UNSET
    nan: Count | UnsetType = UNSET
    inf: Count | UnsetType = UNSET
    neginf: Count = 0
    near_limit: Count = 0
    of: Literal["value", "magnitude"] = "value"
    fingerprint: str = ""
    sha256: str = ""
    file: str = ""
    unsaved: str = ""
    unexpected: str = ""

    @property
    def is_measured(self) -> bool:
        return self.numel is not UNSET

    def unmeasured(self) -> TensorRow:
        """The same tensor without its values."""
        facts = {"arg", "role", "dtype", "shape", "stride", "device", "phase", "launch", "kernel"}
        return TensorRow(**{name: getattr(self, name) for name in facts})

    @property
    def digest(self) -> str:
        """What identifies its elements within the dump; empty if nothing does."""
        return self.fingerprint or self.sha256

    @property
    def is_floating(self) -> bool:
        """Whether its elements may be NaN or infinite."""
        return is_floating(self.dtype)

    @property
    def size(self) -> int:
        """The number of elements, by the shape."""
        return math.prod(self.shape)

    def count(self, what: NonFinite) -> int:
        """How many elements are NaN ("nan") or infinite ("inf"); 0 if it was not measured."""
        return (self.nan if what == "nan" else self.inf) or 0

    @property
    def statistics(self) -> dict[str, Statistic]:
        """The statistics by name; `None` for one that was not measured, or needs more elements."""
        values = {
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "std": self.std,
            "nan": self.nan,
            "inf": self.inf,
        }
        return {name: None if value is UNSET else value for name, value in values.items()}

    @property
    def numbers(self) -> dict[str, int | float | None]:
        """The statistics as numbers: see `number`."""
        return {name: number(value) for name, value in self.statistics.items()}

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value of the finite elements; `None` if not known."""
        return magnitude(self.min, self.max)


class ScalarRow(ValueRow, frozen=True, kw_only=True, omit_defaults=True):
    """A value that is no tensor: its type, such as `int`, and its text."""

    type: str
    value: str | UnsetType = UNSET
    unexpected: str = ""


class MissingRow(ValueRow, frozen=True, kw_only=True, omit_defaults=True):
    """An input that is no value, such as None, where the wrapper expects one."""

    unexpected: str


class UnexpectedRow(EventRow, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs of a call as a whole are not what the wrapper was compiled for."""

    unexpected: str


# Rows that may describe a problem of an input.
InputRow = TensorRow | ScalarRow | MissingRow | UnexpectedRow


class Duration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In microseconds, from the start of the call; `clock` is `cuda` or `host`."""

    start_us: Microseconds
    duration_us: Microseconds
    clock: str = ""


class TimeRow(EventRow, frozen=True, kw_only=True, omit_defaults=True):
    """How long a launch took: the device tells that late, between rows of other launches."""

    time: Duration


class ErrorRow(EventRow, frozen=True, kw_only=True, omit_defaults=True):
    """The device was found faulty at this launch, or at an earlier one if the phase is "before"."""

    error: str


class MemoryRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `memory.jsonl`: a launch that stored beside a buffer.

    `launch` is the first one after which it shows, `since` the last one after which all was well,
    unset where there was none. `allocated` is where the buffer is allocated, as the table of the
    wrapper counts. `distance` is that of the nearest element that was written from the edge of the
    buffer, 0 directly beside it; `count` are all of them in the band of that side.
    """

    event: Literal["memory"] = "memory"
    probe: Literal["bounds"] = "bounds"
    what: str = ""
    launch: Count
    kernel: str = ""
    since: Count | UnsetType = UNSET
    buffer: str
    allocated: Count
    side: Literal["before", "behind"]
    distance: Count = 0
    count: Count = 1
    dtype: str = ""
    value: str = ""
    captured: bool = False


class CoverageRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `memory.jsonl`, when the call is over: what a probe of memory did.

    `done` are the buffers that it guarded or filled, `skipped` those that it did not, and `why` has
    how many for which reason; `launches` is after how many of them bands were compared.
    """

    event: Literal["coverage"] = "coverage"
    probe: Literal["bounds", "poison", "stale"]
    done: Count = 0
    launches: Count | UnsetType = UNSET
    skipped: Count = 0
    why: dict[str, Count] = {}


ROWS: tuple[type[EventRow], ...] = (
    EventRow, TensorRow, ScalarRow, MissingRow, UnexpectedRow, TimeRow, ErrorRow
)  # fmt: skip


_FIELDS = {kind: frozenset(kind.__struct_fields__) for kind in ROWS}
# Each field separately: its type does not depend on the type of the row.
_ANYWHERE: dict[str, type[Struct]] = {
    field.name: defstruct(f"Only_{field.name}", [(field.name, field.type)])
    for kind in ROWS
    for field in structs.fields(kind)
    if field.name not in ("value", "of")  # strings that only rows of their own type use
}


class SchemaError(ValueError):
    """Some JSON is not what a probed program writes. The message names the value."""


def read_row(data: Json) -> EventRow:
    """The row in a line. Unknown fields are ignored. Raises `SchemaError`.

    Fields of other types of rows are ignored as well, but their values have to be valid.
    """
    kind = row_type(data)
    for name in data.keys() - _FIELDS[kind]:
        if name in _ANYWHERE:
            read({name: data[name]}, _ANYWHERE[name])
    return read(data, kind)


def read_memory_row(data: Json) -> MemoryRow | CoverageRow:
    """The row in a line of `memory.jsonl`. Raises `SchemaError`."""
    is_coverage = data.get("event") == "coverage"
    return read(data, CoverageRow) if is_coverage else read(data, MemoryRow)


def row_type(data: Json) -> type[EventRow]:
    """The type of a line, one of `ROWS`, by its fields."""
    if "dtype" in data:
        return TensorRow
    if "arg" in data:
        return ScalarRow if "type" in data or "unexpected" not in data else MissingRow
    if "time" in data:
        return TimeRow
    if "error" in data:
        return ErrorRow
    return UnexpectedRow if "unexpected" in data else EventRow


def read(data: object, into: type[_T]) -> _T:
    """A value of one of the dump's types. Raises `SchemaError`."""
    try:
        return convert(data, into)
    except ValidationError as error:
        raise SchemaError(_explained(str(error), data)) from None


def to_json(row: Struct) -> Json:
    """The JSON of a row, or of another value of a dump, as the runtimes write it."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in to_builtins(row).items()
    }


def renamed(row: TensorRow, name: str) -> TensorRow:
    """The same value under another name."""
    return structs.replace(row, arg=name)


def number(value: Statistic | UnsetType) -> int | float | None:
    """A statistic as a number, also if it is infinite or NaN; `None` if there is none, or for an
    integer that is too large for any type of tensor.
    """
    if value is UNSET or value is None:
        return None
    try:
        size = float(value)
    except OverflowError:
        return None
    return size if isinstance(value, str) else value


def known(value: Statistic | UnsetType) -> int | float | None:
    """As `number`, but `None` for NaN."""
    size = number(value)
    return None if size is None or math.isnan(size) else size


def finite(value: Statistic | UnsetType) -> int | float | None:
    """As `number`, but `None` for a number that is not finite."""
    size = number(value)
    return None if size is None or not math.isfinite(size) else size


def magnitude(least: Statistic | UnsetType, most: Statistic | UnsetType) -> float | None:
    """The largest absolute value between two statistics; `None` if either is not finite."""
    low, high = finite(least), finite(most)
    return None if low is None or high is None else float(max(abs(low), abs(high)))


def _explained(message: str, data: object) -> str:
    """An error message with the wrong value instead of its expected type: people search for it."""
    match = _PLACE.search(message)
    if match is None:
        missing = re.search(r"missing required field `(\w+)`", message)
        return f"a row without {missing[1]!r}" if missing else message
    path = match[1]
    missing = re.search(r"missing required field `(\w+)`", message)
    for step in _STEP.finditer(path):
        name, index = step.groups()
        if isinstance(data, dict) and name is not None:
            data = data.get(name)
        elif isinstance(data, list) and index is not None:
            data = data[int(index)]
    return f"{path.lstrip('.')} {data!r:.40}" + (f" without {missing[1]!r}" if missing else "")
