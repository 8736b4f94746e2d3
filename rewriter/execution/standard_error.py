"""Passes on what a program writes to standard error, and keeps the end of it.

If a program raises an exception, its exit code is 1, and only standard error has the exception.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rewriter.core.exit_status import ExitStatus, Scope
from rewriter.core.labels import short
from rewriter.core.libraries import is_of_library

_PIECE = 1 << 16  # bytes, also of the end that is kept
_LAST = 0.2  # seconds to wait for child processes that have it open; they may write later
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
_CHECK = re.compile(r"index out of bounds: 0 <= .+?(?= at .+:\d|$)")
_TAIL = 20  # lines
_HEAD = "Traceback (most recent call last):"
# Before what a worker of a DataLoader raised, in the text of what its process raises for it.
_ORIGINAL = f"Original {_HEAD}"
_LONGEST = 300  # characters of an exception's text
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)')
# Below the first line of such an exception: what it is about.
_SAID = {
    "CompileError": re.compile(r": (?:fatal )?error: (.+)"),
    "TorchRuntimeError": re.compile(r": got (\w+\(.+\))$"),
    "BackendCompilerFailed": re.compile(r"^(\w[\w.]*: .+)"),
}
_TRACED = "from user code:"  # before the frames of what Dynamo was tracing
# A program that Python cannot read has no traceback.
_NOT_READ = re.compile(
    r'^  File "([^"]+)", line (\d+)\n(?: .*\n)*((?:Syntax|Indentation|Tab)Error: .+)', re.MULTILINE
)
# What a GPU reports later than it happens, at whatever asks next.
_LATE = re.compile(
    r"(?:CUDA|HIP) error: .*(?:illegal (?:memory access|address|instruction)|misaligned address"
    r"|device-side assert|unspecified launch failure|launch timed out|hardware stack"
    r"|uncorrectable|invalid (?:program counter|address space))",
    re.IGNORECASE,
)
_GENERATED = re.compile(r"[/\\]c[a-z2-7]{51}\.py$")  # a wrapper in Inductor's cache
_COMPILERS = ("torch/_inductor/compile_fx.py", "torch/_inductor/async_compile.py")
# For a program that was stopped before anything was recorded.
EARLY = (
    "The time limit includes imports and compilation. If it ended before the first launch, pass a "
    "larger --timeout."
)


class Place(NamedTuple):
    """Where something was raised, or waited: such as `at train.py:11 in load, outside of compiled
    code`; empty if that is in libraries alone."""

    text: str = ""
    scope: Scope = ""


class Raised(NamedTuple):
    """An exception, as Python prints it in one line, and where it was raised."""

    text: str
    place: Place

    def of(self, ended: ExitStatus) -> ExitStatus:
        """How the program ended that raised it."""
        text, (place, scope) = self
        check = failed_check(text)
        return replace(ended, message=text, place=place, scope=scope, check=check)


def exception(text: str) -> Raised | None:
    """The last exception that Python printed; `None` if there is none.

    Exceptions of a launcher's workers are preferred: they are the cause of the launcher's own.
    """
    raised_by: dict[bool, Raised | None] = {True: None, False: None}
    lines = _ESCAPES.sub("", text).splitlines()
    for number, line in enumerate(lines):
        prefix = match[0] if (match := _RANK.match(line)) else ""
        if (head := line[len(prefix) :].rstrip()) in (_HEAD, _ORIGINAL):
            rest = [x[len(prefix) :] for x in lines[number + 1 :] if x.startswith(prefix)]
            # The frames are indented.
            end = next((at for at, x in enumerate(rest) if x and not x[0].isspace()), None)
            if end is not None:
                raised = rest[end].strip()[:_LONGEST]
                if said := _said(raised, rest[end + 1 :]):
                    raised = raised.rstrip(":") + said
                traced = rest[rest.index(_TRACED) :] if _TRACED in rest[end:] else ()
                place = _place(rest[:end], traced, is_late=bool(_LATE.search(raised)))
                outer = raised_by[bool(prefix)]
                if head == _ORIGINAL and outer and not place.text:
                    place = outer.place  # in libraries alone, such as those that make batches
                raised_by[bool(prefix)] = Raised(raised, place)
    if (unread := _NOT_READ.search("\n".join(lines))) and not any(raised_by.values()):
        file, line, said = unread.groups()
        return Raised(said, Place(f"at {Path(file).name}:{line}"))
    return raised_by[True] or raised_by[False]


def _said(raised: str, lines: Sequence[str]) -> str:
    """What an exception is about, if only the lines below its first one say that."""
    for name, pattern in _SAID.items():
        if name in raised:
            found = (match for line in lines if (match := pattern.search(line)))
            return next((f": {match[1]}" for match in found), "")[:_LONGEST]
    return ""


def how_ended(ended: ExitStatus, where: str = "") -> str:
    """One sentence: how a program ended, and where, unless its own line is known."""
    rest = f", {where}" if ended.scope == "compiled" or where[:5] == "while" else f" {where}"
    if not where or ended.scope in ("outside", "compiling"):
        rest = ""
    if ended.stopped or ended.running:
        return f"{ended}{rest}"
    if ended.raised:
        return f"the program raised {ended}{rest}"
    return f"the program ended {where}: {ended}" if where else str(ended)


def place_of_stack(text: str) -> Place:
    """Where the main thread was, by what `faulthandler` wrote of a process: in libraries alone, as
    processes that compile are, that is nowhere."""
    *_, main = text.split("\n\n") if text.strip() else [""]
    return _place(main.splitlines()[::-1])


def _place(frames: Sequence[str], traced: Sequence[str] = (), *, is_late: bool = False) -> Place:
    """Where an exception was raised: the innermost frame that is in no library, and whether that
    was in compiled code, or while something was compiled. `traced` are the frames of the function
    that Dynamo traced, if it was that. What comes late happened elsewhere."""
    if stopped_at := _innermost(_frames(traced)):
        return Place(f"while compiling {stopped_at}", "compiling")
    found = _frames(frames)
    place = _innermost(found)
    if not place:
        return Place()
    at = f"at {place}"
    code = next((x for x in found if _GENERATED.search(x["file"])), None)
    if code is not None:
        within = f"{short(Path(code['file']).name)}, line {code['line']}"
        return Place(f"{at}, in compiled code, {within}", "compiled")
    if any(part in x["file"] for part in _COMPILERS for x in found):
        return Place(f"while compiling what is called {at}", "compiling")
    if is_late:
        return Place(f"(noticed {at})")
    return Place(f"{at}, outside of compiled code", "outside")


def _frames(lines: Sequence[str]) -> list[re.Match[str]]:
    return [match for x in lines if (match := _FRAME.match(x))]


def _innermost(frames: Sequence[re.Match[str]]) -> str:
    """File, line and function of the last frame in the user's own code; empty if there is none."""
    for frame in reversed(frames):
        file, line, function = frame.groups()
        if not is_of_library(file) and not _GENERATED.search(file):
            name = "" if function[0] == "<" else f" in {function}"
            return f"{Path(file).name}:{line}{name}"
    return ""


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
        self._thread = threading.Thread(target=self._run, name="standard error", daemon=True)
        if is_terminal:
            self._dress()

    @property
    def text(self) -> str:
        """The end of what was written."""
        return self._kept.decode("utf-8", "replace")

    def explained(self, ended: ExitStatus) -> ExitStatus:
        """How the process ended, with the exception that it raised, or after SIGABRT with what an
        allocator complained of, or which check failed in a kernel."""
        if ended.message or ended.stopped:
            return ended
        if ended.signal == signal.SIGABRT:
            return replace(ended, message=complaint(self.text), check=failed_check(self.text))
        # A program that chose another exit code has caught what it printed.
        raised = exception(self.text) if ended.code == 1 else None
        return raised.of(ended) if raised else ended

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Pass on output. The process is started in this context, at whose end it is over."""
        self._thread.start()
        try:
            yield
        finally:
            os.close(self.descriptor)
            self._thread.join(_LAST)

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
        """Until no process has it open any more, which a terminal says by an error."""
        with open(self._reads, "rb", buffering=0) as file, contextlib.suppress(OSError):
            while piece := file.read(_PIECE):
                self._kept = (self._kept + piece)[-_PIECE:]
                if self._shown:
                    with contextlib.suppress(OSError):  # ours is closed
                        _write(2, piece)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
