"""Writes a dump: a manifest, and for each rank and call its events and saved tensors.

    DUMP/manifest.json
    DUMP/rank0/run0/run.json
    DUMP/rank0/run0/launches.json
    DUMP/rank0/run0/events.jsonl
    DUMP/rank0/run0/000012/after_launch_triton_poi_fused_0_buf3_cuda:0.pt

A run directory belongs to the call of a wrapper that created it: processes and wrappers that share
a DUMP never write to one another's files, and nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from .device import tf32
from .event import Event, Value
from .event_queue import drain_queue
from .events_file import EventsFile, write_all
from .fingerprint import NAME, VERSION
from .process import read_size
from .rotation import kept_in
from .rows import event_rows, note_row
from .saved import Saved, saved_in
from .sizes import wanted_bytes, wanted_calls

DEFAULT = "rewriter_dump"
TABLE = "launches.json"
_NAME_MAX = 255  # bytes, on every file system in use


class DumpWriter:
    """Writes the dump of one wrapper in one process; creates nothing before the first call."""

    def __init__(self, root: Path, rank: int, options: dict[str, Any], table: Any) -> None:
        self._root = root
        self._ranked = root / f"rank{rank}"
        self._ranked_name = str(self._ranked)
        self._options = options
        self._table = table
        self._constant: bytes | None = None
        self._table_text: bytes | None = None
        self._table_file = ""  # the path of `launches.json` of the last call
        self._next = 0  # the lowest run number that may be free
        self._keep = wanted_calls(options)
        self._most = wanted_bytes(options)
        self._expected = 0  # bytes that the next call may need: those of the last one
        self._kept = kept_in(str(root))

    def start(self, call: int) -> CallDirectory | None:
        """Make the directory of a call; None if the dump has reached its limit of bytes.

        It gets the number of the call, or the next one that is free if another wrapper or process
        has taken that.
        """
        saved = saved_in(self._root, self._most)
        if self._most and not self._has_room(saved):
            return None
        if self._constant is None:
            self._write_manifest()
            self._ranked.mkdir(parents=True, exist_ok=True)
            if self._keep:
                self._kept.admit_readers()
            self._constant = self._constant_members()
        path = self._make_directory(call)
        # Formatted by hand: calling the JSON encoder would take longer than all the rest.
        changing = (
            f' "call": {call},\n "pid": {os.getpid()},\n "thread": {threading.get_ident()},\n'
            f' "started": {time.time()!r}\n}}\n'
        )
        try:
            self._write_table(path)
            _write_whole(path, "run.json", self._constant + changing.encode())
        except OSError:
            # The disk is full: each further call would leave an empty directory.
            shutil.rmtree(path, ignore_errors=True)
            raise
        return CallDirectory(path, saved)

    @property
    def full(self) -> str:
        """The warning for when `start` returned no directory."""
        return (
            f"--max-bytes: the rows have {self._most} bytes; no more calls are recorded, and the "
            "model runs on"
        )

    def finish(self, run: CallDirectory) -> None:
        """End a call, and remove the oldest calls if the dump keeps only the last ones.

        A process that is killed leaves the kept calls and those that were still running.
        """
        run.close()
        if not (self._keep or self._most):
            return
        if self._most:
            drain_queue()  # so that all rows of the call are in its file, and counted
        self._expected = self._kept.add(
            run.name, owner=id(self), keep=self._keep, counts=bool(self._most)
        )

    def _has_room(self, saved: Saved) -> bool:
        """Whether another call may be recorded; a dump that rotates removes old calls for it."""
        if not self._keep:
            return self._kept.used < self._most
        self._kept.make_room(self._expected, self._most)
        saved.restart(self._kept.used)
        return True

    def _constant_members(self) -> bytes:
        """The first part of every `run.json`: the members that are the same for all calls."""
        head = {
            "format": "rewriter.run",
            "version": 1,
            "artifact": self._options["artifact"],
            # Of the wrapper without probes; identifies it, since others may have the same name.
            "sha256": self._options["sha256"],
            "label": self._options.get("label", ""),
            "host": socket.gethostname(),
        }
        return f"{{\n{_members(head)},\n".encode()

    def _write_table(self, path: str) -> None:
        """Put `launches.json` into the directory of a call, as a hard link where possible.

        The table may be long and is the same for all calls. The link is made to the file of the
        last call, since those of earlier calls may have been removed.
        """
        file = f"{path}/{TABLE}"
        if self._table_file:
            try:
                os.link(self._table_file, file)
            except OSError:  # the file is gone, has too many links, or links are not supported
                self._table_file = ""
        if not self._table_file:
            _write_whole(path, TABLE, self._table_bytes())
        self._table_file = file

    def _table_bytes(self) -> bytes:
        if self._table_text is None:
            # These say how launches are measured, which readers of the dump do not need.
            own = {"together", "memory_waits"}
            rows = [{name: x[name] for name in x if name not in own} for x in self._table]
            facts = {
                "format": "rewriter.run-launches",
                "version": 1,
                # A file that was instrumented by an earlier version does not say what is returned.
                "outputs": self._options.get("outputs", {}),
                "launches": rows,
            }
            self._table_text = f"{json.dumps(facts, indent=1)}\n".encode()
        return self._table_text

    def _make_directory(self, call: int) -> str:
        """Make the directory of a call, and return its path as text.

        Not a `Path`: every call comes here, and making that takes longer than the system calls.
        """
        self._next = max(self._next, call)
        while True:
            path = f"{self._ranked_name}/run{self._next}"
            try:
                os.mkdir(path)
            except FileNotFoundError:
                self._write_manifest()
                self._ranked.mkdir(parents=True, exist_ok=True)
                continue
            except FileExistsError:
                self._next += 1
                continue
            self._next += 1
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
            **({"allow": allow} if (allow := self._options.get("allow")) else {}),
            "fingerprint": {"name": NAME, "version": VERSION},
            "torch": torch.__version__,
            "device": _device(),
            "host": socket.gethostname(),
            **({"ranks": size} if (size := read_size()) else {}),
            **({"tf32": tf32()} if torch.cuda.is_available() else {}),
            "command": os.environ.get("REWRITER_COMMAND", " ".join(sys.argv)),
        }
        _write_whole(str(self._root), path.name, f"{json.dumps(facts, indent=1)}\n".encode())


class CallDirectory:
    """The directory of one call, at the path `name`: its events and saved tensors."""

    def __init__(self, name: str, saved: Saved) -> None:
        self.name = name
        self._saved = saved
        self._events = EventsFile(f"{name}/events.jsonl", make_room=saved.drain)
        self.append = self._events.append  # rows in the event queue may be written later
        self.duplicate = self._events.duplicate

    def leave_marks_of(self, call: Any) -> None:
        """Let a `RunningCall` leave marks of its launches; only `RecordedCall` supports that."""

    def write(self, event: Event) -> None:
        """Append the rows of an event, after those that are still in the event queue."""
        drain_queue()
        self.append(event_rows(event).encode())

    def note(self, event: Event, facts: dict[str, Any]) -> None:
        """Append a separate row with `facts` about an event."""
        drain_queue()
        self.append(note_row(event, facts).encode())

    def save(self, event: Event, value: Value) -> str:
        """Save a tensor. Returns the file's path relative to the directory of this call.

        Returns an empty text if it is not saved; `value.unsaved` then says why. The file may appear
        only after `close`.
        """
        again = f".{event.iteration}" if event.iteration else ""
        folder = f"{event.launch.index:06d}{again}" if event.launch else event.phase
        name = _file_name(event, value)
        value.unsaved = self._saved.save(value.content, f"{self.name}/{folder}/{name}")
        return "" if value.unsaved else f"{folder}/{name}"

    def close(self) -> None:
        """End the call: wait until all tensors that it saved are in their files."""
        self._events.close()
        self._saved.drain()


def _file_name(event: Event, value: Value) -> str:
    """The file name that upstream documents; the kernel in a long one is cut and gets a hash."""
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


def _members(facts: dict[str, Any]) -> str:
    """The members of a JSON object, without its brackets."""
    return json.dumps(facts, indent=1)[2:-2]


def _write_whole(folder: str, name: str, data: bytes) -> None:
    """Write a file whole or not at all. Whoever else writes it at the same time writes the same."""
    # Hosts that share a directory may have the same process numbers.
    temporary = f"{folder}/.{name}.{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        os.replace(temporary, f"{folder}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
