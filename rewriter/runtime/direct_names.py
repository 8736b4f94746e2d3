"""The fast path of the probe `names` where no other probe acts: one write of a prepared line.

It takes no lock, since a line and a row are one write each, makes no `Event`, and asks torch only
whether a CUDA graph is being captured. Unusual launches take the slow path of all probes, such as
one that runs again in the same call, or one inside a capture. The extension module (`native_calls`)
has the same fast path in C++.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from .event import Event, ProbedLaunch
from .events_file import write_all
from .rows import event_rows

if TYPE_CHECKING:
    from .dump import CallDirectory
    from .running_call import RunningCall
    from .text import Text, Upstream


def announce(
    phase: str,
    launches: Iterable[ProbedLaunch],
    style: Text | Upstream,
    calls: Mapping[int, RunningCall],
    otherwise: Callable[..., None],
    failed: Callable[[str, Exception], None],
) -> tuple[Callable[..., None], Callable[[ModuleType], Callable[..., None]]]:
    """The fast path of one phase, called with the launch's index and values; and a function that
    makes the native version of it from the extension module.

    `calls` maps threads to the calls that run in them. `otherwise` is the slow path, for any
    launch. `failed(about, error)` reports a line that could not be written.
    """
    lines: dict[int, bytes] = {}
    rows: dict[int, bytes] = {}
    skip = len(style.start(0))
    for launch in launches:
        event = Event(launch, phase, 0, 0)
        lines[launch.index] = style.name(event)[skip:].encode()
        rows[launch.index] = event_rows(event).encode()
    is_capturing: Callable[[], bool] = getattr(
        torch._C, "_cuda_isCurrentStreamCapturing", lambda: False
    )

    get_call, write = calls.get, os.write

    def at(launch: int, *values: Any) -> None:
        call = get_call(get_ident())
        if (
            call is None
            or (stdout := call.stdout) is None
            or launch in (ran := call.runs[phase])
            or call.pending
            or (call.uses_cuda and is_capturing())
        ):
            otherwise(launch, *values)
            return
        ran[launch] = 1
        try:
            if (descriptor := stdout.descriptor) >= 0:
                stdout.flush()
                line = call.start + lines[launch]
                if (written := write(descriptor, line)) < len(line):
                    write_all(descriptor, line[written:])
        except Exception as error:
            failed(f"#{launch}", error)
        if call.directory is not None:
            add_row(launch, call.directory)

    def add_row(launch: int, directory: CallDirectory) -> None:
        try:
            directory.append(rows[launch])
        except Exception as error:
            failed(f"#{launch}", error)

    def write_rest(launch: int, descriptor: int, line: bytes) -> None:
        try:
            write_all(descriptor, line)
        except Exception as error:
            failed(f"#{launch}", error)

    def make_native(module: ModuleType) -> Callable[..., None]:
        made: Callable[..., None] = module.Naming(
            calls, phase, at, is_capturing, lines, add_row, write_rest
        )
        return made

    return at, make_native
