"""Runs a program with probes in the wrappers of its cache, and restores the originals."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.cache import naming
from rewriter.cache.held import HeldCaches
from rewriter.cache.location import VARIABLE
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.requirements import make, nothing_compiled, require_match
from rewriter.cache.select import Choice, Chosen, choose
from rewriter.cache.session import Tell
from rewriter.cache.slots import Cache, Slot, scan
from rewriter.cache.usage import Usage, Watch
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus, signal_name
from rewriter.core.signals import Signals
from rewriter.core.text import counted
from rewriter.dump import graph_marks
from rewriter.dump.directory import dump_directory
from rewriter.dump.summary import DumpSummary, summarise
from rewriter.execution import program
from rewriter.execution.runner import blocking_environment
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.types import Selection
from rewriter.runtime import cache_directory

# `_frozen_param0 = None  # device(type='cpu') torch.float32 (32,) (1,) 7fb8303d08c0` in Python,
# `// _frozen_param0 device(type='cpu') torch.float32 (32,) (1,) 7fb8303d08c0` in C++.
_ADDRESS = re.compile(rb"(?m)^(?=.*\bdevice\()((?:// )?_frozen_param\d+ .*) [0-9a-f]+$")
# With this variable, torch compiles into a new directory each time (`fresh_cache` in
# compile_fx.py), and uses no wrappers from the cache. Without cached graphs it also compiles.
_DISABLED = "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
_UNCACHED = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
_MANY = 50  # wrappers; for more, the user is told that it takes a while
_REMOTE = ("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE")


@dataclass(frozen=True)
class Request:
    """What to run, and how. `quiet` are the probes, `redirected` is the program's output.

    `timeout` is in seconds, for each run of the program; each run reads `stdin`. `pinned`: the
    program is told where the cache is, and no other one is probed; otherwise it finds its cache as
    always, and other caches that it uses are probed, too. `used` is what an earlier run of the
    program used. `environment` is added to that of the probed run. `patience` is
    how many seconds to wait for another command at work in a cache.
    """

    program: tuple[str, ...]
    directory: Path
    selection: Selection
    choice: Choice
    pinned: bool = False
    dump: str | None = None
    overwrite: bool = False
    timeout: float | None = None
    blocking: bool = False
    quiet: bool = True
    redirected: bool = False
    command: str = ""
    stdin: StandardInput = field(default_factory=StandardInput)
    used: Usage = field(default_factory=Usage)
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 0.0


@dataclass(frozen=True)
class Unprobed:
    """A wrapper without probes, because the program made it only in its last run.

    `frozen`: every process makes a new one, since its text contains addresses.
    """

    slot: Slot
    frozen: bool


@dataclass(frozen=True)
class CacheRun:
    """The result of a run. `runs` is how often the program ran, `ended` is how the last run ended.

    `others` are the caches that the program used besides the requested one, `used` is what its last
    run used.
    """

    ended: ExitStatus
    interrupted: bool = False
    runs: int = 0
    placed: tuple[Placed, ...] = ()
    refused: tuple[Refused, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    unprobed: tuple[Unprobed, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    dump: Path | None = None
    summary: DumpSummary = field(default_factory=DumpSummary)
    others: tuple[Path, ...] = ()
    used: Usage = field(default_factory=Usage)

    @property
    def wrappers(self) -> tuple[Placed, ...]:
        """The wrappers that had probes. The same file in several caches, such as those of ranks,
        counts once: its name is a hash of its text, and calls are counted by name."""
        return tuple({one.slot.path.name: one for one in reversed(self.placed)}.values())[::-1]


def run(request: Request, tell: Tell) -> CacheRun:
    """Run a program with probes. Its caches are restored in any case."""
    program.require(request.program)
    made = make(request.directory)
    if made and request.pinned:
        tell(f"note: {request.directory} did not exist: the program starts with a new, empty cache")
    try:
        with (
            Signals() as signals,
            ExitStack() as locks,
            tempfile.TemporaryDirectory(prefix="rewriter-run-") as place,
        ):
            caches = HeldCaches(
                locks, request.command, tell, lambda: not signals.received, request.patience
            )
            try:
                cache = caches.hold(request.directory)
                dump = dump_directory(Path("cache"), request.dump, overwrite=request.overwrite)
                folders = _Folders(dump, Path(place))
                try:
                    result = _Runner(request, caches, folders, signals, tell).run(cache)
                    graph_marks.keep(dump)
                    summary = _read(dump, result, folders.traces, tell)
                finally:
                    kept = (dump / "manifest.json").is_file()
                    if not kept:
                        shutil.rmtree(dump)  # nothing was recorded, so it is not a dump
            finally:
                caches.close()
    finally:
        if made:
            with contextlib.suppress(OSError):
                request.directory.rmdir()
    return replace(result, summary=summary, dump=dump if kept else None)


@dataclass(frozen=True)
class _Folders:
    """The directory for the dump of a run, and a temporary directory for its duration."""

    dump: Path
    place: Path

    @property
    def traces(self) -> Path:
        """The directory for the log of `TORCH_TRACE`."""
        return self.place / "trace"

    @property
    def watch(self) -> Path:
        return self.place / "watch"


def _read(dump: Path, ran: CacheRun, traces: Path, tell: Tell) -> DumpSummary:
    """Summarize the dump, after copying the called wrappers into it, without probes, and adding
    their names in the model."""
    try:
        result = summarise(dump)
    except RewriterError as error:
        tell(f"warning: {error.message}")
        return DumpSummary()
    try:
        called = [one for one in ran.placed if one.slot.path.name in result.calls]
        for one in called:
            (dump / one.slot.path.name).write_bytes(one.result.source)
        naming.write(dump, called, traces, ran.used)
    except OSError as error:
        tell(f"warning: cannot copy the wrappers to {dump}: {error.strerror}")
    return result


class _Runner:
    def __init__(
        self, request: Request, caches: HeldCaches, folders: _Folders, signals: Signals, tell: Tell
    ) -> None:
        self._request = request
        self._caches = caches
        self._dump = folders.dump
        self._traces = folders.traces
        self._signals = signals
        self._tell = tell
        self._runs = 0
        self._cleared: list[Cleared] = []
        folders.traces.mkdir()
        folders.watch.mkdir()
        self._watch = Watch(folders.watch, folders.traces)
        # The wrappers that the program used in caches other than the requested one.
        self._found: set[Path] = set()
        self._used = Usage()

    def run(self, cache: Cache) -> CacheRun:
        result = self._stages(cache)
        others = [x for x in self._caches.directories[1:] if x != self._watch.kept]
        return replace(
            result,
            runs=self._runs,
            cleared=tuple(self._cleared),
            others=tuple(others),
            used=self._used,
        )

    def _stages(self, cache: Cache) -> CacheRun:
        if self._find(self._request.used):
            cache = self._caches.scan()
        chosen = self._choose(cache)
        if not chosen.slots:
            # Do not run a program for names that the cache does not have.
            require_match(cache, self._request.choice)
            self._tell("no such wrapper in the cache yet: the program runs once without probes")
            ended = self._start({"REWRITER_PROBE": "off"})
            self._find(self._used)
            cache = self._caches.scan()
            chosen = self._choose(cache)
            if not chosen.slots and ended.code == 0:
                require_match(cache, self._request.choice)
                raise self._nothing_compiled()
            if not chosen.slots or self._signals.received:
                return CacheRun(ended, bool(self._signals.received))
            if self._ended_on_request(ended):
                return CacheRun(ended)
        result, now = self._probed(chosen)
        new = self._new(now, cache)
        if (
            new
            and self._runs == 1
            and not all(one.frozen for one in new)
            and not result.interrupted
            and not self._ended_on_request(result.ended)
        ):
            self._tell_again(new)
            for file in self._dump.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            result, again = self._probed(self._choose(now))
            new = self._new(again, now)
        return replace(result, unprobed=new)

    def _ended_on_request(self, ended: ExitStatus) -> bool:
        """Whether somebody asked the program to end; then the user is told that it is not started
        again."""
        if not ended.requested_by:
            return False
        self._tell(
            f"the program was asked to end ({signal_name(ended.requested_by)}), and is not started "
            "again; the same command runs it with probes in what it compiled"
        )
        return True

    def _tell_again(self, new: Sequence[Unprobed]) -> None:
        elsewhere = [one.slot for one in new if one.slot.path in self._found]
        wrappers = counted(len(elsewhere) or len(new), "wrapper")
        if elsewhere:
            text = f"the program used {wrappers} of other caches, which had no probes: "
        else:
            text = f"the program compiled {wrappers} that had no probes: "
        self._tell(text + "it runs once more")

    def _find(self, used: Usage) -> bool:
        """Lock the caches that a program used elsewhere. Returns whether there are any.

        If one no longer exists, the copies of its wrappers are used instead.
        """
        if self._request.pinned:
            return False
        found: set[Path] = set()
        for directory in used.directories:
            if directory in self._caches.directories[:1]:
                continue
            paths = {path for path in used.wrappers if path.parents[1] == directory}
            copies = {self._watch.copy(path) for path in paths if not path.exists()}
            found |= paths | copies
        for directory in dict.fromkeys(path.parents[1] for path in sorted(found)):
            if directory not in self._caches.directories and _holds_wrappers(directory, found):
                self._caches.hold(directory)
        self._found |= found
        return bool(found)

    def _nothing_compiled(self) -> RewriterError:
        directory = self._request.directory
        used = [
            path
            for path in self._used.directories
            if path != directory and (not path.exists() or _holds_wrappers(path))
        ]
        return nothing_compiled(directory, self._request.choice, used)

    def _probed(self, chosen: Chosen) -> tuple[CacheRun, Cache]:
        """Run the program with probes in some wrappers. Also returns the caches afterwards."""
        request = self._request
        if len(chosen.slots) > _MANY:
            self._tell(
                f"instrumenting {counted(len(chosen.slots), 'wrapper')}, which takes a while; "
                "--wrapper, --since or --newest choose fewer"
            )
        placed, refused = self._caches.place(
            chosen.slots, request.selection, overwrite=request.overwrite
        )
        if not placed:
            raise refused[0].error
        self._watch.arm(placed)
        self._tell(_probes_in(placed, request.directory, self._watch.kept))
        environment = {
            **request.environment,
            "REWRITER_DUMP": str(self._dump),
            "REWRITER_COMMAND": request.command,
        }
        # A graph that is compiled now contains the probes: do not share it with other machines.
        environment |= dict.fromkeys(_REMOTE, "0")
        if request.quiet:
            environment["REWRITER_QUIET"] = "1"
        try:
            ended = self._start(environment)
        finally:
            self._watch.restore_placed()
        self._cleared += self._caches.restore()
        self._find(self._used)
        result = CacheRun(ended, bool(self._signals.received), 0, placed, refused, chosen.broken)
        return result, self._caches.scan()

    def _start(self, added: dict[str, str]) -> ExitStatus:
        request = self._request
        if self._signals.received:
            raise KeyboardInterrupt
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REWRITER_") or name in cache_directory.VARIABLES
        }
        environment |= {**naming.environment(self._traces), **added}
        if environment.get(_DISABLED, "0") not in ("", "0"):
            environment |= {_DISABLED: "0", **_UNCACHED}
        if request.pinned:
            environment[VARIABLE] = str(request.directory)
        if request.blocking:
            environment |= blocking_environment()
        environment |= self._watch.environment(environment)
        self._runs += 1
        self._watch.reset()
        try:
            return program.run(
                request.program,
                environment,
                self._signals,
                self._tell,
                request.stdin,
                timeout=request.timeout,
                quiet=request.redirected,
            )
        finally:
            self._used = self._watch.usage()

    def _concerns(self, slot: Slot) -> bool:
        """Whether a wrapper is in the requested cache, or the program used it in another one."""
        return slot.directory == self._request.directory or slot.path in self._found

    def _choose(self, cache: Cache) -> Chosen:
        """The requested wrappers among those that concern this run."""
        slots = tuple(filter(self._concerns, cache.slots))
        return choose(replace(cache, slots=slots), self._request.choice, now=time.time())

    def _new(self, now: Cache, before: Cache) -> tuple[Unprobed, ...]:
        """The new wrappers in a cache that the request would have chosen."""
        known = {slot.path for slot in before.slots}
        texts = {_without_addresses(slot) for slot in before.slots}
        slots = tuple(x for x in now.slots if x.path not in known and self._concerns(x))
        choice = replace(self._request.choice, newest=None, since=None)
        chosen = choose(replace(now, slots=slots), choice, now=time.time())
        return tuple(Unprobed(slot, _without_addresses(slot) in texts) for slot in chosen.slots)


def _without_addresses(slot: Slot) -> bytes:
    """The text of a wrapper without the addresses of frozen weights, which are in comments.

    Without such weights, the whole text is compared.
    """
    text, count = _ADDRESS.subn(rb"\1", slot.wrapper.plain.data)
    return text if count else str(slot.path).encode()


def _probes_in(placed: Sequence[Placed], directory: Path, kept: Path) -> str:
    """How many wrappers have probes, and in which caches, if not only in `directory`."""
    text = f"probes in {counted(len(placed), 'wrapper')}"
    caches = Counter(one.slot.directory for one in placed)
    if set(caches) == {directory}:
        return text
    rows = [
        f"{number} in {'caches that are gone by now' if cache == kept else cache}"
        for cache, number in caches.items()
    ]
    return f"{text}: {', '.join(rows)}"


def _holds_wrappers(directory: Path, among: Collection[Path] | None = None) -> bool:
    """Whether a directory has a wrapper, and one `among` these: loaded files may be kernels."""
    try:
        slots = scan(directory).slots
    except RewriterError:
        return False
    return any(among is None or slot.path in among for slot in slots)
