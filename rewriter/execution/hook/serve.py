"""A server of its own, for programs that somebody else starts: `rewriter run --print-env`.

The variables name its socket, and the command by which the first process that needs it starts it.
It completes the dump when nobody has asked for some seconds, also with wrappers that were not
called yet: it ends after some minutes, and a program may go on for days.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rewriter.core import json_text, locks
from rewriter.core.errors import RewriterError
from rewriter.execution.hook import STARTUP, of_probes, place_for_sockets
from rewriter.execution.hook.run import complete
from rewriter.execution.hook.server import SOCKET as NAME
from rewriter.execution.hook.server import Server
from rewriter.execution.hook.startup.sitecustomize import SOCKET, START
from rewriter.instrumentation import selection_json
from rewriter.instrumentation.types import Selection

# Seconds without a question after which it ends, and between looks.
_IDLE, _POLL = 300.0, 0.5
# After so many it completes the dump: torch stores the names of a C++ wrapper once it is built.
_SETTLED: tuple[float, ...] = (2.0, 60.0)
_LOCK = "lock"


def variables(
    selection: Selection, globs: Sequence[str], dump: Path, *, quiet: bool, command: str
) -> dict[str, str]:
    """The variables that a program needs to be probed, except for `PYTHONPATH`, which is to begin
    with `STARTUP`."""
    asked = selection_json.encode(selection).decode()
    about = "\0".join([str(dump), asked, *globs])
    key = hashlib.sha256(os.fsencode(about)).hexdigest()[:12]
    folder = Path(place_for_sockets(), f"rewriter-hook-{os.getuid()}-{key}")
    words = ["-m", "rewriter.execution.hook.serve", str(folder), str(dump), asked, *globs]
    start = json_text.encode([sys.executable, *words])
    return {SOCKET: str(folder / NAME), START: start, **of_probes(dump, command, quiet=quiet)}


def exports(variables: Mapping[str, str]) -> list[str]:
    """The lines of a shell that set variables, and put ours in front of `PYTHONPATH`."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    path = shlex.quote(str(STARTUP))
    return [*lines, f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"']


def main(arguments: Sequence[str]) -> int:
    """Serve until no more questions come. Another server for the same dump is left to do it."""
    folder, dump = Path(arguments[0]), Path(arguments[1])
    selection = selection_json.decode(arguments[2].encode(), Selection)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        return 1  # somebody else made it
    with (folder / _LOCK).open("w") as lock:
        if not locks.take(lock.fileno()):
            return 0
        (folder / NAME).unlink(missing_ok=True)
        server = Server(selection, tuple(arguments[3:]))
        asked, times = server.asked, _SETTLED
        with server.listening(folder):
            while server.idle < _IDLE:
                if server.asked != asked:
                    asked, times = server.asked, _SETTLED
                if times and server.idle > times[0]:
                    times = times[1:]
                    with contextlib.suppress(RewriterError, OSError):  # the dump may be gone
                        complete(dump, server.loaded, folder, server.processes)
                time.sleep(_POLL)
        (folder / NAME).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
