"""What the probe `nan` makes of a NaN: nothing where it is allowed, and with `--stop` the end of
the program, once all that was recorded is written."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .allowed import Allowed
from .event_queue import drain_queue
from .process import say

if TYPE_CHECKING:
    from .dump import CallDirectory
    from .event import Event, ProbedLaunch, Value
    from .printer import Printer
    from .running_call import RunningCall

STOPPED = "stopped.json"
EXIT_CODE = 1


class Findings:
    """The findings of one wrapper. `stops` is whether the first one ends the program."""

    def __init__(
        self, options: dict[str, Any], launches: Mapping[int, ProbedLaunch], printer: Printer
    ) -> None:
        # A file that was instrumented by an earlier version has fewer options.
        self.stops = bool(options.get("stop"))
        self._allowed = Allowed(options.get("allow") or ())
        self._launches = launches
        self._printer = printer
        self._next: tuple[int, str, str] | None = None

    def allows(self, event: Event, value: Value) -> bool:
        """Whether the user named a value in `--allow`."""
        kernel = event.launch.kernel if event.launch else ""
        return bool(self._allowed) and self._allowed.covers(kernel, value.label.name)

    def stop_at(self, event: Event, value: Value) -> None:
        """End the program at this NaN once the event is written (`end_if_found`)."""
        if self.stops and self._next is None and value.statistics is not None:
            launch = event.launch.index if event.launch else -1
            count = f"{value.statistics.nan} of {value.statistics.numel}"
            self._next = launch, value.label.name, count

    def end_if_found(self, call: RunningCall, directory: CallDirectory | None) -> None:
        """End the program where `stop_at` asked for it: the event was written."""
        if self._next is not None:
            self.end(call, *self._next, directory=directory)

    def end(
        self,
        call: RunningCall | None,
        launch: int,
        name: str,
        count: str,
        *,
        directory: CallDirectory | None = None,
    ) -> None:
        """End the program, with all that is recorded in the dump and what it printed out.

        Not by an exception: what the program does with one nobody knows, and it may come through
        the compiled code of a backward, in another thread.
        """
        directory = directory or (call.directory if call else None)
        launched = self._launches.get(launch)
        about = f"#{launch} {launched.kernel}" if launched else "the inputs"
        start = self._printer.style.start(call.number if call else 0) or "[rewriter]"
        with contextlib.suppress(Exception):
            drain_queue()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            if directory is not None:
                _write(directory, launch, launched.kernel if launched else "", name)
                directory.close()
        say(f"{start} stopped at {about}: {count} elements of {name} are NaN (--stop)\n")
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(EXIT_CODE)


def _write(directory: CallDirectory, launch: int, kernel: str, name: str) -> None:
    """Say in the dump that the program did not end by itself. The first process has it."""
    run = Path(directory.name)
    facts = {
        "format": "rewriter.stopped",
        "version": 1,
        "run": f"{run.parent.name}/{run.name}",
        "pid": os.getpid(),
        "launch": None if launch < 0 else launch,
        "kernel": kernel,
        "arg": name,
    }
    with (run.parent.parent / STOPPED).open("x", encoding="utf-8") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
