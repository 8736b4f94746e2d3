"""Puts probes into the wrappers of a program as it loads them; no file of its cache is changed.

`startup/sitecustomize.py` is in the program, and asks. `server.py` is in the process of the
command, and answers: it locates, plans and verifies as `instrument` does. `run.py` starts the
program, and keeps what was asked. `cache/` lists Inductor's cache, and restores what earlier
versions changed in it.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

_LONGEST = 60  # bytes of a directory for sockets, whose whole path has at most 107

# At the front of `PYTHONPATH`, it has a program ask for probes.
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
