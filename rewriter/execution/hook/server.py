"""Answers a program that asks for the probes of the wrappers that it loads."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core import edit, json_text
from rewriter.core.errors import RewriterError
from rewriter.core.labels import short
from rewriter.core.printed import printed
from rewriter.core.types import Json
from rewriter.execution.hook import builds
from rewriter.execution.hook.cache.slots import is_named
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.matching import matches
from rewriter.instrumentation.types import Edited, Instrumented, Selection

SOCKET = "socket"


@printed("wrapper=path error=error.slug reason=error.message")
@dataclass(frozen=True)
class Loaded:
    """A wrapper that a program loaded. `result` has its probes, or `error` says why it has none;
    with neither it was not chosen."""

    wrapper: Wrapper
    result: Instrumented | None = None
    error: RewriterError | None = None

    @property
    def path(self) -> Path:
        """The file that it was loaded from, which may be gone by now."""
        return self.wrapper.path

    @property
    def short(self) -> str:
        """A name for tables and sentences: enough of the hash to identify the wrapper."""
        return short(self.path)


@dataclass(frozen=True)
class Process:
    """A process of the program: `name` is that of `multiprocessing`, empty if there is none;
    `wrappers` are those that it loaded, `files` other files it read that may have compiled code."""

    pid: int
    name: str = ""
    wrappers: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()


@dataclass
class Server:
    """What was asked for, and what was answered. With `globs`, only wrappers that match one of them
    get probes, by name or kind of graph. `edits` gives a wrapper other lines than probes, or
    `None`."""

    selection: Selection
    globs: tuple[str, ...] = ()
    edits: Callable[[Wrapper], Edited | None] | None = None
    asked: float = field(default_factory=time.monotonic)  # when somebody asked last
    _processes: dict[int, Process] = field(default_factory=dict)
    _loaded: dict[Path, Loaded] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _folder: Path = Path()

    @property
    def loaded(self) -> tuple[Loaded, ...]:
        """The wrappers that were loaded, in their order."""
        return tuple(self._loaded.values())

    @property
    def processes(self) -> dict[int, Process]:
        """The processes that asked, by their ids, with the files that they have read or written."""
        return {
            pid: replace(process, files=_noted(self._folder / f"files-{pid}.txt"))
            for pid, process in self._processes.items()
        }

    @contextmanager
    def listening(self, folder: Path) -> Iterator[Path]:
        """Answer at a socket in a folder that only this user can enter. Yields its path."""
        self._folder = folder
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / SOCKET))
            listener.listen(128)
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield folder / SOCKET
            finally:
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
                thread.join()

    @property
    def idle(self) -> float:
        """Seconds since the last question."""
        return time.monotonic() - self.asked

    def _accept(self, listener: socket.socket) -> None:
        """Answer each connection in a thread, until the socket is shut down."""
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            try:
                question = json_text.parse_object(stream.readline())
                text = stream.read()
                try:
                    answer = self.answer(question, text)
                except Exception as error:  # the wrapper runs as it is, and says why
                    answer = {"error": f"{type(error).__name__}: {error}"}
                stream.write(json_text.encode(answer).encode())
            except (OSError, ValueError):
                return  # the program ended meanwhile, or it is not one of ours that asks

    def answer(self, question: Json, text: bytes) -> Json:
        """The answer to a question: the text with probes, or nothing."""
        path = Path(question["path"])
        with self._lock:
            self.asked = time.monotonic()
            wrapper = read_wrapper(path, path.name, text)
            self._note(question, () if wrapper is None else (path,))
            if wrapper is None:
                return {}
            try:
                if self.edits is not None:
                    edited = self.edits(wrapper)
                    return {} if edited is None else self._answer(wrapper, edited)
                if self._is_chosen(wrapper):
                    return self._probed(wrapper)
                self._loaded.setdefault(path, Loaded(wrapper))
                return {}
            except RewriterError as error:
                self._loaded[path] = Loaded(wrapper, error=error)
                return {}

    def _is_chosen(self, wrapper: Wrapper) -> bool:
        if not is_named(wrapper.path, self.globs) and wrapper.graph not in self.globs:
            return False
        wanted = self.selection.kernels
        return wanted is None or any(matches(x.kernel, wanted) for x in wrapper.located.launches)

    def _probed(self, wrapper: Wrapper) -> Json:
        known = next((x for x in self._loaded.values() if x.wrapper.source == wrapper.source), None)
        result = None if known is None else known.result
        if result is None:
            label = f"{wrapper.graph} {wrapper.path.stem[:6]}"
            # The hook has the runtime that the text imports.
            result = instrument_wrapper(wrapper, self.selection, replace=True, label=label)
        self._loaded[wrapper.path] = Loaded(wrapper, result)
        return self._answer(wrapper, Edited(result.source, result.plan.insertions))

    def _answer(self, wrapper: Wrapper, edited: Edited) -> Json:
        lines = edit.line_origins(wrapper.plain, edited.insertions)
        answer: Json = {"text": edited.source.decode(), "lines": [number for number, _ in lines]}
        if wrapper.language == "cpp":
            answer["build"] = str(self._build)
        return answer

    @cached_property
    def _build(self) -> Path:
        """Where C++ with probes is built: in a cache of ours, or for this run alone."""
        return builds.kept() or self._folder / "wrappers"

    def _note(self, question: Json, loaded: tuple[Path, ...]) -> None:
        pid = question["pid"]
        known = self._processes.get(pid, Process(pid))
        wrappers = tuple(dict.fromkeys((*known.wrappers, *loaded)))
        self._processes[pid] = Process(pid, question["process"], wrappers)


def _noted(file: Path) -> tuple[Path, ...]:
    """The names that the hook has written to a file; the last one may be cut."""
    try:
        names = file.read_bytes().split(b"\0")[:-1]
    except OSError:
        return ()
    return tuple(dict.fromkeys(Path(os.fsdecode(name)) for name in names))
