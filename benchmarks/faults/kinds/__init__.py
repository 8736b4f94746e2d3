"""The kinds of faults, in the order of the score's table."""

from __future__ import annotations

from benchmarks.faults.kinds.arithmetic import (
    AnotherInput,
    CommutedOperands,
    HalfOverflow,
    LostConversion,
    LowPrecisionSum,
    SwappedOperands,
    WrongConstant,
    WrongEpilogue,
    WrongOperator,
)
from benchmarks.faults.kinds.base import Kind
from benchmarks.faults.kinds.indexing import (
    DroppedTail,
    OutOfBoundsStore,
    UninitialisedRead,
    WrongMask,
    WrongOffset,
    WrongStride,
)
from benchmarks.faults.kinds.memory import (
    EarlyFree,
    MissingLaunch,
    ReorderedLaunches,
    StaleReuse,
)
from benchmarks.faults.kinds.results import (
    LostUpdate,
    UndeclaredMutation,
    UnwrittenRegion,
    WrongType,
)

KINDS: tuple[Kind, ...] = (
    WrongOperator(),
    SwappedOperands(),
    AnotherInput(),
    WrongMask(),
    WrongStride(),
    WrongOffset(),
    DroppedTail(),
    LostConversion(),
    HalfOverflow(),
    UninitialisedRead(),
    StaleReuse(),
    EarlyFree(),
    OutOfBoundsStore(),
    WrongConstant(1e-1),
    WrongConstant(1e-2),
    WrongConstant(1e-3),
    WrongConstant(1e-4),
    WrongEpilogue(),
    ReorderedLaunches(),
    MissingLaunch(),
    LowPrecisionSum(),
    LostUpdate(),
    UndeclaredMutation(),
    UnwrittenRegion(),
    WrongType(),
)
CONTROLS: tuple[Kind, ...] = (CommutedOperands(),)
