"""The result of a run of a wrapper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from rewriter.core.documents import Row
from rewriter.core.exit_status import ExitStatus
from rewriter.core.types import Json
from rewriter.locate.types import Launch

# Where inputs are from; `random` ones are from the wrapper's own `get_args()`.
Inputs = Literal["random", "file", "recorded"]
# How an output of a replayed call compares with the recorded one.
Replayed = Literal["equal", "differs", "unknown", "value"]
Code = Literal[0, 1, 130]
# What the host process says of a tensor, or of whatever else a wrapper may return.
Output = Annotated[
    Json,
    Meta(
        description="A returned value: of a tensor dtype, shape, device, sha256 and nan; of others "
        "their text",
        extra_json_schema={"required": ["type"]},
    ),
]


@dataclass(frozen=True)
class RunResult:
    """The result of a run. `events` are the rows of `events.jsonl` of every call, in order.

    `code` is the exit code of the command: 0, or 1 for a finding, which is a crash, an unexpected
    input, NaN or infinities that a launch computed and no later one absorbs, or a replayed call
    that returned something else; 130 if this process was interrupted. `ended` says how the process
    that ran it ended. `outputs` describe what it returned, with digests. `random_globals` were
    filled with random values, because only Inductor's loader knows the real ones. `replayed`
    compares each output of a replayed call with the recorded one: `equal` bit for bit, `differs`,
    `unknown`, or a `value` that is not a tensor. `by_probe` is set if a probe ended it, because of
    `--stop`.
    """

    path: Path
    code: Code
    dump: Path | None
    launches: tuple[Launch, ...]
    events: tuple[Json, ...]
    outputs: tuple[Output, ...]
    random_globals: tuple[str, ...]
    seconds: float
    ended: ExitStatus
    inputs: Inputs = "random"
    replayed: tuple[Replayed, ...] = ()
    by_probe: bool = False

    @property
    def crashed(self) -> bool:
        """Whether it did not run to its end, and no probe ended it."""
        return self.ended.code != 0 and not self.by_probe

    @property
    def interrupted(self) -> bool:
        return self.ended.interrupted != 0

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """The rows of inputs that the wrapper was not compiled for."""
        return tuple(row for row in self.events if "unexpected" in row)

    @property
    def is_timed(self) -> bool:
        """Whether launches were timed."""
        return any("time" in row for row in self.events)


class InterruptedRunError(KeyboardInterrupt):
    """A run was stopped because this process was interrupted. `result` is its result.

    It is a KeyboardInterrupt for callers that do not know it.
    """

    def __init__(self, result: RunResult) -> None:
        super().__init__(str(result.ended))
        self.result = result
