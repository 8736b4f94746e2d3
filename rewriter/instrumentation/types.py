"""The values of instrumenting: what was asked for, what is planned, and the result. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.edit import Insertion
from rewriter.core.printed import printed
from rewriter.core.types import ArgsMode, Format, Role, When
from rewriter.locate.types import Launch, Unrecognised

if TYPE_CHECKING:
    from rewriter.core.documents import Count

INPUTS = (-1, "inputs")
# Identifies a line that passes values: launch and phase, or INPUTS.
LineKey = tuple[int, str]


@dataclass(frozen=True)
class Selection:
    """Which probes go where: the PROBES options of the command line.

    `kernels` are glob patterns over kernel names, `launches` ranges of indices; `None` is all.
    `when` of `None` leaves it to each probe, `args` of `None` to the rest of the selection (see
    `args_mode`). `roles` are those of `--roles`, `tensors` patterns over names and buffers of
    arguments; `None` is all. `calls` says which calls of the wrapper are recorded, as
    `core/quantities.py` reads it, and `last` how many of those the dump keeps; an empty text
    and 0 are all. `max_bytes` is how much is written, as `core/quantities.py` reads it.
    `allow` names values that may be NaN or infinite, as `rewriter/dump/allowed.py` has it; with
    `stop` the probe `nan` ends the program at the first NaN that is not allowed.
    `dormant` probes do nothing until `rewriter control` switches them on. `on` says when the probe
    `record` writes a dump: `nan`, `inf`, `changed`, `spike:10x`, `slow:5x`.
    """

    probes: tuple[str, ...]
    kernels: tuple[str, ...] | None = None
    launches: tuple[range, ...] | None = None
    when: When | None = None
    format: Format = "text"
    values: bool = False
    roles: tuple[Role, ...] | None = None
    tensors: tuple[str, ...] | None = None
    calls: str = ""
    last: int = 0
    args: ArgsMode | None = None
    max_bytes: str = ""
    allow: tuple[str, ...] = ()
    stop: bool = False
    dormant: bool = False
    on: tuple[str, ...] = ()


@printed("launch=launch.index reason")
@dataclass(frozen=True)
class Skipped:
    """A chosen launch that was not probed, or only in part, and why."""

    launch: Launch
    reason: str


@printed("launches=indices skipped unrecognised")
@dataclass(frozen=True)
class Plan:
    """What instrumenting one wrapper would change.

    `unmatched` are the parts of the selection that match nothing, while other parts do. `unchecked`
    says which inputs cannot be checked, and why. `passed` are the expressions that each line
    passes.
    """

    insertions: tuple[Insertion, ...]
    probed: tuple[Launch, ...]
    skipped: tuple[Skipped, ...]
    unrecognised: tuple[Unrecognised, ...]
    unmatched: tuple[str, ...]
    unchecked: tuple[str, ...] = ()
    passed: Mapping[LineKey, tuple[str, ...]] = field(default_factory=dict)

    @property
    def indices(self) -> tuple[Count, ...]:
        """Of the launches with probes."""
        return tuple(launch.index for launch in self.probed)


@dataclass(frozen=True)
class Edited:
    """A wrapper with inserted lines: its new source, and the lines."""

    source: bytes
    insertions: tuple[Insertion, ...]


@dataclass(frozen=True)
class Instrumented:
    """The result of `instrument`: the new source, and how it was made."""

    path: Path
    source: bytes
    original: bytes
    plan: Plan
    selection: Selection


@dataclass(frozen=True)
class Stripped:
    """The result of `strip`.

    `removed` counts the removed lines; `exact` says whether the rest has the hash that was recorded
    when the probes were put in. It is false if the file was edited since.
    """

    path: Path
    source: bytes
    instrumented: bytes
    removed: int
    exact: bool
