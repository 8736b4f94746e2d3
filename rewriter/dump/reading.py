"""Reads a dump: its runs, and what happened in each, launch by launch, in the order of the run.

`rewriter/runtime/cpp/dump.h` has the layout. Rows are read from disk when
they are needed: a dump may be larger than memory.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TypeVar

from msgspec import structs

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.dump import document_files, processes, recorded
from rewriter.dump import names as dumped
from rewriter.dump.allowed import Allowed
from rewriter.dump.being_read import Reading, hold
from rewriter.dump.changed import updates
from rewriter.dump.directory import of_diagnosis
from rewriter.dump.document_files import EVENTS, RunTables, corrupt
from rewriter.dump.documents import LaunchRow, Manifest, RunFacts
from rewriter.dump.names import Names
from rewriter.dump.processes import PieceOfModel, ProcessNames
from rewriter.dump.rows import (
    CoverageRow,
    EventRow,
    InputRow,
    MemoryRow,
    SchemaError,
    TimeRow,
    read_memory_row,
    read_row,
)

MEMORY = "memory.jsonl"
_KEPT_BYTES = 32 << 20  # some 100,000 rows
_YEAR_10000 = 253_402_300_800  # in seconds since 1970
_RUN_PATH = re.compile(r"rank(\d+)/run(\d+)$")
_UNKNOWN = LaunchRow(launch=0)
_R = TypeVar("_R", bound=EventRow)


def label(launch: int, iteration: int) -> str:
    """The name of a launch as it ran: `#12`, and `#12.1` for its second run in a call."""
    return f"#{launch}.{iteration}" if iteration else f"#{launch}"


@dataclass(frozen=True)
class RunStep:
    """One launch as it ran. `position` counts the steps of the run, from 0.

    `launch` is the launch's index in its wrapper, `None` for the inputs of the call, which come
    first; `iteration` counts the runs of that launch in this call. `offset` and `size` are the
    place of its rows in the events file.
    """

    position: int
    launch: int | None
    iteration: int
    kernel: str
    offset: int
    size: int

    @property
    def which(self) -> tuple[int | None, int]:
        """The launch, `None` for the inputs of the call, and which run of it."""
        return self.launch, self.iteration

    def __str__(self) -> str:
        return "inputs" if self.launch is None else label(self.launch, self.iteration)


@dataclass(frozen=True)
class RunDump:
    """One call of one wrapper. `facts` is its `run.json`, `path` its directory.

    `copy` counts from 0 if a process loaded the wrapper several times: each copy counts its own
    calls. It is `None` if there is one copy, or if only this run of a dump was opened.
    """

    path: Path
    rank: int
    number: int
    facts: RunFacts = field(repr=False)
    copy: int | None = None
    # The rows of each step, if the file is not long: reading them takes longer than using them.
    _kept: dict[int, list[EventRow]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return f"rank{self.rank}/run{self.number}"

    @property
    def artifact(self) -> str:
        """The wrapper that was called."""
        return self.facts.artifact

    @property
    def call_index(self) -> int | None:
        """The number of the call of its wrapper, from 0, as `--calls` counts; `None` if unknown."""
        return self.facts.call if isinstance(self.facts.call, int) else None

    @property
    def call(self) -> int:
        """The same from 1; 0 if that is not recorded."""
        return 0 if self.call_index is None else self.call_index + 1

    @property
    def started(self) -> float | None:
        """When it began, in seconds of the wall clock; `None` if that is not known, or no date."""
        started = self.facts.started
        is_date = isinstance(started, (int, float)) and 0 <= started < _YEAR_10000
        return float(started) if is_date else None

    @property
    def sha256(self) -> str:
        """The hash of that wrapper without probes; empty in a dump of an early version."""
        return self.facts.sha256

    @property
    def graph(self) -> str:
        """The text of the graph that the wrapper was compiled from; empty if not known."""
        return dumped.read_graph(self.path.parent.parent, self.sha256)

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the run's dump."""
        return document_files.read_manifest(self.path)

    @cached_property
    def table(self) -> dict[int, LaunchRow]:
        """The facts about each probed launch, by its index."""
        rows = {row.launch: row for row in self.facts.launches}
        for index, nodes in self.names.nodes.items():
            if index in rows and not rows[index].source_nodes:
                rows[index] = structs.replace(rows[index], source_nodes=nodes)
        return rows

    def step(self, launch: int | None, iteration: int = 0) -> RunStep | None:
        """The step in which a launch ran for the n-th time; `None` if it did not."""
        return next((x for x in self.steps if x.which == (launch, iteration)), None)

    def launch_row(self, launch: int | None) -> LaunchRow:
        """The row of a launch in the table; an empty one for what is not in the table."""
        return _UNKNOWN if launch is None else self.table.get(launch, _UNKNOWN)

    @cached_property
    def names(self) -> Names:
        """The names of the wrapper's kernels and inputs in the model, if the dump has them."""
        return dumped.read(self.path.parent.parent).get(self.sha256, Names())

    @cached_property
    def process(self) -> ProcessNames:
        """The facts about the process that made the call, if the dump has them."""
        return processes.read(self.path.parent.parent).get(self.facts.pid or 0, ProcessNames())

    @property
    def piece(self) -> PieceOfModel | None:
        """The piece of the model that the call is, if a model was split and the dump says so."""
        return self.process.piece(self.sha256, self._turn)

    @property
    def piece_words(self) -> str:
        """The piece as text; empty if it is not known."""
        return self.process.words(self.sha256, self._turn)

    @property
    def _turn(self) -> int | None:
        """The number of the call in the cycle of the model's pieces: a model calls these in turn,
        as different copies of a wrapper, or as calls of one copy."""
        return self.call_index if self.copy is None else self.copy

    @cached_property
    def cut(self) -> bool:
        """Whether the last line of the events was cut off when the program stopped."""
        with self.open_events() as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            return file.read() not in (b"\n", b"")

    @cached_property
    def steps(self) -> tuple[RunStep, ...]:
        """Every launch in the order of execution, the inputs of the call first."""
        with self.open_events() as file:
            is_kept = file.seek(0, os.SEEK_END) <= _KEPT_BYTES
        steps = []
        for step, rows in self.walk():
            steps.append(step)
            if is_kept:
                self._kept[step.position] = updates(self.path, self.launch_row(step.launch), rows)
        return tuple(steps)

    def rows(self, step: RunStep) -> list[EventRow]:
        """The events of a step: one row for each phase and argument."""
        if step.position in self._kept:
            return list(self._kept[step.position])
        with self.open_events() as file:
            file.seek(step.offset)
            data = file.read(step.size)
        try:
            rows = [read_row(json_text.parse_object(line)) for line in data.split(b"\n") if line]
        except (json_text.JsonError, SchemaError) as error:  # it was valid before
            problem = f"it was changed while it was read: {error}"
            raise corrupt(self.path / EVENTS, problem) from error
        rows = [row for row in rows if not isinstance(row, TimeRow)]
        return updates(self.path, self.launch_row(step.launch), rows)

    @property
    def inputs(self) -> list[EventRow]:
        """The events of the inputs of the call; none if these were not recorded."""
        return [row for step in self.steps[:1] if step.launch is None for row in self.rows(step)]

    def events(self) -> Iterator[EventRow]:
        """Yield every row of any step, in the order of the file."""
        return (row for _, row in document_files.lines(self.path / EVENTS, read_row))

    def having(self, field: str, kind: type[_R]) -> Iterator[_R]:
        """Yield the rows of a kind, which have this field. Most files have no such rows, and they
        may be long."""
        if f'"{field}"'.encode() in self.event_bytes():
            yield from (row for row in self.events() if isinstance(row, kind))

    def unexpected(self) -> Iterator[InputRow]:
        """Yield inputs of the call that differ from what the wrapper was compiled for."""
        rows = self.having("unexpected", EventRow)
        return (row for row in rows if isinstance(row, InputRow) and row.unexpected)

    @cached_property
    def memory(self) -> tuple[MemoryRow | CoverageRow, ...]:
        """The rows of the memory probes; empty if there were none."""
        path = self.path / MEMORY
        if not path.exists():
            return ()
        return tuple(row for _, row in document_files.lines(path, read_memory_row))

    @cached_property
    def saves(self) -> bool:
        """Whether tensors were saved, judging by the rows."""
        return b'"file"' in self.event_bytes()

    def open_events(self) -> BinaryIO:
        """Open the file of the rows. Raises `RewriterError` if the program has removed the call."""
        return document_files.open_events(self.path / EVENTS)

    def event_bytes(self) -> bytes:
        """All rows as bytes; the last one may be incomplete."""
        with self.open_events() as file:
            return file.read()

    def walk(self) -> Iterator[tuple[RunStep, list[EventRow]]]:
        """Yield every step with its rows, in one pass over the file.

        Raises `RewriterError` at the first line that is not as a runtime writes it, after the rows
        before it.
        """
        position = start = offset = 0
        current: tuple[int | None, int, str] | None = None
        rows: list[EventRow] = []
        try:
            for size, row in document_files.lines(self.path / EVENTS, read_row):
                if not isinstance(row, TimeRow):
                    if (which := (*row.which, row.kernel)) != current:
                        if current is not None:
                            yield RunStep(position, *current, start, offset - start), rows
                            position += 1
                        current, start, rows = which, offset, []
                    rows.append(row)
                offset += size
        except RewriterError:
            if current is not None:
                yield RunStep(position, *current, start, offset - start), rows
            raise
        if current is not None:
            yield RunStep(position, *current, start, offset - start), rows


@dataclass(frozen=True)
class Dump:
    """The dump of a probed program. `manifest` is empty if only a run of a dump was opened.

    As long as `reading` exists, a program that removes old calls waits, up to a limit.
    """

    path: Path
    manifest: Manifest
    runs: tuple[RunDump, ...]
    reading: Reading | None = field(default=None, repr=False, compare=False)

    @property
    def home(self) -> Path:
        """The directory of the runs and of the files about them. It is not `path` but a temporary
        dump if rings of the probe `record` were converted to runs (`recorded.with_runs`)."""
        run = self.runs[0].path.absolute()
        return run.parents[1] if _RUN_PATH.search(run.as_posix()) else self.path

    @property
    def launches(self) -> int:
        """How many launches ran."""
        return sum(step.launch is not None for run in self.runs for step in run.steps)

    @property
    def allowed(self) -> Allowed:
        """The values that may be NaN or infinite."""
        return Allowed(self.manifest.allow)

    @property
    def caveat(self) -> str:
        """What a reader of any finding in this dump needs to know: that the inputs were random, or
        that not all recorded calls are shown. Usually empty."""
        random = (
            "The inputs were random, made by the wrapper's own get_args(): a real program may "
            "never pass such values."
        )
        of_inputs = random if self.manifest.inputs == "random" else ""
        return f"{of_inputs} {recorded.notes(self.home)}".strip()


def is_recorded(dump: Path) -> bool:
    """Whether a dump has an event: a program may end before it writes one."""
    return next(recorded.with_runs(dump).glob(f"rank*/run*/{EVENTS}"), None) is not None


def is_dump(path: str | Path) -> bool:
    """Whether a path is what `open_dump` opens, and no artifact: a dump, also one without an event,
    or a rank or a call of one."""
    path = of_diagnosis(Path(path))
    if not path.is_dir():
        return False
    if (
        document_files.names_dump(path)
        or next(_run_files(recorded.with_runs(path)), None) is not None
    ):
        return True
    return recorded.unreadable_ring(path) is not None


def open_dump(path: str | Path) -> Dump:
    """Open a dump, one rank of it, or one run: `DUMP`, `DUMP/rank1`, `DUMP/rank0/run3`; of a whole
    diagnosis, the dump with most values.

    Raises `RewriterError` if there is none, or none with an event.
    """
    path = of_diagnosis(Path(path))
    if not path.is_dir():
        raise _no_dump(path, "it is a file" if path.exists() else "no such directory")
    reading = hold(path)
    tables = RunTables()
    opened = (_open_run(events, tables) for events in _run_files(recorded.with_runs(path)))
    runs = sorted(filter(None, opened), key=lambda run: (run.rank, run.number))
    if not runs:
        if (ring := recorded.unreadable_ring(path)) is not None:
            raise corrupt(ring, "it is not all there, or of another version")
        raise _no_dump(path, f"no {EVENTS} in it or below")
    return Dump(path, document_files.read_manifest(path), tuple(_counted(runs)), reading)


def _no_dump(path: Path, why: str) -> RewriterError:
    return RewriterError(
        "not-a-dump",
        f"{path} is no dump: {why}",
        hint="Expected the directory that `rewriter run FILE --probe save` or an instrumented "
        "program with REWRITER_DUMP wrote.",
    )


def _counted(runs: Sequence[RunDump]) -> Iterator[RunDump]:
    """Number the copies of a wrapper: if several runs have the same number of a call, as many
    copies were called, in the same order each time."""
    seen: Counter[object] = Counter()
    copies: list[tuple[tuple[object, ...], int]] = []
    for run in runs:
        wrapper: tuple[object, ...] = (run.rank, run.facts.pid, run.artifact, run.sha256)
        call = (*wrapper, run.facts.call)
        copies.append((wrapper, seen[call]))
        seen[call] += isinstance(run.facts.call, int)
    several = {wrapper for wrapper, copy in copies if copy}
    for run, (wrapper, copy) in zip(runs, copies, strict=True):
        yield replace(run, copy=copy) if wrapper in several else run


def _run_files(path: Path) -> Iterator[Path]:
    for pattern in (EVENTS, f"run*/{EVENTS}", f"rank*/run*/{EVENTS}"):
        yield from path.glob(pattern)


def _open_run(events: Path, tables: RunTables) -> RunDump | None:
    """Open one call; `None` if a running program has removed it meanwhile."""
    path = events.parent
    try:
        events.open("rb").close()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise corrupt(events, f"cannot be read: {error.strerror}") from error
    match = _RUN_PATH.search(path.absolute().as_posix())
    rank, number = (int(match[1]), int(match[2])) if match else (0, 0)
    facts = tables.facts(path / document_files.RUN)
    # If the call was removed meanwhile, its facts may be incomplete.
    return RunDump(path, rank, number, facts) if events.exists() else None
