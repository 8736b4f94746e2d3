"""What a run of a wrapper left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rewriter.core.exit_status import ExitStatus
from rewriter.core.types import Json
from rewriter.locate.types import Launch

# Random ones are those of the wrapper's own `get_args()`.
Inputs = Literal["random", "file", "recorded"]
# Of an output of a recorded call.
Replayed = Literal["equal", "differs", "unknown", "value"]
Code = Literal[0, 1, 130]


@dataclass(frozen=True)
class RunResult:
    """What a run left. `events` are the rows of `events.jsonl` of every call, in order.

    `code` is that of the contract: 0 it ran, 1 there is a finding: it crashed, was given what it
    does not expect, or there are NaN, or infinities that a launch computed, or a recorded call
    returned something else; 130 where this process was told to end. `ended` says how the process
    that ran it ended. `outputs` describe what it returned, with a digest of the bytes;
    `random_globals` were filled with random values because only Inductor's loader knows theirs.
    `inputs` says where its inputs are from, and `replayed`, of a recorded call, of each output
    whether it is `equal` to the recorded one, bit for bit, `differs`, is `unknown`, or a `value`
    that is no tensor. `by_probe` is true where a probe ended it, as `--stop` asks for.
    """

    path: Path
    code: Code
    dump: Path | None
    launches: tuple[Launch, ...]
    events: tuple[Json, ...]
    outputs: tuple[Json, ...]
    random_globals: tuple[str, ...]
    seconds: float
    ended: ExitStatus
    inputs: Inputs = "random"
    replayed: tuple[Replayed, ...] = ()
    by_probe: bool = False

    @property
    def message(self) -> str:
        """The text of the exception that the wrapper raised, or what the time limit was."""
        return self.ended.message

    @property
    def signal(self) -> int:
        """The signal that ended the process; 0 if none did."""
        return self.ended.signal

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped at the time limit."""
        return self.ended.timed_out

    @property
    def exit_code(self) -> int | None:
        """That of the process; `None` if a signal or the time limit ended it."""
        return self.ended.code

    @property
    def interrupted(self) -> int:
        """The signal that this process was given, which is why it was stopped; 0 if it was not."""
        return self.ended.interrupted

    @property
    def crashed(self) -> bool:
        """Whether it did not come to its end, and no probe ended it."""
        return self.ended.code != 0 and not self.by_probe

    @property
    def unexpected(self) -> tuple[Json, ...]:
        """The rows of inputs that are not what the wrapper expects."""
        return tuple(row for row in self.events if "unexpected" in row)

    @property
    def is_timed(self) -> bool:
        """Whether launches were timed."""
        return any("time" in row for row in self.events)


class InterruptedRunError(KeyboardInterrupt):
    """This process was told to end and stopped the wrapper. `result` is what it left.

    To a caller that does not catch it, it is a KeyboardInterrupt like any other.
    """

    def __init__(self, result: RunResult) -> None:
        super().__init__(str(result.ended))
        self.result = result
