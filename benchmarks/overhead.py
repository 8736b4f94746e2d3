"""What one launch costs in Python: the methods that an instrumented wrapper calls, on the CPU.

    python -m benchmarks.overhead [--launches N] [--json FILE] [--check]

A launch has one input and one result of 64 elements each, so that the cost of the launch is what is
measured, and not that of its values. For the memory probes, a buffer is allocated for each launch,
and that of the launch before is released. The reference is an empty Python method that is called
the same way. Times are CPU time of all threads of this process, the best of several rounds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import Row, options, report
from rewriter.runtime import attach

ROUNDS = 7


class Empty:
    """A recorder that does nothing: the reference."""

    def begin(self, values: Any = None) -> None:
        pass

    def before(self, launch: int, *values: Any) -> None:
        pass

    def after(self, launch: int, *values: Any) -> None:
        pass

    def allocated(self, event: int, tensor: Any) -> Any:
        return tensor

    def released(self, event: int, tensor: Any) -> None:
        pass

    def checked(self, launch: int) -> None:
        pass


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--launches", type=int, default=168, help="launches of a call")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        Row(f"{name}, {phases}", measured, reference, None, "us")
        for name, phases, probes, target, environment in _cases()
        for measured, reference in [_case(probes, phases, args.launches, target, environment)]
    ]
    return report(rows, args, torch=torch.__version__, launches=args.launches)


def _cases() -> Iterator[tuple[str, str, list[str], str, dict[str, str]]]:
    quiet = {"REWRITER_QUIET": "1"}
    yield "names, to a file", "before", ["names"], "file", {}
    yield "names, to a pipe", "before", ["names"], "pipe", {}
    yield "names, into a dump", "before", ["names"], "file", {"REWRITER_DUMP": "dump"}
    yield "print, to a pipe", "after", ["print"], "pipe", {}
    yield "print, to a pipe", "both", ["print"], "pipe", {}
    yield "statistics, into a dump", "after", ["print"], "file", {**quiet, "REWRITER_DUMP": "dump"}
    yield "fingerprint, into a dump", "after", ["hash"], "file", {**quiet, "REWRITER_DUMP": "dump"}
    yield "record, into its ring", "both", ["record"], "file", {**quiet, "REWRITER_DUMP": "dump"}
    yield "fingerprint, into a dump", "both", ["hash"], "file", {**quiet, "REWRITER_DUMP": "dump"}
    yield "memory", "all", ["bounds", "poison", "stale"], "file", quiet


def _case(
    probes: list[str], phases: str, launches: int, target: str, environment: dict[str, str]
) -> tuple[float, float]:
    """Microseconds per launch, with these probes and with empty methods."""
    with tempfile.TemporaryDirectory() as folder, _environment(folder, environment):
        recorder = attach(
            _table_options(probes, phases, launches), _table(launches, probes, phases)
        )
        with _stdout(target, Path(folder)):
            measured = _measure(recorder, launches, probes, phases)
            recorder.close()
    return measured, _measure(Empty(), launches, probes, phases)


def _measure(recorder: Any, launches: int, probes: list[str], phases: str) -> float:
    if phases == "all":
        return _measure_memory(recorder, launches)
    given, result = torch.ones(8, 8), torch.zeros(8, 8)
    values = [] if probes in (["names"], ["record"]) else [given]
    results = [] if probes == ["names"] else [*values, result]
    has_before, has_after = phases != "after", phases != "before"

    def call() -> None:
        recorder.begin()
        for launch in range(launches):
            if has_before:
                recorder.before(launch, *values)
            if has_after:
                recorder.after(launch, *results)

    call()
    return min(_cpu_time(call) for _ in range(ROUNDS)) / launches * 1e6


def _measure_memory(recorder: Any, launches: int) -> float:
    allocate = torch._C._dynamo.guards._empty_strided_cpu

    def call() -> None:
        recorder.begin()
        last = None
        for launch in range(launches):
            buffer = allocate((8, 8), (8, 1), torch.float32)
            buffer = recorder.allocated(2 * launch, buffer)
            recorder.checked(launch)
            if last is not None:
                recorder.released(2 * launch + 1, last)
                del last
            last = buffer
            del buffer

    call()
    return min(_cpu_time(call) for _ in range(ROUNDS)) / launches * 1e6


def _cpu_time(act: Callable[[], None]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


def _table_options(probes: list[str], phases: str, launches: int) -> dict[str, Any]:
    return {
        "artifact": "w.py",
        "sha256": "",
        "version": "0",
        "probes": probes,
        "when": phases,
        "format": "text",
        "values": False,
        "memory": [{"event": event, "buffer": f"buf{event // 2}"} for event in range(2 * launches)]
        if phases == "all"
        else [],
    }


def _table(launches: int, probes: list[str], phases: str) -> list[dict[str, Any]]:
    values = [["in", "arg0_1"]] if probes not in (["names"], ["record"]) else []
    row: dict[str, Any] = {"kind": "cpp", "repeats": False}
    if phases != "after":
        row["before"] = values
    if phases == "all":
        row = {"kind": "cpp", "repeats": False}
    elif phases != "before":
        row["after"] = [*values, ["out", "buf0"]] if probes != ["names"] else []
    return [{"launch": index, "kernel": f"cpp_fused_{index}", **row} for index in range(launches)]


@contextlib.contextmanager
def _environment(folder: str, variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, with the dump below `folder`, and unset all others of the tool."""
    names = ("REWRITER_DUMP", "REWRITER_QUIET", "REWRITER_PROBE", "REWRITER_CALLS")
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    for name, value in variables.items():
        os.environ[name] = f"{folder}/{value}" if name == "REWRITER_DUMP" else value
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(kept)


@contextlib.contextmanager
def _stdout(target: str, folder: Path) -> Iterator[None]:
    """Redirect standard output to a file, or to a pipe that another process reads."""
    sys.stdout.flush()
    kept = os.dup(1)
    reader = 0
    if target == "pipe":
        end, other = os.pipe()
        reader = os.fork()
        if not reader:
            os.close(other)
            while os.read(end, 1 << 16):
                pass
            os._exit(0)
        os.close(end)
    else:
        other = os.open(folder / "stdout", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(other, 1)
    os.close(other)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        if reader:
            os.waitpid(reader, 0)


if __name__ == "__main__":
    sys.exit(main())
