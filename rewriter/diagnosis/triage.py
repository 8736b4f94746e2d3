"""Finds in a dump which launch was running when the program ended, its inputs, and what wrote them.

Nothing is executed. Where the rows hold only names, the rest is read from the dump's copy of the
wrapper.
"""

from __future__ import annotations

import math
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

from msgspec import UNSET

from rewriter.core.exit_status import ExitStatus
from rewriter.core.text import counted
from rewriter.diagnosis.evidence import Evidence, located
from rewriter.diagnosis.history import CallHistory
from rewriter.diagnosis.verdict import CrashVerdict, StoppedState
from rewriter.diagnosis.verdict_values import VerdictArgument
from rewriter.dump import graph_marks, launched
from rewriter.dump.document_files import EVENTS
from rewriter.dump.documents import LaunchRow
from rewriter.dump.graph_marks import GraphMark
from rewriter.dump.reading import Dump, RunDump, RunStep, is_recorded, open_dump
from rewriter.dump.rows import ErrorRow, ScalarRow, TensorRow

# Texts in an exception about a failed allocation.
_ALLOCATION = ("out of memory", "alloc", "memoryerror", "not enough memory")
# Signals for faults of the host: the device is not to blame.
_OF_THE_HOST = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# What several stops of a process in one state mean; those in "running" and "after" count together.
_THREADS = (
    "threads of the process were within a call: the record does not tell which of them ended the "
    "program, or whether it was another one."
)
_STREAMS = "streams of the graph were in a launch: the fault is in one of these."
_AMONG = {"running": _THREADS, "after": _THREADS, "replayed": _STREAMS}
_BOUND = re.compile(r"< (\d+)L*$")  # in the check of an index
_INDEXING = ("index", "embedding", "gather", "scatter", "take", "select")


def examine(
    dump: Path | Dump, ended: ExitStatus, *, blocking: bool = False
) -> tuple[CrashVerdict, ...]:
    """The verdicts about a program that ended like this: one for each process or thread whose rows
    stop at a launch, the likeliest culprit first. Empty if the dump has no launch.

    `blocking` says that each launch was waited for (`CUDA_LAUNCH_BLOCKING=1`).

    Raises `RewriterError` if the dump is not as a runtime writes it.
    """
    if isinstance(dump, Path) and not is_recorded(dump):
        return ()
    opened = open_dump(dump) if isinstance(dump, Path) else dump
    stops: list[_Stop] = []
    marks = graph_marks.read(opened.path) if ended.signal not in _OF_THE_HOST else ()
    for process in _processes(opened):
        known = [stop for runs in process if (stop := _stop(runs)) is not None]
        last = max(known, key=lambda stop: stop.time, default=None)
        # Of the threads, the one with the last event, and all that are within a call.
        within_calls = [x for x in known if x is last or x.state not in ("over", "begun")]
        stops += list(_replays(process, marks)) or within_calls
    stops = _likely(_waiting(stops))
    calls = CallHistory(opened)
    verdicts = [_verdict(opened, stop, ended, calls, blocking=blocking) for stop in stops]
    among = [(x.rank, x.pid, _AMONG.get(x.state, "")) for x in verdicts]
    within = Counter(among)  # threads of a process in a call, or streams of its graph in a launch
    result = []
    for verdict, where in zip(verdicts, among, strict=True):
        also = (f"{within[where]} {where[2]}",) if where[2] and within[where] > 1 else ()
        behind = _behind(opened, verdict, verdicts, calls)
        result.append(replace(verdict, behind=behind, notes=(*verdict.notes, *also)))
    return tuple(result)


def _behind(
    opened: Dump, verdict: CrashVerdict, verdicts: Sequence[CrashVerdict], calls: CallHistory
) -> str:
    """How many calls of a wrapper a rank has made less than one that waits for it."""
    for other in verdicts:
        if other.state == "waiting" and verdict.state != "waiting":
            of = [x for x in opened.runs if x.artifact == other.artifact]
            most, made = (
                max((calls.number(x) for x in of if x.rank == rank), default=0)
                for rank in (other.rank, verdict.rank)
            )
            if made < most:
                less = counted(most - made, "call")
                return f"rank {verdict.rank} is {less} behind rank {other.rank}, which waits for it"
    return ""


@dataclass(frozen=True)
class _Stop:
    """Where the rows of one thread end. `time` is that of its last event."""

    run: RunDump
    step: RunStep
    state: StoppedState
    time: int
    error: str = ""

    @property
    def facts(self) -> LaunchRow:
        return self.run.launch_row(self.step.launch)


def _processes(dump: Dump) -> Iterator[list[list[RunDump]]]:
    """The calls of each thread of each process, in the order of their last events."""
    processes: dict[tuple[int, object], dict[object, list[RunDump]]] = {}
    for run in dump.runs:
        threads = processes.setdefault((run.rank, run.facts.pid), {})
        threads.setdefault(run.facts.thread, []).append(run)
    for threads in processes.values():
        yield [sorted(runs, key=lambda x: (_time(x), x.number)) for runs in threads.values()]


def _time(run: RunDump) -> int:
    return (run.path / EVENTS).stat().st_mtime_ns


def _stop(runs: Sequence[RunDump]) -> _Stop | None:
    """Where a thread stopped: at the first recorded fault, or else in its last call."""
    for run in runs:
        faults = (row for row in run.having("error", ErrorRow) if row.which[0] is not None)
        if (row := next(faults, None)) is not None:
            state: StoppedState = "faulted" if row.phase == "after" else "earlier"
            step = run.step(*row.which)
            assert step is not None
            return _Stop(run, step, state, _time(run), row.error)
    run = runs[-1]
    if not run.steps or run.steps[-1].launch is None:
        return None
    step = run.steps[-1]
    stop = _Stop(run, step, "running", _time(run))
    if any(row.phase == "after" for row in run.rows(step)):
        launches = {*run.table, *(x.index for x in located(run)[0].values())}  # also without probes
        is_last = step.launch == max(launches, default=None) and not stop.facts.repeats
        return replace(stop, state="over" if is_last else "after")
    return replace(stop, state="begun") if stop.facts.after is UNSET else stop


def _replays(process: Sequence[Sequence[RunDump]], marks: Sequence[GraphMark]) -> Iterator[_Stop]:
    """The launches that graph replays of a process began and did not end, one for each stream."""
    for run, mark in product(chain.from_iterable(process), marks):
        is_own = (mark.pid, mark.run) == (run.facts.pid, run.name)
        step = run.step(*mark.running) if is_own and mark.running is not None else None
        if step is not None:
            yield _Stop(run, step, "replayed", _time(run))


def _waiting(stops: Sequence[_Stop]) -> list[_Stop]:
    """Mark ranks that only wait: they are in a collective that other ranks have not reached."""

    def waits_in(stop: _Stop) -> int | None:
        waits = stop.state in ("running", "begun") and stop.facts.kind == "collective"
        return stop.step.launch if waits else None

    def is_alone(stop: _Stop) -> bool:
        others = [x for x in stops if x.run.rank != stop.run.rank]
        return waits_in(stop) is not None and any(waits_in(x) != waits_in(stop) for x in others)

    return [replace(stop, state="waiting") if is_alone(stop) else stop for stop in stops]


def _likely(stops: Sequence[_Stop]) -> list[_Stop]:
    """The likeliest culprit first, without threads that cannot be to blame."""
    over = {stop.run.rank: stop for stop in sorted(stops, key=lambda stop: stop.time)}
    if any(stop.state not in ("over", "waiting") for stop in stops):
        # A thread between calls is not to blame if another one is within a call.
        over = {}
    kept = [x for x in stops if x.state != "over" or over.get(x.run.rank) is x]
    order: tuple[StoppedState, ...] = (
        "faulted", "replayed", "running", "begun", "earlier", "after", "over", "waiting"
    )  # fmt: skip
    late = {"over": -1}  # of those that ended, the last one first
    return sorted(kept, key=lambda x: (order.index(x.state), late.get(x.state, 1) * x.time))


def _verdict(
    dump: Dump, stop: _Stop, ended: ExitStatus, calls: CallHistory, *, blocking: bool
) -> CrashVerdict:
    """What is known of the launch where a process stopped."""
    evidence = Evidence(dump, stop.run, stop.step)
    arguments = tuple(evidence.arguments())
    on_gpu = evidence.on_gpu(arguments)
    pinned = stop.state in ("faulted", "waiting", "replayed")
    pinned = pinned or "sync" in (dump.manifest.probes or ())
    # Values measured before a launch stay on the device until the launch is over, so after a fault
    # the rows of the launch that was running may be missing; a blocking run rules that out.
    pinned = pinned or (blocking and stop.state in ("running", "begun"))
    made = CrashVerdict.of(
        dump,
        stop.run,
        launched.recorded(stop.run, stop.step),
        arguments,
        state=stop.state,
        ended=ended,
        error=stop.error,
        asynchronous=on_gpu and not pinned and not ended.stopped,
        unannounced=not any(row.phase == "before" for row in stop.run.rows(stop.step)),
        on_gpu=on_gpu,
        call=calls.words(stop.run),
        number=calls.number(stop.run),
    )
    if stop.state == "replayed":
        made = _in_replay(made, stop, calls)
    made = replace(made, index=next(_indices(made), "") if ended.check else "")
    return replace(made, notes=(*_notes(made), *filter(None, [dump.caveat])))


def _in_replay(made: CrashVerdict, stop: _Stop, calls: CallHistory) -> CrashVerdict:
    """The verdict of the call that replayed the graph, with the inputs of that call.

    A later call than the one that captured the graph is in the record if the wrapper has parts that
    are not in the graph. What was recorded inside of the graph is of replays that ended.
    """
    run = calls.last(stop.run)
    is_known = run is not stop.run and run.step(stop.step.launch, stop.step.iteration) is None
    given = {row.arg: row for row in launched.tensors(run.inputs)} if is_known else {}
    arguments = tuple(_given_now(x, given.get(x.name)) for x in made.arguments)
    if is_known:
        return replace(made, run=run.name, call=calls.words(run), arguments=arguments)
    call = f"a replay of the graph that the {made.call} captured"
    return replace(made, call=call, arguments=arguments)


def _given_now(argument: VerdictArgument, now: TensorRow | None) -> VerdictArgument:
    """An argument with its value `now`, if it is an input of the call, or else without a value."""
    made = argument.producer
    if isinstance(argument.row, ScalarRow):
        return argument  # of the capture, and the same in each replay
    if made is not None and made.launch is not None:
        now = None
    if now is None and argument.tensor is not None:
        now = argument.tensor.unmeasured()
    return replace(argument, row=now, producer=made and replace(made, row=now))


def _notes(verdict: CrashVerdict) -> Iterator[str]:
    if verdict.asynchronous:
        yield (
            "Launches on a GPU are asynchronous: a fault of one shows at a later one. "
            "`--probe names,sync` waits for each, and names the one at fault."
        )
    elif verdict.state == "earlier":
        yield "No probed launch was found faulty: what ran before it and is not probed may be."
    elif verdict.state == "after" and verdict.unannounced:
        yield (
            "With these probes nothing is recorded before a launch: the next one may have been "
            "running. `--probe names,print` says which one was."
        )
    elif verdict.state == "begun":
        yield (
            f"With these probes nothing is recorded after a launch: what stands between "
            f"#{verdict.launch} and the next one may have been reached."
        )
    if verdict.state == "replayed":
        yield (
            "Its marks in the graph say so: the replay began it, and did not end it. What it was "
            "given inside of the graph is not known: values there are read after a replay."
        )
    if verdict.state in ("faulted", "replayed") or (
        verdict.on_gpu and verdict.state in ("running", "begun")
    ):
        yield (
            "On NVIDIA, `compute-sanitizer --target-processes all` in front of the command names "
            "the address and the threads of a bad access."
        )
    yield from _values(verdict)
    yield from _ending(verdict.ended)


def _ending(status: ExitStatus) -> Iterator[str]:
    """A note about the way the program ended, if there is one."""
    if status.stopped:
        return
    if status.signal == signal.SIGKILL:
        yield (
            "SIGKILL comes from outside: where memory runs out, the system sends it, and `dmesg` "
            "says so."
        )
    elif not status.signal and any(word in status.message.lower() for word in _ALLOCATION):
        yield (
            "An allocation failed: the launch may only be the one that asked last. Sizes of what "
            "it reads and writes are above."
        )


def _values(verdict: CrashVerdict) -> Iterator[str]:
    """Notes about suspicious inputs of the launch."""
    for argument in verdict.arguments:
        row = argument.measured
        if argument.role == "out" or row is None:
            continue
        if row.nan or row.inf:
            yield (
                f"{argument.in_model} holds {row.count('nan')} NaN and {row.count('inf')} "
                f"infinities of {counted(row.size, 'element')} when the launch reads it."
            )
    indexes = any(word in name for name in _names(verdict) for word in _INDEXING)
    if indexes and not verdict.index:
        yield from (f"{index}: out of bounds, if they are indices." for index in _indices(verdict))


def _names(verdict: CrashVerdict) -> tuple[str, ...]:
    """The names of what a launch computes."""
    return tuple(x.lower() for x in (verdict.kernel, *verdict.origins, *verdict.source_nodes))


def _indices(verdict: CrashVerdict) -> Iterator[str]:
    """What a launch was given that is out of bounds, if it holds indices; the bound is that of the
    check that failed in the kernel, if one did."""
    match = _BOUND.search(verdict.ended.check)
    checked = match[1] if match else ""
    # A negative index counts from the end, but not in a table of embeddings.
    lowest = 0 if checked and any("embedding" in x for x in _names(verdict)) else -1
    for argument in verdict.arguments:
        row = argument.measured
        if argument.role == "out" or row is None or not row.dtype.startswith(("int", "uint")):
            continue
        if argument.producer is not None and "randint" in argument.producer.kernel:
            continue  # the seed of a dropout: any integer, and no index
        low, high = row.min, row.max
        # Its own sizes say how many indices there are, and not what they may be.
        others = [x.tensor for x in verdict.arguments if x.tensor and x is not argument]
        if verdict.kind == "triton_user":  # it may take a tensor of several dimensions as one row
            sizes = [math.prod(other.shape) for other in others]
            noun = "element" if max(sizes, default=0) == 1 else "elements"
            limit = f"none of the other tensors has more than {{}} {noun}"
        else:
            sizes = [size for other in others for size in other.shape]
            limit = "no dimension of the other tensors is longer than {}"
        if isinstance(low, int) and isinstance(high, int) and sizes:
            most = int(checked or max(sizes))
            of = [x.in_model for x in verdict.arguments if x.tensor and most in x.tensor.shape[:1]]
            if high < most and low >= lowest * most:
                continue
            if checked:
                rows = f"{of[0]} has {most} rows" if of else f"there are {most}"
                yield f"{argument.in_model} holds {high if high >= most else low}, {rows}"
            else:
                held = f"integers from {low} to {high}"
                yield f"{argument.in_model} holds {held}, and {limit.format(most)}"
