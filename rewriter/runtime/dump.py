"""Writes a dump: a manifest, and per rank and call the events and the tensors saved.

    DUMP/manifest.json
    DUMP/rank0/run0/run.json
    DUMP/rank0/run0/events.jsonl
    DUMP/rank0/run0/000012/after_launch_triton_poi_fused_0_buf3_cuda:0.pt

A run directory belongs to one call of one wrapper, whoever makes it first: processes and wrappers
that share a DUMP never write to one another's files, and nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch

from .event import Event, Value
from .saved import Saved, saved_in
from .statistics import Statistics

DEFAULT = "rewriter_dump"
_NAME_MAX = 255  # bytes, on every file system in use


class DumpWriter:
    """The dump of one wrapper in one process; nothing is created before the first run starts."""

    def __init__(self, root: Path, rank: int, options: dict[str, Any], table: Any) -> None:
        self._root = root
        self._rank = rank
        self._options = options
        self._table = table
        self._next = 0  # the first run that may be free
        self._last = int(options.get("last") or 0)  # how many runs are kept, 0 for all of them
        self._finished: deque[Path] = deque()

    def start(self, call: int) -> CallDirectory:
        """A new directory for one call of the wrapper; they are numbered as its calls are, or on
        from there where others have those numbers."""
        self._write_manifest()
        path = self._make_directory(call)
        facts = {
            "format": "rewriter.run",
            "version": 1,
            "artifact": self._options["artifact"],
            # Of the wrapper without probes: others may have the same name.
            "sha256": self._options["sha256"],
            "label": self._options.get("label", ""),
            "call": call,
            "pid": os.getpid(),
            "thread": threading.get_ident(),
            "started": time.time(),
            # A file that was instrumented by an earlier version does not say.
            "outputs": self._options.get("outputs", {}),
            "launches": self._table,
        }
        _write_json(path / "run.json", facts)
        return CallDirectory(path, saved_in(self._root))

    def finish(self, run: CallDirectory) -> None:
        """The call is over. Of calls that are over only the last ones are kept, if that was asked
        for; a process that is killed leaves those, and what it was in."""
        run.close()
        if not self._last:
            return
        self._finished.append(run.path)
        while len(self._finished) > self._last:
            # Somebody may have moved it away, to keep it.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._finished.popleft())

    def _make_directory(self, call: int) -> Path:
        ranked = self._root / f"rank{self._rank}"
        ranked.mkdir(parents=True, exist_ok=True)
        self._next = max(self._next, call)
        while True:
            path = ranked / f"run{self._next}"
            self._next += 1
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path

    def _write_manifest(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        path = self._root / "manifest.json"
        if path.exists():
            return
        facts = {
            "format": "rewriter.dump",
            "version": 1,
            "artifact": self._options["artifact"],
            "sha256": self._options["sha256"],
            "rewriter": self._options["version"],
            "probes": self._options["probes"],
            "torch": torch.__version__,
            "device": _device(),
            "command": os.environ.get("REWRITER_COMMAND", " ".join(sys.argv)),
        }
        _write_json(path, facts)


class CallDirectory:
    """The directory of one call: its events, and the tensors saved."""

    def __init__(self, path: Path, saved: Saved) -> None:
        self.path = path
        self._saved = saved
        self._events = (path / "events.jsonl").open("x", encoding="utf-8")

    def write(self, event: Event) -> None:
        """Append an event: one line per value, or one line if no value was read. Flushed."""
        base = _base(event)
        last = {"captured": True} if event.captured else {}
        rows = [
            {**base, **_described(value), **_unexpected(event, value), **last}
            for value in event.values
        ] or [base]
        self._events.write("".join(json.dumps(row) + "\n" for row in rows))
        self._events.flush()

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Append a row of its own about an event. Flushed."""
        self._events.write(json.dumps({**_base(event), **facts}) + "\n")
        self._events.flush()

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor; the path of the file, relative to the directory of this call."""
        again = f".{event.iteration}" if event.iteration else ""
        folder = f"{event.launch.index:06d}{again}" if event.launch else event.phase
        path = self.path / folder / _file_name(event, value)
        path.parent.mkdir(exist_ok=True)
        content = value.content
        if content.layout is not torch.strided:
            content = content.to_dense()
        # A copy of its own: a view would be saved with all of the memory that it looks at.
        content = content.to("cpu", copy=True)
        self._saved.save(content.clone() if content._is_view() else content, path)
        return f"{folder}/{path.name}"

    def close(self) -> None:
        self._events.close()


def _base(event: Event) -> dict[str, Any]:
    base: dict[str, Any] = {"phase": event.phase}
    if event.launch is not None:
        base = {"launch": event.launch.index, **base, "kernel": event.launch.kernel}
        if event.launch.repeats or event.iteration:
            base["iteration"] = event.iteration
    return base


def _unexpected(event: Event, value: Value) -> dict[str, str]:
    problem = event.unexpected.get(value.label.name)
    return {"unexpected": problem} if problem else {}


def _described(value: Value) -> dict[str, Any]:
    row: dict[str, Any] = {"arg": value.label.name, "role": value.label.role}
    if not value.is_tensor:
        return {**row, "type": value.kind, "value": value.text}
    row |= {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "stride": list(value.stride),
        "device": value.device,
    }
    if value.statistics is not None:
        row |= _statistics(value.statistics)
    if value.sha256:
        row["sha256"] = value.sha256
    if value.file:
        row["file"] = value.file
    return row


def _statistics(statistics: Statistics) -> dict[str, Any]:
    row = {
        "numel": statistics.numel,
        "min": _finite(statistics.minimum),
        "max": _finite(statistics.maximum),
        "mean": _finite(statistics.mean),
        "std": _finite(statistics.std),
        "nan": statistics.nan,
        "inf": statistics.inf,
    }
    return row if statistics.of == "value" else {**row, "of": statistics.of}


def _finite(value: int | float | None) -> int | float | str | None:
    """JSON has no infinity; the contract writes it as a string."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _file_name(event: Event, value: Value) -> str:
    """Upstream's documented name; a long one keeps its ends and is told apart by a hash."""
    rest = f"_{value.label.name}_{value.device}.pt".replace("/", "_")
    if event.launch is None:
        return f"aoti_model_inputs{rest}"
    kernel = event.launch.kernel.replace("/", "_")
    start = f"{event.phase}_launch_"
    room = _NAME_MAX - len((start + rest).encode())
    if len(kernel.encode()) > room:
        digest = hashlib.sha256(kernel.encode()).hexdigest()[:8]
        kernel = f"{kernel.encode()[: room - 9].decode('utf-8', 'ignore')}~{digest}"
    return f"{start}{kernel}{rest}"


def _device() -> str:
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.get_device_name()
    return "cpu"


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    """Whole or not at all; whoever comes second writes the same."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
