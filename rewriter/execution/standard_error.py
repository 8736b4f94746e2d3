"""Passes on what a program writes to standard error, and keeps the end of it.

If a program raises an exception, its exit code is 1, and only standard error has the exception.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

from rewriter.core.exit_status import ExitStatus

_PIECE = 1 << 16  # bytes, also of the end that is kept
_LAST = 0.2  # seconds to wait for child processes of the program that still have it open
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[[\w ]*?\d+\]:\s?")  # how torchrun begins the lines of its workers
# Of glibc, tcmalloc and jemalloc.
_COMPLAINT = re.compile(
    r"(?:malloc|free|realloc|calloc|munmap_chunk|mremap_chunk|malloc_consolidate)\(\): .+"
    r"|double free or corruption.*|corrupted (?:size vs\. prev_size|double-linked list).*"
    r"|\*\*\* stack smashing detected \*\*\*.*|Fatal glibc error: malloc.+"
    r"|Attempt to free invalid pointer.*|<jemalloc>: .+"
)
# How a kernel that Inductor generated ends a program: `kernel, FILE:LINE, index out of bounds: …`.
_CHECK = re.compile(r"index out of bounds: 0 <= .+")
_TAIL = 20  # lines
_HEAD = "Traceback (most recent call last):"
_LONGEST = 300  # characters of an exception's text


def exception(text: str) -> str:
    """The last exception that Python printed, such as `ValueError: no`; empty if there is none.

    Exceptions of a launcher's workers are preferred: they are the cause of the launcher's own.
    """
    raised_by = {True: "", False: ""}
    lines = _ESCAPES.sub("", text).splitlines()
    for number, line in enumerate(lines):
        prefix = match[0] if (match := _RANK.match(line)) else ""
        if line[len(prefix) :].rstrip() == _HEAD:
            rest = (x[len(prefix) :] for x in lines[number + 1 :] if x.startswith(prefix))
            # The frames are indented.
            raised = next((x for x in rest if x and not x[0].isspace()), "")
            raised_by[bool(prefix)] = raised.strip()[:_LONGEST] or raised_by[bool(prefix)]
    return raised_by[True] or raised_by[False]


def complaint(text: str) -> str:
    """What an allocator found in damaged memory, such as `free(): invalid pointer`, the last thing
    that was written before SIGABRT; empty if there is no such line."""
    return _last_words(text, _COMPLAINT)


def failed_check(text: str) -> str:
    """The check of an index that failed in a kernel, such as `index out of bounds: 0 <= tmp2 < 9L`,
    the last thing that was written before SIGABRT; empty if there is none."""
    return _last_words(text, _CHECK)


def _last_words(text: str, pattern: re.Pattern[str]) -> str:
    found = (match[0] for x in text.splitlines()[-_TAIL:] if (match := pattern.search(x)))
    return next(found, "").strip()[:_LONGEST]


class StandardError:
    """The standard error of one process, which is started with `descriptor`.

    It is a terminal if that of this process is one and it is `shown`; otherwise a pipe.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._kept = b""
        is_terminal = shown and os.isatty(2)
        self._reads, self.descriptor = pty.openpty() if is_terminal else os.pipe()
        self._woken, self._wakes = os.pipe()
        self._thread = threading.Thread(target=self._run, name="standard error", daemon=True)
        if is_terminal:
            self._dress()

    @property
    def text(self) -> str:
        """The end of what was written."""
        return self._kept.decode("utf-8", "replace")

    def explained(self, ended: ExitStatus) -> ExitStatus:
        """How the process ended, after SIGABRT with what an allocator complained of, or which check
        failed in a kernel."""
        if ended.signal != signal.SIGABRT or ended.message:
            return ended
        return replace(ended, message=complaint(self.text) or failed_check(self.text))

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Pass on output until the process, which is started in this context, is over."""
        self._thread.start()
        try:
            yield
        finally:
            os.close(self.descriptor)
            self._thread.join(_LAST)
            os.write(self._wakes, b".")
            self._thread.join()
            for descriptor in (self._reads, self._woken, self._wakes):
                os.close(descriptor)

    def _dress(self) -> None:
        """Give the terminal the size of ours, and let it pass output unchanged."""
        import fcntl
        import termios

        with contextlib.suppress(OSError):
            size = fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)
        modes = termios.tcgetattr(self.descriptor)
        modes[1] &= ~termios.OPOST  # our own terminal does that
        termios.tcsetattr(self.descriptor, termios.TCSANOW, modes)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._reads not in ready:
                return
            try:
                piece = os.read(self._reads, _PIECE)
            except OSError:  # no process has the terminal open any more
                return
            if not piece:
                return
            self._kept = (self._kept + piece)[-_PIECE:]
            if self._shown:
                with contextlib.suppress(OSError):  # ours is closed
                    _write(2, piece)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
