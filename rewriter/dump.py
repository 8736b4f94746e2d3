"""Reads a dump: its runs, and what happened in each, launch by launch, in the order of the run.

The layout is written by `rewriter/runtime/dump.py` and its C++ counterpart. Rows are read from
disk when they are asked for: a dump may be larger than memory, and its events many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rewriter.errors import RewriterError
from rewriter.types import Json

MANIFEST, RUN, EVENTS = "manifest.json", "run.json", "events.jsonl"
_RUN_PATH = re.compile(r"rank(\d+)/run(\d+)$")


@dataclass(frozen=True)
class Step:
    """One launch as it ran. `position` counts the steps of the run, from 0.

    `launch` is the launch's index in its wrapper, `None` for the inputs of the call, which come
    first; `iteration` counts the runs of that launch in this call. `offset` and `size` tell where
    in the events file the rows are.
    """

    position: int
    launch: int | None
    iteration: int
    kernel: str
    offset: int
    size: int

    def __str__(self) -> str:
        if self.launch is None:
            return "inputs"
        return f"#{self.launch}" + (f".{self.iteration}" if self.iteration else "")


@dataclass(frozen=True)
class RunDump:
    """One call of one wrapper. `facts` is its `run.json`, `path` its directory."""

    path: Path
    rank: int
    number: int
    facts: Json = field(repr=False)

    @property
    def name(self) -> str:
        return f"rank{self.rank}/run{self.number}"

    @property
    def artifact(self) -> str:
        """The wrapper that was called."""
        return str(self.facts.get("artifact", ""))

    @cached_property
    def table(self) -> dict[int, Json]:
        """What was known of each probed launch, by its index: `kernel`, `kind`, `line`, …"""
        return {row["launch"]: row for row in self.facts.get("launches", ())}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every launch in the order in which they ran, the inputs of the call first."""
        return tuple(self._steps())

    def rows(self, step: Step) -> list[Json]:
        """The events of a step: one row for each phase and argument."""
        with (self.path / EVENTS).open("rb") as file:
            file.seek(step.offset)
            data = file.read(step.size)
        return [json.loads(line) for line in data.splitlines()]

    def _steps(self) -> Iterator[Step]:
        position = 0
        current: tuple[int | None, int, str] | None = None
        start = offset = 0
        for line, row in _rows(self.path / EVENTS):
            which = (row.get("launch"), row.get("iteration", 0), row.get("kernel", ""))
            if which != current:
                if current is not None:
                    yield Step(position, *current, start, offset - start)
                    position += 1
                current, start = which, offset
            offset += line
        if current is not None:
            yield Step(position, *current, start, offset - start)


@dataclass(frozen=True)
class Dump:
    """What a probed program left. `manifest` is empty where only a run of a dump was named."""

    path: Path
    manifest: Json
    runs: tuple[RunDump, ...]


def open_dump(path: str | Path) -> Dump:
    """Open a dump, one rank of it, or one run: `DUMP`, `DUMP/rank1`, `DUMP/rank0/run3`.

    Raises `RewriterError` where there is none, or none with an event.
    """
    path = Path(path)
    if not path.is_dir():
        raise RewriterError(
            "not-a-dump",
            f"{path} is no dump: {'it is a file' if path.exists() else 'no such directory'}",
            hint="Expected the directory that `rewriter run FILE --probe save` or an instrumented "
            "program with REWRITER_DUMP wrote.",
        )
    found = sorted(
        (run for file in _run_files(path) if (run := _open_run(file)) is not None),
        key=lambda run: (run.rank, run.number),
    )
    if not found:
        raise RewriterError(
            "not-a-dump",
            f"{path} is no dump: no {EVENTS} in it or below",
            hint="Expected the directory that `rewriter run FILE --probe save` or an instrumented "
            "program with REWRITER_DUMP wrote.",
        )
    return Dump(path, _manifest(path), tuple(found))


def _run_files(path: Path) -> Iterator[Path]:
    for pattern in (EVENTS, f"run*/{EVENTS}", f"rank*/run*/{EVENTS}"):
        yield from path.glob(pattern)


def _open_run(events: Path) -> RunDump | None:
    path = events.parent
    match = _RUN_PATH.search(path.absolute().as_posix())
    rank, number = (int(match[1]), int(match[2])) if match else (0, 0)
    return RunDump(path, rank, number, _read_json(path / RUN))


def _manifest(path: Path) -> Json:
    for directory in (path, *path.absolute().parents[:2]):
        if (directory / MANIFEST).is_file():
            return _read_json(directory / MANIFEST)
    return {}


def _read_json(path: Path) -> Json:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(loaded, dict):
            raise ValueError("it holds no object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from error
    return loaded


def _rows(path: Path) -> Iterator[tuple[int, Json]]:
    """Every row and its size in bytes; a last one that a crash cut short is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
                row.get("launch")
            except (ValueError, AttributeError) as error:
                raise _corrupt(path, f"line {number} is no JSON object") from error
            yield len(line), row


def _corrupt(path: Path, found: str) -> RewriterError:
    return RewriterError(
        "corrupt-dump",
        f"{path}: {found}",
        hint="Copy the dump again, or run the program once more.",
    )
