"""Finds the wrappers that a program used, wherever it keeps its cache, by watching it.

A program may set `TORCHINDUCTOR_CACHE_DIR` itself, in each of its processes, and load compiled code
from its own files. There are two records: what `startup.py` notes in each Python process, and the
log of `TORCH_TRACE`, which has the path of each wrapper that was compiled or came from a cache of
graphs. The log also covers processes that did not import `startup.py`.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.artifact.naming import trace
from rewriter.cache import clear, startup
from rewriter.cache.mutate import Placed
from rewriter.cache.slots import TEMPORARY, path_in
from rewriter.core.files import backup_path

_VARIABLE = "PYTHONPATH"


@dataclass(frozen=True)
class Process:
    """A process of the program: `name` is that of `multiprocessing`, empty if there is none;
    `wrappers` are those that it loaded, `files` other files it read that may have compiled code."""

    pid: int
    name: str = ""
    wrappers: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Usage:
    """The wrappers that a program loaded without probes of this run. A path may be that of a
    kernel, and may no longer exist."""

    wrappers: tuple[Path, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The present or former caches of these wrappers."""
        return tuple(dict.fromkeys(path.parents[1] for path in self.wrappers))


class Watch:
    """Watches the processes of a program through its environment.

    `folder` is a temporary directory for the time the program runs; `traces` is the directory for
    its `TORCH_TRACE`.
    """

    def __init__(self, folder: Path, traces: Path) -> None:
        self._folder = folder
        self._traces = traces
        self._sizes: dict[Path, int] = {}
        shutil.copyfile(startup.__file__, folder / f"{startup.NAME}.py")
        self.reset()

    @property
    def kept(self) -> Path:
        """The copies of the wrappers that were loaded, laid out as a cache."""
        return self._folder / startup.KEPT

    def copy(self, wrapper: Path) -> Path:
        """The path for the copy of a wrapper, which may not exist."""
        return path_in(self.kept, wrapper.name)

    def arm(self, placed: Iterable[Placed]) -> None:
        """Also give wrappers their probes if the program generates them again, as with a cache that
        it creates at each start: their text is the same."""
        for one in placed:
            copy = self.copy(one.slot.path)
            if copy != one.slot.path:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(one.result.source)
                backup_path(copy).write_bytes(one.result.original)

    def restore_placed(self) -> None:
        """Restore wrappers that got probes when they were loaded, since the program had generated
        them again, and remove what was compiled from them. Raises `RewriterError`."""
        placed = [path for kind, path, *_ in self._rows() if kind == "placed"]
        for path in placed:
            copy = self.copy(path)
            with suppress(FileNotFoundError):  # its cache no longer exists
                if path.read_bytes() == copy.read_bytes():
                    os.replace(shutil.copy2(backup_path(copy), f"{path}{TEMPORARY}"), path)
        for directory in dict.fromkeys(path.parents[1] for path in placed):
            clear.products(directory)
            clear.graphs(directory)

    def environment(self, around: Mapping[str, str]) -> dict[str, str]:
        """The variables that have to be changed from those of `around` to watch a program."""
        paths = [str(self._folder), *filter(None, [around.get(_VARIABLE)])]
        return {_VARIABLE: os.pathsep.join(paths)}

    def reset(self) -> None:
        """Forget what was used, before the program starts again."""
        (self._folder / startup.LOG).write_bytes(b"")
        self._sizes = {log: log.stat().st_size for log in self._logs()}

    def usage(self) -> Usage:
        """What was used since the last reset. Damaged lines are ignored."""
        wrappers: dict[Path, None] = {}
        processes: dict[int, Process] = {}
        placed: set[Path] = set()
        for kind, path, pid, name in self._rows():
            if kind == "placed":
                placed.add(path)
                continue
            known = processes.get(pid, Process(pid))
            here = known.wrappers if kind == "wrapper" else known.files
            here = here if path in here else (*here, path)
            if kind == "wrapper":
                wrappers[path] = None
                processes[pid] = Process(pid, name, here, known.files)
            else:
                processes[pid] = Process(pid, name, known.wrappers, here)
        for log in self._logs():
            if log.stat().st_size > self._sizes.get(log, 0):
                wrappers |= dict.fromkeys(trace.wrapper_paths(log))
        return Usage(tuple(path for path in wrappers if path not in placed), processes)

    def _logs(self) -> list[Path]:
        return sorted(self._traces.glob("*.log"))

    def _rows(self) -> Iterator[tuple[str, Path, int, str]]:
        for line in (self._folder / startup.LOG).read_text("ascii", "replace").splitlines():
            with suppress(ValueError, SyntaxError, KeyError, TypeError):
                row = ast.literal_eval(line)
                yield row["kind"], Path(row["path"]), row["pid"], row["process"]
