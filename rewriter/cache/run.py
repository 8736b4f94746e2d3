"""Runs a program with probes in the wrappers of its cache, and gives the originals back."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.cache import naming
from rewriter.cache.location import VARIABLE
from rewriter.cache.mutate import Cleared, Placed, Refused
from rewriter.cache.select import Choice, Chosen, choose
from rewriter.cache.session import Session, Tell, writing
from rewriter.cache.slots import Cache, Slot, scan
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.signals import Signals
from rewriter.core.text import counted
from rewriter.dump.directory import dump_directory
from rewriter.dump.summary import DumpSummary, summarise
from rewriter.execution import program
from rewriter.execution.runner import blocking_environment
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.types import Selection

# `_frozen_param0 = None  # device(type='cpu') torch.float32 (32,) (1,) 7fb8303d08c0` in Python,
# `// _frozen_param0 device(type='cpu') torch.float32 (32,) (1,) 7fb8303d08c0` in C++.
_ADDRESS = re.compile(rb"(?m)^(?=.*\bdevice\()((?:// )?_frozen_param\d+ .*) [0-9a-f]+$")
# With this, torch compiles into a new directory each time (`fresh_cache` in compile_fx.py), and
# takes no wrapper from the cache. Without graphs from a cache it compiles each time, too.
_DISABLED = "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
_UNCACHED = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
_NAMED = 12  # kernels or wrappers in an error
_MANY = 50  # wrappers from which on it is said that they take a while
_REMOTE = ("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE")


@dataclass(frozen=True)
class Request:
    """What is to be run, and how. `quiet` are the probes, `redirected` is the program's output.

    `timeout` is in seconds, for each run of the program; all of them read `stdin`. `pinned` says
    that the program is told where the cache is; otherwise it finds it as it always does.
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


@dataclass(frozen=True)
class Unprobed:
    """A wrapper that the program made only in its last run, which is why it had no probes.

    `frozen` says that it makes a new one in every process: the text holds addresses.
    """

    slot: Slot
    frozen: bool


@dataclass(frozen=True)
class CacheRun:
    """What a run did. `runs` counts how often the program ran, `ended` tells of the last time."""

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


def run(request: Request, tell: Tell) -> CacheRun:
    """Run a program, probed. Whatever becomes of it, the cache is as it was afterwards."""
    program.require(request.program)
    made = _make(request.directory)
    try:
        with (
            Signals() as signals,
            writing(request.directory, tell) as cache,
            tempfile.TemporaryDirectory(prefix="rewriter-trace-") as traces,
        ):
            _require_plain(cache)
            dump = dump_directory(Path("cache"), request.dump, overwrite=request.overwrite)
            try:
                result = _Runner(request, dump, signals, tell, Path(traces)).run(cache)
                result = replace(result, summary=_read(dump, result.placed, Path(traces), tell))
            finally:
                kept = (dump / "manifest.json").is_file()
                if not kept:
                    shutil.rmtree(dump)  # nothing was recorded: it is no dump
    finally:
        if made:
            with contextlib.suppress(OSError):
                request.directory.rmdir()
    return replace(result, dump=dump if kept else None)


def _read(dump: Path, placed: Iterable[Placed], traces: Path, tell: Tell) -> DumpSummary:
    """What the dump says. The wrappers that were called are copied into it, as they were, and what
    they are called in the model is added."""
    try:
        result = summarise(dump)
    except RewriterError as error:
        tell(f"warning: {error.message}")
        return DumpSummary()
    try:
        called = [one for one in placed if one.slot.path.name in result.calls]
        for one in called:
            (dump / one.slot.path.name).write_bytes(one.result.source)
        naming.write(dump, called, traces)
    except OSError as error:
        tell(f"warning: cannot copy the wrappers to {dump}: {error.strerror}")
    return result


class _Runner:
    def __init__(
        self, request: Request, dump: Path, signals: Signals, tell: Tell, traces: Path
    ) -> None:
        self._traces = traces
        self._request = request
        self._dump = dump
        self._signals = signals
        self._tell = tell
        self._runs = 0
        self._cleared: list[Cleared] = []
        self._session = Session(
            request.directory, request.command, go_on=lambda: not signals.received
        )

    def run(self, cache: Cache) -> CacheRun:
        try:
            self._session.announce()
            result = self._stages(cache)
        finally:
            last = self._session.close()
        cleared = self._cleared if last is None else [*self._cleared, last]
        return replace(result, runs=self._runs, cleared=tuple(cleared))

    def _stages(self, cache: Cache) -> CacheRun:
        chosen = self._choose(cache)
        if not chosen.slots:
            # What the cache has not is not waited for: the name is wrong, or the cache.
            _require_match(cache, self._request.choice)
            self._tell("no such wrapper in the cache yet: the program runs once without probes")
            ended = self._start({"REWRITER_PROBE": "off"})
            cache = scan(self._request.directory)
            chosen = self._choose(cache)
            if not chosen.slots and ended.code == 0:
                _require_match(cache, self._request.choice)
                raise _nothing_compiled(self._request)
            if not chosen.slots or self._signals.received:
                return CacheRun(ended, bool(self._signals.received))
        result, now = self._probed(chosen)
        new = self._new(now, cache)
        if (
            new
            and self._runs == 1
            and not all(one.frozen for one in new)
            and not result.interrupted
        ):
            self._tell(
                f"the program compiled {counted(len(new), 'wrapper')} that had no probes: "
                "it runs once more"
            )
            for file in self._dump.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            result, again = self._probed(self._choose(now))
            new = self._new(again, now)
        return replace(result, unprobed=new)

    def _probed(self, chosen: Chosen) -> tuple[CacheRun, Cache]:
        """Run the program with probes in some wrappers of the cache; the cache afterwards."""
        request = self._request
        if len(chosen.slots) > _MANY:
            self._tell(
                f"instrumenting {counted(len(chosen.slots), 'wrapper')}, which takes a while; "
                "--wrapper, --since or --newest choose fewer"
            )
        placed, refused = self._session.place(
            chosen.slots, request.selection, overwrite=request.overwrite
        )
        if not placed:
            raise refused[0].error
        self._tell(f"probes in {counted(len(placed), 'wrapper')}")
        environment = {"REWRITER_DUMP": str(self._dump), "REWRITER_COMMAND": request.command}
        # A graph that is compiled now has the probes in it: it must not get to other machines.
        environment |= dict.fromkeys(_REMOTE, "0")
        if request.quiet:
            environment["REWRITER_QUIET"] = "1"
        ended = self._start(environment)
        self._cleared.append(self._session.restore())
        result = CacheRun(ended, bool(self._signals.received), 0, placed, refused, chosen.broken)
        return result, scan(request.directory)

    def _start(self, added: dict[str, str]) -> ExitStatus:
        request = self._request
        if self._signals.received:
            raise KeyboardInterrupt
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("REWRITER_")
        }
        environment |= {**naming.environment(self._traces), **added}
        if environment.get(_DISABLED, "0") not in ("", "0"):
            environment |= {_DISABLED: "0", **_UNCACHED}
        if request.pinned:
            environment[VARIABLE] = str(request.directory)
        if request.blocking:
            environment |= blocking_environment()
        self._runs += 1
        return program.run(
            request.program,
            environment,
            self._signals,
            self._tell,
            request.stdin,
            timeout=request.timeout,
            quiet=request.redirected,
        )

    def _choose(self, cache: Cache) -> Chosen:
        return choose(cache, self._request.choice, now=time.time())

    def _new(self, now: Cache, before: Cache) -> tuple[Unprobed, ...]:
        """The wrappers that are new in a cache, as far as they would have been chosen."""
        known = {slot.name for slot in before.slots}
        texts = {_without_addresses(slot) for slot in before.slots}
        slots = tuple(slot for slot in now.slots if slot.name not in known)
        choice = replace(self._request.choice, newest=None, since=None)
        chosen = choose(replace(now, slots=slots), choice, now=time.time())
        return tuple(Unprobed(slot, _without_addresses(slot) in texts) for slot in chosen.slots)


def _without_addresses(slot: Slot) -> bytes:
    """The text of a wrapper without the addresses of frozen weights, which are in comments.

    Its own text is all that a wrapper without such weights has in common with another one.
    """
    text, count = _ADDRESS.subn(rb"\1", slot.wrapper.plain.data)
    return text if count else slot.name.encode()


def _make(directory: Path) -> bool:
    """Make the cache where there is none, to have it for ourselves; whether that was done."""
    if directory.is_dir():
        return False
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise RewriterError(
            "no-cache",
            f"{directory} is no cache of Inductor's, and cannot be made: {error.strerror}",
            hint="Pass another directory with --dir.",
        ) from error
    return True


def _require_plain(cache: Cache) -> None:
    held = [slot for slot in cache.slots if slot.state in ("instrumented", "edited")]
    if held:
        raise RewriterError(
            "cache-instrumented",
            f"{counted(len(held), 'wrapper')} in {cache.directory} "
            f"{'has' if len(held) == 1 else 'have'} probes already: "
            + ", ".join(slot.name for slot in held[:3])
            + (", …" if len(held) > 3 else ""),
            hint="Take them out with `rewriter cache restore`, or run the program as it is.",
        )


def _require_match(cache: Cache, choice: Choice) -> None:
    """Raise where wrappers are there and none has a name, or a kernel, that was asked for."""
    by_name = replace(choice, since=None, newest=None)
    if not cache.slots or by_name == Choice():
        return
    chosen = choose(cache, by_name, now=0)
    if chosen.slots or chosen.broken:
        return
    there = choose(cache, replace(by_name, kernels=None), now=0).slots
    if not there or choice.kernels is None:
        message = f"no wrapper in {cache.directory} has a name like {', '.join(choice.globs)}"
        hint = f"There are {', '.join(slot.short for slot in cache.slots[:_NAMED])}"
        total = len(cache.slots)
    else:
        kernels = dict.fromkeys(x.kernel for slot in there for x in slot.wrapper.located.launches)
        message = (
            f"no wrapper in {cache.directory} launches a kernel like {', '.join(choice.kernels)}"
        )
        hint = f"There are {', '.join(list(kernels)[:_NAMED])}"
        total = len(kernels)
    hint += ", …" if total > _NAMED else ""
    raise RewriterError(
        "no-wrapper-matches",
        message,
        hint=f"{hint}.\n  `rewriter cache list` shows all. If the program was not compiled into "
        "this cache yet, run it once without this choice.",
    )


def _nothing_compiled(request: Request) -> RewriterError:
    if request.choice == Choice():
        message = f"the program ran, and left no wrapper in {request.directory}"
    else:
        message = (
            f"the program ran, and no wrapper in {request.directory} is one that was asked for"
        )
    return RewriterError(
        "nothing-compiled",
        message,
        hint="It may compile nothing with Inductor, or set a cache directory of its own: pass that "
        "with --dir. `rewriter cache list` shows what is there.",
    )
