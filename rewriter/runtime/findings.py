"""What follows from a NaN that the probe `nan` found: nothing if `--allow` names it; with `--stop`
the program ends, once everything that was recorded is written."""

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
    """The NaN findings of one wrapper. `stops`: the first one ends the program."""

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
        """With `--stop`: note this NaN, so that `end_if_found` ends the program at it."""
        if self.stops and self._next is None and value.statistics is not None:
            launch = event.launch.index if event.launch else -1
            count = f"{value.statistics.nan} of {value.statistics.numel}"
            self._next = launch, value.label.name, count

    def end_if_found(self, call: RunningCall, directory: CallDirectory | None) -> None:
        """End the program if `stop_at` noted a NaN. To be called once its event is written."""
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
        """End the program with `EXIT_CODE`, after writing all rows and flushing its output.

        `launch` is -1 for the inputs; `count` is text such as `3 of 64`. An exception would not do:
        the program might catch it, and it might pass through the compiled code of a backward in
        another thread.
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
    """Write `stopped.json` into the dump: `--stop` ended the program. The first process wins."""
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
