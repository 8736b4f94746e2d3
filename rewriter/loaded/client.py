"""Asks a running program to add probes: the client of `listener.py`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rewriter.core import json_text
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.types import Json
from rewriter.hook.startup.sitecustomize import peer
from rewriter.instrumentation import selection_json
from rewriter.loaded.listener import address
from rewriter.loaded.request import Request

_STARTS = 10.0  # seconds in which a program has to start listening after it was asked to
_SILENT = 10.0  # seconds without a recorded call until the user is told
_SCRIPT = f"""\
import sys
package = {str(Path(__file__).parents[2])!r}
sys.path.append(package)
try:
    import rewriter.loaded.listener
    rewriter.loaded.listener.start()
finally:
    sys.path[:] = [path for path in sys.path if path is not package]
"""


@dataclass(frozen=True)
class Attached:
    """The answer of a program after its probes were removed: how often wrappers were called, by
    name, and what was not probed. `interrupted`: the user ended it."""

    calls: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    interrupted: bool = False


def attach(pid: int, request: Request, tell: Callable[[str], None]) -> Attached:
    """Probe a program until enough is recorded, or the user interrupts.

    Raises `RewriterError` if the program does not listen, refuses, or ends.
    """

    def tell_of_silence() -> None:
        if not any(Path(request.directory).iterdir()):
            tell("nothing recorded yet: no wrapper with a chosen launch was called")

    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(_connected(pid))
        answers = stack.enter_context(connection.makefile("rb"))
        interrupted = False
        try:
            connection.sendall(selection_json.encode(request) + b"\n")
        except ConnectionError as error:
            raise _ended(pid) from error
        while True:
            try:
                answer = _answer(answers, pid)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                tell("taking the probes out")
                connection.shutdown(socket.SHUT_WR)
                continue
            if answer["state"] == "probing":
                tell(f"probing process {pid}; Ctrl-C ends it and keeps what was recorded")
                timer = threading.Timer(_SILENT, tell_of_silence)
                stack.callback(timer.cancel)
                timer.start()
            elif answer["state"] == "done":
                return Attached(answer["calls"], tuple(answer["notes"]), interrupted)
            else:
                raise _refused(pid, answer)


@contextlib.contextmanager
def _connected(pid: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        if not _connects(connection, pid) and not _asked_to_listen(connection, pid):
            raise _no_listener(pid)
        if peer(connection) != (pid, os.getuid()):
            raise RewriterError(
                "not-your-process",
                f"cannot attach to process {pid}: it is another user's",
                hint="Only the user of a program can attach to it.",
            )
        yield connection


def _connects(connection: socket.socket, pid: int) -> bool:
    try:
        connection.connect(address(pid))
    except ConnectionRefusedError:
        return False
    return True


def _asked_to_listen(connection: socket.socket, pid: int) -> bool:
    """Make a program listen, if its Python allows that from outside (3.14), and connect to it."""
    remote_exec = getattr(sys, "remote_exec", None)
    if remote_exec is None or not _exists(pid):
        return False
    with tempfile.TemporaryDirectory(prefix="rewriter-attach-") as folder:
        script = Path(folder) / "listen.py"
        script.write_text(_SCRIPT, encoding="utf-8")
        try:
            remote_exec(pid, str(script))
        except (OSError, RuntimeError, ValueError) as error:
            raise RewriterError(
                "no-listener",
                f"process {pid} does not listen, and cannot be asked to: {error}",
                hint="It has to run the same version of Python, which may be asked unless "
                "PYTHON_DISABLE_REMOTE_DEBUG is set. Otherwise start it with `rewriter live -- …`.",
            ) from error
        end = time.monotonic() + _STARTS
        while not (connects := _connects(connection, pid)) and time.monotonic() < end:
            time.sleep(0.02)  # its main thread does so between two instructions
        return connects


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _no_listener(pid: int) -> RewriterError:
    if not _exists(pid):
        return RewriterError(
            "no-process",
            f"there is no process {pid} on this machine",
            hint="Expected the number of a running Python program; in a container, the one in it.",
        )
    return RewriterError(
        "no-listener",
        f"process {pid} does not listen for `rewriter attach`",
        hint="Start it with `rewriter live -- COMMAND`, or let it `import rewriter.live`. It "
        "listens when it has imported Inductor. From Python 3.14 on, `attach` can ask any program "
        "of yours to listen, if this command has the same version of Python.",
    )


def _answer(answers: BinaryIO, pid: int) -> Json:
    try:
        line = answers.readline()
    except ConnectionError as error:
        raise _ended(pid) from error
    if not line:
        raise _ended(pid)
    return json_text.parse_object(line)


def _ended(pid: int) -> RewriterError:
    return RewriterError(
        "process-ended",
        f"process {pid} ended, or closed the connection",
        hint="The dump, if there is one, has everything that was recorded until then.",
        code=FAILED,
    )


def _refused(pid: int, answer: Json) -> RewriterError:
    return RewriterError(
        "attach-refused",
        f"process {pid} cannot be probed: {answer['message']}",
        hint=answer.get("hint") or "Install inductor-rewriter in the program's environment, too.",
    )
