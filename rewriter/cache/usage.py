"""Which wrappers a program used, wherever it keeps its cache: watched while it ran.

A program may set `TORCHINDUCTOR_CACHE_DIR` itself, in each of its processes, and load compiled code
from files of its own. Two records tell of that: what `startup.py` notes in each Python process, and
the log of `TORCH_TRACE`, which has the path of each wrapper that was compiled or came from a cache
of graphs. The latter is there also where a process did not import the former.
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
from rewriter.cache.slots import TEMPORARY
from rewriter.core.files import backup_path

_VARIABLE = "PYTHONPATH"


@dataclass(frozen=True)
class Process:
    """A process of the program: `name` is that of `multiprocessing`, empty if there is none;
    `wrappers` are those that it loaded, `files` what else it read that may hold compiled code."""

    pid: int
    name: str = ""
    wrappers: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Usage:
    """What a program used: the wrappers that it loaded without probes of this run. A path may be a
    kernel's, and be gone by now."""

    wrappers: tuple[Path, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The caches that these wrappers are in, or were."""
        return tuple(dict.fromkeys(path.parents[1] for path in self.wrappers))


class Watch:
    """Watches the processes of a program through its environment.

    `folder` is a directory of our own that is there as long as the program runs; `traces` is where
    its `TORCH_TRACE` goes.
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
        """Where the copy of a wrapper is, if there is one."""
        return self.kept / wrapper.name[1:3] / wrapper.name

    def arm(self, placed: Iterable[Placed]) -> None:
        """Have wrappers get their probes also where the program makes them anew: in a cache that it
        sets up each time, they are the same."""
        for one in placed:
            copy = self.copy(one.slot.path)
            if copy != one.slot.path:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(one.result.source)
                backup_path(copy).write_bytes(one.result.original)

    def restore_placed(self) -> None:
        """Give the originals back of wrappers that got probes when they were loaded: the program
        made them anew. What was compiled from them is removed. Raises `RewriterError`."""
        placed = [path for kind, path, *_ in self._rows() if kind == "placed"]
        for path in placed:
            copy = self.copy(path)
            with suppress(FileNotFoundError):  # it is gone, as its cache
                if path.read_bytes() == copy.read_bytes():
                    os.replace(shutil.copy2(backup_path(copy), f"{path}{TEMPORARY}"), path)
        for directory in dict.fromkeys(path.parents[1] for path in placed):
            clear.products(directory)
            clear.graphs(directory)

    def environment(self, around: Mapping[str, str]) -> dict[str, str]:
        """The variables of `around` that have to be others for a program to be watched."""
        paths = [str(self._folder), *filter(None, [around.get(_VARIABLE)])]
        return {_VARIABLE: os.pathsep.join(paths)}

    def reset(self) -> None:
        """Forget what was used, before the program starts once more."""
        (self._folder / startup.LOG).write_bytes(b"")
        self._sizes = {log: log.stat().st_size for log in self._logs()}

    def usage(self) -> Usage:
        """What was used since the last reset. A line that is damaged says nothing."""
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
