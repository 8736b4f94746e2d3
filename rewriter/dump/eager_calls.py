"""Calls of compiled functions that a program also made as plain Python: `eager/PID.jsonl`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from rewriter.core import json_text
from rewriter.core.types import Json
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import read as convert

FOLDER = "eager"


class EagerCall(Struct, frozen=True):
    """One call, or its backward (`part` is `gradients`), and how plain Python differs.

    `reason` says why it was not compared. `problems` are sentences, `notes` are about strides,
    which code may rely on or not. `outputs` and `updated` count what was compared, and what the
    call updates.
    """

    function: str
    file: str
    line: int
    call: int
    part: str
    reason: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: int = 0
    updated: int = 0
    pid: int = 0
    started: float = 0.0
    ended: float = 0.0

    @property
    def place(self) -> str:
        """Such as `pack (model.py:4)`."""
        return (
            f"{self.function} ({Path(self.file).name}:{self.line})" if self.file else self.function
        )

    @property
    def key(self) -> tuple[int, str, str, int, int]:
        """What a call and its backward have in common."""
        return self.pid, self.function, self.file, self.line, self.call

    def runs(self, dump: Dump) -> list[RunDump]:
        """The calls of wrappers that were recorded during it."""
        return [
            run
            for run in dump.runs
            if run.facts.pid == self.pid
            and run.started is not None
            and self.started <= run.started <= self.ended
        ]


def read(dump: Path) -> tuple[EagerCall, ...]:
    """The calls in a dump, in their order; a line that was cut off is left out."""
    found = []
    for path in sorted((dump / FOLDER).glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):  # killed while it wrote
                row = json_text.parse_object(line)
                problems = [_sentence(problem) for problem in row.get("problems", ())]
                found.append(convert(row | {"problems": problems}, EagerCall))
    return tuple(sorted(found, key=lambda x: x.started))


def _sentence(problem: Json) -> str:
    name, compiled, plain = problem["name"], problem["compiled"], problem["plain"]
    kind = problem["kind"]
    if kind == "values":
        return f"{name} is {compiled}, in plain Python {plain}: {problem['detail']}"
    if kind == "type":
        return f"{name} is {compiled}, in plain Python {plain}"
    return f"{name} has {kind} {compiled}, in plain Python {plain}"
