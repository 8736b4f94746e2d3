"""Reads a dump: its runs, and what happened in each, launch by launch, in the order of the run.

The layout is written by `rewriter/runtime/dump.py` and its C++ counterpart. Rows are read from
disk when they are asked for: a dump may be larger than memory, and its events many.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump import names as dumped
from rewriter.dump.names import Names

MANIFEST, RUN, EVENTS = "manifest.json", "run.json", "events.jsonl"
_RUN_PATH = re.compile(r"rank(\d+)/run(\d+)$")


def label(launch: int, iteration: int) -> str:
    """How people name a launch as it ran: `#12`, and `#12.1` for its second run in a call."""
    return f"#{launch}.{iteration}" if iteration else f"#{launch}"


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
        return "inputs" if self.launch is None else label(self.launch, self.iteration)


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

    @property
    def sha256(self) -> str:
        """The hash of that wrapper without probes; empty in a dump of an early version."""
        return str(self.facts.get("sha256", ""))

    @cached_property
    def table(self) -> dict[int, Json]:
        """What was known of each probed launch, by its index: `kernel`, `kind`, `line`, …"""
        rows = {row["launch"]: row for row in self.facts.get("launches", ())}
        for index, nodes in self.names.nodes.items():
            if index in rows and not rows[index].get("source_nodes"):
                rows[index] = {**rows[index], "source_nodes": list(nodes)}
        return rows

    @cached_property
    def names(self) -> Names:
        """What the wrapper's kernels and inputs are called in the model, if the dump says so."""
        return dumped.read(self.path.parent.parent).get(self.sha256, Names())

    @cached_property
    def cut(self) -> bool:
        """Whether the last line of the events was cut short: the program was stopped in it."""
        with (self.path / EVENTS).open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            return file.read() not in (b"\n", b"")

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every launch in the order in which they ran, the inputs of the call first."""
        return tuple(self._steps())

    def rows(self, step: Step) -> list[Json]:
        """The events of a step: one row for each phase and argument."""
        with (self.path / EVENTS).open("rb") as file:
            file.seek(step.offset)
            data = file.read(step.size)
        rows = [json_text.parse_object(line) for line in data.split(b"\n") if line]
        return [row for row in rows if not _is_timing(row)]

    def events(self) -> Iterator[Json]:
        """Every row, whichever step it belongs to, in the order of the file."""
        return (row for _, row in _rows(self.path / EVENTS))

    def having(self, field: str) -> Iterator[Json]:
        """Those of the `events` that have a field."""
        # Most files have none, and they may be long.
        if f'"{field}"'.encode() in (self.path / EVENTS).read_bytes():
            yield from (row for row in self.events() if field in row)

    def _steps(self) -> Iterator[Step]:
        position = 0
        current: tuple[int | None, int, str] | None = None
        start = offset = 0
        for line, row in _rows(self.path / EVENTS):
            if _is_timing(row):
                offset += line
                continue
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

    @property
    def caveat(self) -> str:
        """What holds for all findings in this dump: that the inputs were random; else empty."""
        if self.manifest.get("inputs") != "random":
            return ""
        return (
            "The inputs were random, made by the wrapper's own get_args(): a program may never "
            "give it such."
        )


def is_recorded(dump: Path) -> bool:
    """Whether a dump has an event: a program may end before it leaves one."""
    return next(dump.glob(f"rank*/run*/{EVENTS}"), None) is not None


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
    found = sorted(map(_open_run, _run_files(path)), key=lambda run: (run.rank, run.number))
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


def _open_run(events: Path) -> RunDump:
    path = events.parent
    try:
        events.open("rb").close()
    except OSError as error:
        raise _corrupt(events, f"cannot be read: {error.strerror}") from error
    match = _RUN_PATH.search(path.absolute().as_posix())
    rank, number = (int(match[1]), int(match[2])) if match else (0, 0)
    facts = _read_json(path / RUN)
    if wrong := _wrong_run(facts):
        raise _corrupt(path / RUN, f"{wrong} is not what a probed program writes")
    return RunDump(path, rank, number, facts)


def _is_timing(row: Json) -> bool:
    """Whether a row says how long a launch took: the device tells that late, between other rows."""
    return "time" in row and "arg" not in row


def _manifest(path: Path) -> Json:
    for directory in (path, *path.absolute().parents[:2]):
        if (directory / MANIFEST).is_file():
            return _read_json(directory / MANIFEST)
    return {}


def _read_json(path: Path) -> Json:
    try:
        return json_text.parse_object(limits.read(path, limits.JSON_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _corrupt(path, str(error)) from error
    except json_text.JsonError as error:
        raise _corrupt(path, f"it holds no JSON object: {error}") from error


def _rows(path: Path) -> Iterator[tuple[int, Json]]:
    """Every row and its size in bytes; a last one that a crash cut short is left out."""
    bound = limits.JSON_LINE_BYTES
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, bound + 1), b""), 1):
            if len(line) > bound:
                raise _corrupt(path, f"line {number} is longer than {bound:,} bytes")
            if not line.endswith(b"\n"):
                return
            try:
                row = json_text.parse_object(line)
            except json_text.JsonError as error:
                raise _corrupt(path, f"line {number} is no JSON object: {error}") from error
            if wrong := _wrong_row(row):
                found = f"line {number}: {wrong} is not what a probed program writes"
                raise _corrupt(path, found)
            yield len(line), row


def _wrong_row(row: Json) -> str:
    """The name of a field whose value no probe writes; empty if there is none."""
    for name, sound in _ROW.items():
        if name in row and not sound(row[name]):
            return f"{name} {row[name]!r:.40}"
    # Of an unexpected input that is no value, such as None, nothing else is known.
    if "arg" in row and not row.keys() & {"dtype", "type", "unexpected"}:
        return "an argument without a type"
    return "" if "dtype" not in row or "shape" in row else "a tensor without a shape"


def _wrong_run(facts: Json) -> str:
    for name in ("pid", "thread"):
        # A thread of C++ may be any number of 64 bits.
        if name in facts and (isinstance(facts[name], bool) or not isinstance(facts[name], int)):
            return f"{name} {facts[name]!r:.40}"
    for name in ("artifact", "sha256"):
        if not _is_text(facts.get(name, "")):
            return f"{name} {facts[name]!r:.40}"
    launches, outputs = facts.get("launches", []), facts.get("outputs", {})
    if not isinstance(launches, list):
        return "launches"
    for row in launches:
        if not isinstance(row, dict) or not _is_count(row.get("launch")):
            return f"{row!r:.40} in launches"
        for name, sound in _LAUNCH.items():
            if name in row and not sound(row[name]):
                return f"{name} {row[name]!r:.40} of launch {row['launch']}"
    if not isinstance(outputs, dict) or not all(map(_are_names, outputs.values())):
        return "outputs"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_labels(value: object) -> bool:
    """What a line hands over: a list of role, name and, where it is another, expression."""
    return isinstance(value, list) and all(_are_names(x) and len(x) > 1 for x in value)


def _is_statistic(value: object) -> bool:
    """A number, a non-finite one as text, or nothing where there is none."""
    if value is None or isinstance(value, (int, float)):
        return not isinstance(value, bool) and value not in (math.inf, -math.inf)
    return value in ("inf", "-inf", "nan")


def _is_duration(value: Json) -> bool:
    numbers = (value.get("start_us"), value.get("duration_us"))
    return all(isinstance(x, (int, float)) and -1e18 < x < 1e18 for x in numbers)


_ROW: dict[str, Callable[[object], bool]] = {
    "launch": _is_count,
    "iteration": _is_count,
    **dict.fromkeys(("kernel", "arg", "dtype", "device", "file", "sha256", "type"), _is_text),
    **dict.fromkeys(("error", "unexpected"), _is_text),
    "captured": lambda value: isinstance(value, bool),
    "time": lambda value: isinstance(value, dict) and _is_duration(value),
    "phase": lambda value: value in ("inputs", "before", "after"),
    "role": lambda value: value in ("in", "out", "inout"),
    **dict.fromkeys(("shape", "stride"), _are_counts),
    **dict.fromkeys(("numel", "nan", "inf"), _is_count),
    **dict.fromkeys(("min", "max", "mean", "std"), _is_statistic),
}
_LAUNCH: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("kernel", "kind", "scope"), _is_text),
    "line": _is_count,
    **dict.fromkeys(("source_nodes", "origins"), _are_names),
    **dict.fromkeys(("before", "after"), _are_labels),
    "buffers": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
}


def _corrupt(path: Path, found: str) -> RewriterError:
    return RewriterError(
        "corrupt-dump",
        f"{path}: {found}",
        hint="Copy the dump again, or run the program once more.",
    )
