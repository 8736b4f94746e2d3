"""Waits at a socket for `rewriter attach`, in a thread of the program to be probed.

Imports only the standard library until a request comes, so that it costs the program nothing.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.loaded import protocol
from rewriter.runtime.forks import register_for_forks

if TYPE_CHECKING:
    from rewriter.loaded.block import Block
    from rewriter.loaded.request import Request

_SECONDS = 10.0  # in which a client has to send its request
_QUIET = 2.0  # seconds without a call, after which no other wrapper is expected to be called
_LISTENERS: list[Listener] = []
_STARTING = threading.Lock()


def start() -> Path:
    """Listen, unless this process already does. Returns the path of its socket.

    Raises `OSError`, or `NotOursError` if its directory belongs to another user.
    """
    with _STARTING:
        _LISTENERS[:] = [one for one in _LISTENERS if one.pid == os.getpid()]
        if not _LISTENERS:
            _LISTENERS.append(Listener())
        return _LISTENERS[0].path


def stop() -> None:
    """Stop listening."""
    with _STARTING:
        while _LISTENERS:
            _LISTENERS.pop().close()


class Listener:
    """A socket that only the user of this process can open, and the thread that waits at it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        protocol.make_directory()
        self.path = protocol.socket_path(self.pid)
        self.path.unlink(missing_ok=True)  # of an earlier process with the same number
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)  # before this, the directory already keeps other users out
        self._socket.listen(8)
        self._identity = _identity(self.path)
        atexit.register(self.close)
        register_for_forks(self)
        thread = threading.Thread(target=self._wait, name="rewriter-live", daemon=True)
        thread.start()

    def close(self) -> None:
        """Stop listening, and remove the socket if it is still the one of this process."""
        atexit.unregister(self.close)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.pid == os.getpid() and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)

    def forked(self) -> None:
        """In a forked process: it has no thread that waits."""
        self._socket.close()

    def _wait(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # it was closed
            # Several clients may ask at once: their blocks are nested.
            threading.Thread(target=_serve, args=[connection], daemon=True).start()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _serve(connection: socket.socket) -> None:
    """Serve one client."""
    with connection:
        try:
            if not _is_of_the_user(connection):
                return
            connection.settimeout(_SECONDS)
            line = _line(connection)
            if line:
                _answer(connection, line)
        except OSError:
            return  # the client disconnected: all its probes are removed


def _answer(connection: socket.socket, line: bytes) -> None:
    try:
        from rewriter.core.errors import RewriterError
    except ImportError as error:
        _send(connection, state="refused", message=f"{error}")
        return
    try:
        _probe(connection, line)
    except RewriterError as error:
        _send(connection, state="refused", slug=error.slug, message=error.message, hint=error.hint)
    except OSError:
        raise
    except Exception as error:
        # Such as a missing package.
        _send(connection, state="refused", message=f"{type(error).__name__}: {error}")


def _probe(connection: socket.socket, line: bytes) -> None:
    if "torch" not in sys.modules:
        raise RuntimeError("the program has not imported torch")
    import msgspec

    from rewriter.loaded.probing import probing_for
    from rewriter.loaded.request import Request

    request = msgspec.json.decode(line, type=Request)
    if request.version != protocol.VERSION:
        raise RuntimeError(f"the program speaks version {protocol.VERSION} of the protocol")
    selection = request.selection()
    with probing_for(selection, request.directory, echo=request.echo) as (block, _):
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


def _line(connection: socket.socket) -> bytes:
    """The line that a client sends; empty if it sends none."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(4096)
        if not piece or len(data) > protocol.LONGEST:
            return b""
        data += piece
    return data


def _send(connection: socket.socket, **facts: Any) -> None:
    from rewriter.core import json_text

    connection.sendall(json_text.encode(facts).encode() + b"\n")


def _is_of_the_user(connection: socket.socket) -> bool:
    """Whether the other side is a process of this user, if the system can tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the modes of the socket and its directory protect it
    size = struct.calcsize("3i")
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", packed)
    return bool(uid == os.getuid())
