"""Runs a program once, with probes in the wrappers that it loads."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.core import limits
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.printed import printed
from rewriter.core.signals import Signals
from rewriter.core.text import counted, some
from rewriter.dump import graph_marks
from rewriter.dump.directory import dump_directory
from rewriter.dump.reading import is_recorded, open_dump
from rewriter.dump.summary import DumpSummary, summarise
from rewriter.execution import program
from rewriter.execution.control import VARIABLE as CONTROL
from rewriter.execution.hook import naming, of_probes, place_for_sockets, search_path
from rewriter.execution.hook.server import Loaded, Process, Server
from rewriter.execution.hook.startup.sitecustomize import PLAIN, RAISED, SOCKET, STACK, STACKS
from rewriter.execution.runner import blocking_environment
from rewriter.execution.standard_error import exception, place_of_stack
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.types import Edited, Selection
from rewriter.model_names import trace
from rewriter.runtime import cache_directory
from rewriter.runtime.attempt import ATTEMPTS, OUTPUTS

Tell = Callable[[str], None]
# In the exception of a process that tells of another one.
_LAUNCHED = ("CalledProcessError", "ChildFailedError", "ProcessRaisedException")
_NAMED = 12  # wrappers or kernels named in an error
_ELSEWHERE = (
    "its process did not import the start-up module: a Python with -I, -E or -S, or with an "
    "environment of its own"
)


@dataclass(frozen=True)
class Request:
    """What to run, and how. `quiet` are the probes, `redirected` is the program's output.

    With `globs`, only wrappers that match one of them get probes. `timeout` is in seconds.
    `environment` is added to that of the program. If the command `hears` it, the way it ended has
    what it wrote of that to standard error: an exception, a check that failed in a kernel, or what
    an allocator complained of.
    """

    program: tuple[str, ...]
    selection: Selection
    globs: tuple[str, ...] = ()
    dump: str | None = None
    overwrite: bool = False
    timeout: float | None = None
    blocking: bool = False
    quiet: bool = True
    redirected: bool = False
    command: str = ""
    stdin: StandardInput | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    hears: bool = False


@printed("wrapper=path reason")
@dataclass(frozen=True)
class Unprobed:
    """A wrapper that ran without probes although it was chosen, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class HookedRun:
    """The result of a run: how it ended, the wrappers that the program loaded, those that ran
    without probes, and what the processes read."""

    ended: ExitStatus
    loaded: tuple[Loaded, ...] = ()
    unprobed: tuple[Unprobed, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)
    traced: str = ""  # what Dynamo did, where Inductor compiled nothing
    dump: Path | None = None
    summary: DumpSummary = field(default_factory=DumpSummary)

    @property
    def interrupted(self) -> bool:
        """Whether a signal to this command ended it."""
        return self.ended.interrupted != 0

    @property
    def probed(self) -> tuple[Loaded, ...]:
        """The wrappers that had probes. Files of the same text, such as those in the caches of
        ranks, count once: calls are counted by the name of the first."""
        placed = (wrapper for wrapper in reversed(self.loaded) if wrapper.result is not None)
        return tuple({wrapper.wrapper.source: wrapper for wrapper in placed}.values())[::-1]

    @property
    def refused(self) -> tuple[Loaded, ...]:
        """The wrappers that could not have probes."""
        return tuple(wrapper for wrapper in self.loaded if wrapper.error is not None)


def run(request: Request, tell: Tell) -> HookedRun:
    """Run a program with probes. Raises `RewriterError` if there was nothing to put them into."""
    program.require(request.program)
    with _prepared() as (signals, place):
        dump = dump_directory(Path("cache"), request.dump, overwrite=request.overwrite)
        kept = False
        try:
            ran = _start(request, place, dump, signals, tell)
            if (missing := _not_probed(request, ran)) is not None:
                if ran.ended.code == 0:
                    raise missing
                tell(f"warning: {missing.message}")
            summary = _complete(dump, ran, place, tell)
            if ran.ended.timed_out:
                ran = replace(ran, ended=_located(ran.ended, dump, place))
            kept = (dump / "manifest.json").is_file()
        finally:
            if not kept:
                # Nothing was recorded, so it is not a dump; the program may have removed it.
                shutil.rmtree(dump, ignore_errors=True)
        return replace(ran, summary=summary, dump=dump if kept else None)


@dataclass(frozen=True)
class ReplacedRun:
    """A run with launches replaced: how it ended, and the launches that ran as they are because
    what stood in their place failed, by `NAME#LAUNCH`, with the error. `outputs` are what calls of
    wrappers that keep it returned, as files of torch's, in order."""

    ended: ExitStatus
    failed: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[bytes, ...] = ()


def run_replaced(
    request: Request, edits: Callable[[Wrapper], Edited | None], tell: Tell
) -> ReplacedRun:
    """Run a program with lines in its wrappers that replace launches, and without a dump. Raises
    `RewriterError` if a wrapper does not have its lines."""
    with _prepared() as (signals, place):
        ran = _start(request, place, place / "dump", signals, tell, edits)
        if (without := next(_failed(place), None)) is not None:
            raise RewriterError(
                "compile-failed",
                f"{without.path} does not have its launches replaced: {without.reason}",
                hint="What the program printed says why. --wrapper GLOB keeps to other wrappers.",
                code=FAILED,
            )
        file = place / ATTEMPTS
        text = file.read_text("utf-8", "replace") if file.exists() else ""
        lines = (line.partition(" ") for line in text.splitlines())
        failed = {launch: problem for launch, _, problem in lines}
        kept = sorted(place.glob(f"{OUTPUTS}*"), key=lambda file: file.stat().st_mtime_ns)
        return ReplacedRun(ran.ended, failed, tuple(file.read_bytes() for file in kept))


@contextmanager
def _prepared() -> Iterator[tuple[Signals, Path]]:
    """Signals go to the program, and a folder has its socket."""
    prefix, folder = "rewriter-run-", place_for_sockets()
    with (
        Signals() as signals,
        tempfile.TemporaryDirectory("", prefix, folder, ignore_cleanup_errors=True) as name,
    ):
        yield signals, Path(name)


def _start(
    request: Request,
    place: Path,
    dump: Path,
    signals: Signals,
    tell: Tell,
    edits: Callable[[Wrapper], Edited | None] | None = None,
) -> HookedRun:
    server = Server(request.selection, request.globs, edits)
    with server.listening(place) as address:
        ended = program.run(
            request.program,
            _environment(request, place, dump, tell) | {SOCKET: str(address)},
            signals,
            tell,
            request.stdin,
            timeout=request.timeout,
            quiet=request.redirected,
            hears=request.hears,
        )
    unprobed = {
        unprobed.path: unprobed for unprobed in (*_elsewhere(place, server), *_failed(place))
    }
    return HookedRun(
        _raised(ended, place),
        server.loaded,
        tuple(unprobed.values()),
        server.processes,
        _traced(place) if not server.loaded else "",
    )


def _environment(request: Request, place: Path, dump: Path, tell: Tell) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("REWRITER_") or name == cache_directory.VARIABLE
    }
    environment |= {**naming.environment(place), **request.environment}
    if request.timeout is not None:
        environment[STACKS] = "1"
    environment["PYTHONPATH"] = search_path(environment)
    environment |= of_probes(dump, request.command, quiet=request.quiet)
    if request.selection.dormant:
        control = os.environ.get(CONTROL) or str(place / "control")
        environment[CONTROL] = control
        tell(
            f"probes are off; to switch some on: rewriter control {shlex.quote(control)} set print"
        )
    if request.blocking:
        environment |= blocking_environment()
    return environment


def _located(ended: ExitStatus, dump: Path, place: Path) -> ExitStatus:
    """How a program was stopped, with the place in it where each of its processes was."""
    ranks = {run.facts.pid: run.rank for run in open_dump(dump).runs} if is_recorded(dump) else {}
    places = {number: where for number, text in _left(place, STACK)
              if (where := place_of_stack(text)).text}  # fmt: skip
    if len(places) == 1:
        (where,) = places.values()
        return replace(ended, place=where.text, scope=where.scope)
    rows = [
        (ranks.get(number, len(places)), f"rank {ranks[number]}" if number in ranks else "", where)
        for number, where in places.items()
    ]
    lines = (f"{name or 'another process'} {where.text}" for _, name, where in sorted(rows))
    return replace(ended, stacks=tuple(lines))


def _left(place: Path, suffix: str) -> Iterator[tuple[int, str]]:
    """What processes left in files of this name, by their numbers, in the order of their ends."""
    for file in sorted(place.glob(f"*{suffix}"), key=lambda file: file.stat().st_mtime_ns):
        yield int(file.stem), limits.read(file, limits.JSON_BYTES).decode("utf-8", "replace")


def _raised(ended: ExitStatus, place: Path) -> ExitStatus:
    """How a program ended, with the exception that ended its own process, or the first of those
    that this one started; if none was ended by one, what it printed was caught."""
    left = [exception(text) for _, text in _left(place, RAISED)] if ended.code == 1 else []
    if not left or ended.stopped:
        return ended
    own = left[-1]  # the program's own process ends last
    if own is None or not own.place.text or any(x in own.text for x in _LAUNCHED):
        own = next(filter(None, left), None)
    return own.of(ended) if own else ExitStatus.of(1)


def _traced(place: Path) -> str:
    """What torch's trace says of a program for which Inductor compiled nothing."""
    text = "".join(log.read_text("utf-8", "replace") for log in place.glob("*.log"))
    functions, graphs = (text.count(f'{{"dynamo_{x}"') for x in ("start", "output_graph"))
    if graphs:
        return (
            f"torch.compile traced {counted(graphs, 'graph')} in it, and Inductor compiled none: "
            'another backend has them, such as backend="eager", or the compiler failed, of which '
            "torch warns above."
        )
    if functions:
        return (
            f"torch.compile began {counted(functions, 'function')} in it, and nothing was left to "
            "compile between graph breaks: TORCH_LOGS=graph_breaks names them."
        )
    return ""


def _elsewhere(place: Path, server: Server) -> Iterator[Unprobed]:
    """Wrappers that torch's trace has of a process that did not ask about them."""
    known = {(x.pid, path.name) for x in server.processes.values() for path in x.wrappers}
    for log in sorted(place.glob("*.log")):
        for process, path in trace.loaded_wrappers(log):
            if (process, path.name) not in known:
                yield Unprobed(path, _ELSEWHERE)


def _failed(place: Path) -> Iterator[Unprobed]:
    """The wrappers for which asking failed."""
    file = place / PLAIN
    for line in file.read_text("ascii", "replace").splitlines() if file.exists() else ():
        with suppress(ValueError, SyntaxError, KeyError, TypeError):
            row = ast.literal_eval(line)
            yield Unprobed(Path(row["path"]), row["reason"])


def _not_probed(request: Request, ran: HookedRun) -> RewriterError | None:
    """Why nothing of a program could be probed; `None` if something was, or its end explains it."""
    if ran.probed or ran.interrupted:
        return None
    if ran.ended.code != 0 and (ran.refused or not ran.loaded):
        return None
    if ran.refused:
        return ran.refused[0].error
    if not ran.loaded:
        return nothing_compiled(ran)
    kernels = request.selection.kernels
    if kernels is None:
        message = f"the program loaded no wrapper with a name like {', '.join(request.globs)}"
        there = list(dict.fromkeys(loaded.short for loaded in ran.loaded))
    else:
        message = f"the program loaded no wrapper that launches a kernel like {', '.join(kernels)}"
        names = (x.kernel for loaded in ran.loaded for x in loaded.wrapper.located.launches)
        there = list(dict.fromkeys(names))
    return RewriterError("no-wrapper-matches", message, hint=f"There are {some(there, _NAMED)}.")


def nothing_compiled(ran: HookedRun) -> RewriterError:
    """The error if a program ran, and asked for the probes of no wrapper."""
    reasons = ", ".join(dict.fromkeys(unprobed.reason for unprobed in ran.unprobed))
    count = len(ran.unprobed)
    return RewriterError(
        "nothing-compiled",
        "the program ran, and loaded no wrapper"
        + (f" that could be probed; {count} ran as they are: {reasons}" if count else ""),
        hint=ran.traced
        or "It compiles nothing with Inductor, or does so where its PYTHONPATH is not heeded: "
        "in a Python with -I, -E or -S, with an environment of its own, or on another machine. "
        "Packages of AOTInductor are no wrappers that a program loads: `rewriter instrument "
        "model.pt2` puts probes into one.",
    )


def _complete(dump: Path, ran: HookedRun, traces: Path, tell: Tell) -> DumpSummary:
    try:
        graph_marks.keep(dump)
        summary = summarise(dump)
        called = [loaded for loaded in ran.probed if loaded.path.name in summary.calls]
        complete(dump, called, traces, ran.processes)
        return summary
    except RewriterError as error:
        tell(f"warning: {error.message}")
    except OSError as error:
        tell(f"warning: cannot copy the wrappers to {dump}: {error.strerror}")
        return summarise(dump)
    return DumpSummary()


def complete(
    dump: Path, loaded: Sequence[Loaded], traces: Path, processes: Mapping[int, Process]
) -> None:
    """Add to a dump what the programs did not write: the wrappers, with their probes, to be read,
    and their names in the model. Raises `RewriterError`, `OSError`."""
    probed = [(x.wrapper, x.result) for x in loaded if x.result]
    for wrapper, made in probed:
        copy = dump / wrapper.path.name
        if not copy.is_file():  # a server completes a dump several times
            # Not the text that ran: that has the runtime in it, and a label in what it prints.
            again = instrument_wrapper(wrapper, made.selection, replace=True, verified=False)
            copy.write_bytes(again.source)
    naming.write(dump, [wrapper for wrapper, _ in probed], traces, processes)
