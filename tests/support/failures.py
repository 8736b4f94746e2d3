"""Runs a command whose n-th effect on the file system fails, is interrupted, or kills it.

The command runs in a forked process. An audit hook of Python's sees each effect before it happens:
opening, renaming, linking, removing, changing modes, locking. Writes of bytes are not audited: for
them a limit of the kernel's stands for a full disk (`size`).
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rewriter.cli import main
from rewriter.core.errors import FAILED, OK, RewriterError

Kind = Literal["full", "denied", "broken", "interrupt", "kill"]
KINDS: tuple[Kind, ...] = ("full", "denied", "broken", "interrupt", "kill")
_ERRORS = {"full": errno.ENOSPC, "denied": errno.EACCES, "broken": errno.EIO}
_EFFECTS = (
    "open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename",
    "os.rmdir", "os.scandir", "os.symlink", "os.truncate", "os.utime", "fcntl.flock",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """What goes wrong: from the effect `at` on (from 0), once or, if `lasting`, ever after.

    `size` limits what may be written to a file.
    """

    kind: Kind = "full"
    at: int | None = None
    lasting: bool = False
    size: int | None = None


@dataclass(frozen=True)
class Ended:
    """How the command ended: its exit code (-9 if killed), what it said, and its effects."""

    code: int
    said: str
    effects: tuple[str, ...]


def run(
    command: list[str] | Callable[[], object],
    watched: Path,
    failure: Failure = Failure(),
) -> Ended:
    """Run a command line, or a function, in a process of its own; effects below `watched` count."""
    log = watched.parent / f"{watched.name}.effects"
    said = watched.parent / f"{watched.name}.said"
    child = os.fork()
    if not child:
        code = 99
        try:
            code = _run(command, watched, failure, log, said)
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    effects = tuple(log.read_text().splitlines())
    log.unlink()
    text = said.read_text()
    said.unlink()
    return Ended(os.waitstatus_to_exitcode(status), text, effects)


def _run(
    command: list[str] | Callable[[], object],
    watched: Path,
    failure: Failure,
    log: Path,
    said: Path,
) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    number = 0
    # Both before the hook, which sees them otherwise.
    record = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in _EFFECTS or not _is_below(given[0], watched):
            return
        here, number = number, number + 1
        os.write(record, f"{event} {given[0]}\n".encode())
        if failure.at is None or here < failure.at or (here > failure.at and not failure.lasting):
            return
        if failure.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if failure.kind == "interrupt":
            raise KeyboardInterrupt
        raise OSError(_ERRORS[failure.kind], os.strerror(_ERRORS[failure.kind]), str(given[0]))

    sys.addaudithook(hook)
    if failure.size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (failure.size, failure.size))
    code = main(command) if isinstance(command, list) else _call(command)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _call(function: Callable[[], object]) -> int:
    """Call a function; errors have the exit codes that a command has."""
    try:
        function()
    except RewriterError as error:
        print(f"error[{error.slug}]: {error}")
        return error.code
    except KeyboardInterrupt:
        print("interrupted")
        return FAILED
    except Exception:
        traceback.print_exc()
        return FAILED
    return OK


def _is_below(given: object, watched: Path) -> bool:
    if isinstance(given, int):
        return True  # of a file that was opened
    try:
        path = os.path.abspath(os.fsdecode(given))  # type: ignore[arg-type]
    except TypeError:
        return False
    return path.startswith(f"{watched}{os.sep}") or path == str(watched)
