"""Puts probes into the wrappers of a program as it loads them; no file of its cache is changed.

`startup/sitecustomize.py` is in the program, and asks. `server.py` is in the process of the
command, and answers: it locates, plans and verifies as `instrument` does. `run.py` starts the
program, and keeps what was asked.
"""

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

_LONGEST = 60  # bytes of a directory for sockets, whose whole path has at most 107

# At the front of `PYTHONPATH`, it has a program ask for probes, or listen for `rewriter attach`.
STARTUP = Path(__file__).parent / "startup"


def place_for_sockets() -> str:
    """The directory for temporary files, or one that is not too long for the path of a socket."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= _LONGEST else "/tmp"


def search_path(environment: Mapping[str, str]) -> str:
    """The `PYTHONPATH` of an environment, with the start-up module in front."""
    rest = environment.get("PYTHONPATH")
    return os.pathsep.join([str(STARTUP), *([rest] if rest else [])])


def of_probes(dump: Path, command: str, *, quiet: bool) -> dict[str, str]:
    """The variables that the probes themselves read."""
    found = {"REWRITER_DUMP": str(dump), "REWRITER_COMMAND": command}
    return found | ({"REWRITER_QUIET": "1"} if quiet else {})


def accept_all(listener: socket.socket, talk: Callable[[socket.socket], None]) -> threading.Thread:
    """Have a thread wait at a socket until that is shut down, and others talk with who connects."""

    def wait() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=wait, name="rewriter", daemon=True)
    thread.start()
    return thread
