"""Waits at a socket for `rewriter attach`, in a thread of the program to be probed.

Imports only the standard library until a request comes, so that it costs the program nothing.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.hook import accept_all
from rewriter.hook.startup.sitecustomize import peer
from rewriter.runtime.forks import register_for_forks
from rewriter.version import __version__

if TYPE_CHECKING:
    from rewriter.loaded.block import Block
    from rewriter.loaded.request import Request

_LONGEST = 1 << 16  # bytes of a request
_SECONDS = 10.0  # in which a client has to send its request
_QUIET = 2.0  # seconds without a call, after which no other wrapper is expected to be called
_LISTENERS: list[Listener] = []
_STARTING = threading.Lock()


def address(pid: int) -> str:
    """The name at which a process listens. Containers may share the names, but not the numbers of
    processes."""
    return f"\0rewriter-live-{os.readlink('/proc/self/ns/pid')}-{pid}"


def start() -> None:
    """Listen, unless this process already does. Raises `OSError`."""
    with _STARTING:
        _LISTENERS[:] = [one for one in _LISTENERS if one.pid == os.getpid()]
        if not _LISTENERS:
            _LISTENERS.append(Listener())


def stop() -> None:
    """Stop listening."""
    with _STARTING:
        while _LISTENERS:
            _LISTENERS.pop().close()


class Listener:
    """A socket, and the thread that waits at it. Several clients may ask at once: their blocks are
    nested."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address(self.pid))
        self._socket.listen(8)
        register_for_forks(self)
        accept_all(self._socket, _serve)

    def close(self) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forked(self) -> None:
        """In a forked process: it has no thread that waits."""
        self._socket.close()


def _serve(connection: socket.socket) -> None:
    """Serve one client."""
    with connection, connection.makefile("rb") as stream:
        try:
            if peer(connection)[1] != os.getuid():
                return
            connection.settimeout(_SECONDS)
            line = stream.readline(_LONGEST)
            if not line.endswith(b"\n"):
                return
            try:
                _probe(connection, line)
            except OSError:
                raise
            except Exception as error:  # such as a missing package
                message = getattr(error, "message", f"{type(error).__name__}: {error}")
                hint = getattr(error, "hint", "")
                _send(connection, state="refused", message=message, hint=hint)
        except OSError:
            return  # the client disconnected: all its probes are removed


def _probe(connection: socket.socket, line: bytes) -> None:
    if "torch" not in sys.modules:
        raise RuntimeError("the program has not imported torch")
    from rewriter.instrumentation import probes, selection_json
    from rewriter.loaded.probing import probing_for
    from rewriter.loaded.request import Request

    request = selection_json.decode(line, Request)
    if request.version != __version__:
        raise RuntimeError(
            f"it has version {__version__} of inductor-rewriter, not {request.version}"
        )
    probes.check(request.selection.probes)
    with probing_for(request.selection, request.directory, echo=request.echo) as (block, _):
        _send(connection, state="probing", pid=os.getpid())
        _wait_for(connection, block, request)
    calls = {Path(path).name: number for path, number in block.calls.items()}
    _send(connection, state="done", calls=calls, notes=block.notes)


def _wait_for(connection: socket.socket, block: Block, request: Request) -> None:
    """Wait until enough calls were recorded, the time is over, or the client ends it or is gone."""
    end = time.monotonic() + request.seconds if request.seconds else None
    while not (end is not None and time.monotonic() >= end) and not _is_enough(block, request):
        with block.changed:
            block.changed.wait(0.1)
        if select.select([connection], [], [], 0)[0]:
            return


def _is_enough(block: Block, request: Request) -> bool:
    """Whether all called wrappers were called often enough: one of them was called once more, or
    there was no call for a while."""
    calls = list(block.calls.values())
    if not request.calls or not calls:
        return False
    if max(calls) > request.calls:
        return True
    return min(calls) >= request.calls and time.monotonic() - block.latest > _QUIET


def _send(connection: socket.socket, **facts: Any) -> None:
    from rewriter.core import json_text

    connection.sendall(json_text.encode(facts).encode() + b"\n")
