"""Tells from the dump of a program that died which launch was running, with what, and from whom.

Nothing is executed: the record is read, and where it holds names alone, the copy of the wrapper
that lies beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.comparison import dataflow
from rewriter.dump import EVENTS, Dump, RunDump, Step, is_recorded, open_dump
from rewriter.errors import RewriterError
from rewriter.types import Json, Launch
from rewriter.verdict import Argument, Ended, Producer, State, Verdict

_ON_GPU = ("triton", "triton_user", "triton_template", "combo", "multi_kernel", "cuda")
_INDEXING = ("index", "embedding", "gather", "scatter", "take", "select")


def examine(dump: Path, ended: Ended, *, blocking: bool = False) -> tuple[Verdict, ...]:
    """The verdicts of a program that ended like this: one for each process or thread whose record
    stops at a launch, the likeliest culprit first. Empty where the dump names no launch.

    `blocking` says that each launch was waited for (`CUDA_LAUNCH_BLOCKING=1`).

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    if not is_recorded(dump):
        return ()
    opened = open_dump(dump)
    stops: list[_Stop] = []
    for process in _processes(opened):
        found = [_stop(opened, runs) for runs in process]
        stops += _candidates([stop for stop in found if stop is not None])
    stops = _likely(_waiting(stops))
    verdicts = [_Examiner(opened, stop, ended, blocking).verdict() for stop in stops]
    within = Counter((one.rank, one.pid) for one in verdicts if one.state in ("running", "after"))
    return tuple(_among_threads(one, within[one.rank, one.pid]) for one in verdicts)


def _among_threads(verdict: Verdict, within: int) -> Verdict:
    """A verdict that says how many threads of its process were within a call."""
    if within < 2 or verdict.state not in ("running", "after"):
        return verdict
    note = (
        f"{within} threads of the process were within a call: the record does not tell which of "
        "them ended the program, or whether it was another one."
    )
    return replace(verdict, notes=(*verdict.notes, note))


@dataclass(frozen=True)
class _Stop:
    """Where the record of one process ends. `time` is that of its last event."""

    run: RunDump
    step: Step
    state: State
    time: int
    error: str = ""

    @property
    def facts(self) -> Json:
        return self.run.table.get(self.step.launch or 0, {})


def _processes(dump: Dump) -> Iterator[list[list[RunDump]]]:
    """The calls of each thread of each process, in the order of their last events."""
    found: dict[tuple[int, object], dict[object, list[RunDump]]] = {}
    for run in dump.runs:
        threads = found.setdefault((run.rank, run.facts.get("pid")), {})
        threads.setdefault(run.facts.get("thread"), []).append(run)
    for threads in found.values():
        yield [sorted(runs, key=lambda x: (_time(x), x.number)) for runs in threads.values()]


def _time(run: RunDump) -> int:
    return (run.path / EVENTS).stat().st_mtime_ns


def _stop(dump: Dump, runs: Sequence[RunDump]) -> _Stop | None:
    """Where a thread stopped: at its first fault, or else in its last call."""
    for run in runs:
        faults = (row for row in run.having("error") if "launch" in row)
        if (row := next(faults, None)) is not None:
            state: State = "faulted" if row.get("phase") == "after" else "earlier"
            which = (row["launch"], row.get("iteration", 0))
            step = next(x for x in run.steps if (x.launch, x.iteration) == which)
            return _Stop(run, step, state, _time(run), row["error"])
    run = runs[-1]
    if not run.steps or run.steps[-1].launch is None:
        return None
    step = run.steps[-1]
    stop = _Stop(run, step, "running", _time(run))
    if any(row.get("phase") == "after" for row in run.rows(step)):
        return replace(stop, state="over" if _is_last(dump, stop) else "after")
    return stop if "after" in stop.facts else replace(stop, state="begun")


def _is_last(dump: Dump, stop: _Stop) -> bool:
    """Whether no launch comes after it in a call: one that is not probed may."""
    if stop.step.launch != max(stop.run.table, default=None) or stop.facts.get("repeats"):
        return False
    launches, _ = _located(dump.path / stop.run.artifact)
    return not launches or stop.step.launch == max(launches)


def _candidates(stops: Sequence[_Stop]) -> list[_Stop]:
    """Of the threads of a process, the one that was heard of last, and those within a call."""
    last = max(stops, key=lambda stop: stop.time, default=None)
    return [stop for stop in stops if stop is last or stop.state not in ("over", "begun")]


def _waiting(stops: Sequence[_Stop]) -> list[_Stop]:
    """Which of several ranks only wait: they are in a collective, and others are elsewhere."""

    def waits(stop: _Stop) -> bool:
        return stop.state in ("running", "begun") and stop.facts.get("kind") == "collective"

    def is_elsewhere(other: _Stop, stop: _Stop) -> bool:
        if other.run.rank == stop.run.rank:
            return False
        return not waits(other) or other.step.launch != stop.step.launch

    return [
        replace(stop, state="waiting")
        if waits(stop) and any(is_elsewhere(other, stop) for other in stops)
        else stop
        for stop in stops
    ]


def _likely(stops: Sequence[_Stop]) -> list[_Stop]:
    """The likeliest culprit first, without those who cannot be one."""
    over = {stop.run.rank: stop for stop in sorted(stops, key=lambda stop: stop.time)}
    if any(stop.state not in ("over", "waiting") for stop in stops):
        # Who was through with its launches is not the one that died.
        over = {}
    kept = [x for x in stops if x.state != "over" or over.get(x.run.rank) is x]
    order: tuple[State, ...] = (
        "faulted", "running", "begun", "earlier", "after", "over", "waiting"
    )  # fmt: skip
    return sorted(
        kept,
        key=lambda x: (order.index(x.state), -x.time if x.state == "over" else x.time),
    )


class _Examiner:
    """Collects what is known of one launch."""

    def __init__(self, dump: Dump, stop: _Stop, ended: Ended, blocking: bool) -> None:
        self._dump, self._stop, self._ended = dump, stop, ended
        self._blocking = blocking
        self._run, self._step = stop.run, stop.step
        self._rows = stop.run.rows(stop.step)
        self._static: Mapping[int, Launch] = {}
        self._inputs: tuple[str, ...] = ()
        if not any("arg" in row for row in self._rows):
            self._static, self._inputs = _located(dump.path / stop.run.artifact)

    def verdict(self) -> Verdict:
        facts, step, stop = self._stop.facts, self._step, self._stop
        assert step.launch is not None
        arguments = tuple(self._arguments())
        probes = tuple(map(str, self._dump.manifest.get("probes", ())))
        on_gpu = self._on_gpu(arguments)
        pinned = "sync" in probes or stop.state in ("faulted", "waiting")
        # What was read before a launch stays on the device until it is over: after a fault, the
        # record may lack the launch that was running.
        pinned = pinned or (self._blocking and stop.state in ("running", "begun"))
        pid = self._run.facts.get("pid")
        made = Verdict(
            rank=self._run.rank,
            run=self._run.name,
            pid=pid if isinstance(pid, int) else 0,
            artifact=self._run.artifact,
            state=stop.state,
            ended=self._ended,
            launch=step.launch,
            iteration=step.iteration,
            kernel=step.kernel,
            kind=str(facts.get("kind", "")),
            scope=str(facts.get("scope", "")),
            line=int(facts.get("line", 0)),
            arguments=arguments,
            source_nodes=tuple(facts.get("source_nodes", ())),
            origins=tuple(facts.get("origins", ())),
            probes=probes,
            error=stop.error,
            asynchronous=on_gpu and not pinned and not self._ended.timed_out,
            on_gpu=on_gpu,
        )
        return replace(made, notes=tuple(_notes(made)))

    def _on_gpu(self, arguments: Iterable[Argument]) -> bool:
        devices = {str(argument.row.get("device", "cpu")) for argument in arguments}
        named = str(self._dump.manifest.get("device", "cpu"))
        kind = str(self._stop.facts.get("kind", ""))
        # A launch that a GPU runs, whatever the record says of its arguments.
        return named != "cpu" or bool(devices - {"cpu"}) or kind in _ON_GPU

    def _arguments(self) -> Iterator[Argument]:
        """What it was given as it was then; what else it has, as far as that is known."""
        given = dataflow.reads(self._rows)
        sources = self._sources() if given else {}
        for row in given:
            producer = None
            if "dtype" in row:
                producer = sources.get(row["arg"]) or self._producer(row["arg"], self._root(row))
            yield Argument(row["arg"], row.get("role", "in"), row, producer)
        named = {row["arg"] for row in given}
        named |= {name.partition("[")[0] for name in named}
        for role, name, root, is_tensor in self._known():
            if name not in named:
                producer = self._producer(name, root) if role != "out" and is_tensor else None
                yield Argument(name, role, self._after(name), producer)

    def _known(self) -> Iterator[tuple[str, str, str, bool]]:
        """The arguments that the wrapper, or else its table, names: role, name, buffer, tensor?"""
        launch = self._static.get(self._step.launch or 0)
        if launch is not None and launch.kernel == self._step.kernel:
            for argument in launch.args:
                if argument.type != "other" and (argument.type == "tensor" or argument.buffer):
                    is_tensor = argument.type == "tensor"
                    yield argument.role, argument.name, argument.buffer, is_tensor
            return
        facts = self._stop.facts
        memory = facts.get("buffers", {})
        seen = set()
        for role, name, *_ in (*facts.get("before", ()), *facts.get("after", ())):
            if name not in seen:
                seen.add(name)
                root = memory.get(name, dataflow.variable(name))
                yield role, name, root, True

    def _after(self, name: str) -> Json:
        return next((x for x in dataflow.results(self._rows) if x.get("arg") == name), {})

    def _sources(self) -> dict[str, Producer]:
        """The producers that the values of the record show, by the argument's name."""
        nodes = dataflow.trace(self._run)
        found = {}
        for name, sources in nodes[self._step.position].given.items():
            if sources:
                last = max(sources, key=lambda source: source.step)
                step = nodes[last.step].step
                results = dataflow.tensors(dataflow.results(self._run.rows(step)))
                found[name] = self._made(step, results[last.slot])
        return found

    def _producer(self, name: str, root: str) -> Producer | None:
        """Who wrote to that memory last, by the names in the wrapper."""
        for step in reversed(self._run.steps[: self._step.position]):
            rows = self._run.rows(step)
            if step.launch is None:
                row = next((x for x in rows if x.get("arg") in (name, root)), None)
                if row is not None:
                    return self._made(step, row)
            elif root in self._writes(step, rows):
                memory = self._run.table.get(step.launch, {}).get("buffers", {})
                wrote = dataflow.tensors(dataflow.results(rows))
                roots = ((memory.get(x["arg"], dataflow.variable(x["arg"])), x) for x in wrote)
                return self._made(step, next((x for at, x in roots if at == root), None))
        return Producer(None) if root in self._inputs else None

    def _writes(self, step: Step, rows: Sequence[Json]) -> set[str]:
        """The buffers that a launch writes."""
        assert step.launch is not None
        if (launch := self._static.get(step.launch)) is not None:
            return {argument.buffer for argument in launch.args if argument.role != "in"}
        facts = self._run.table.get(step.launch, {})
        memory = facts.get("buffers", {})
        names = {row["arg"] for row in dataflow.results(rows)}
        names |= {name for role, name, *_ in facts.get("after", ()) if role != "in"}
        return {memory.get(name, dataflow.variable(name)) for name in names}

    def _root(self, row: Json) -> str:
        name = dataflow.variable(row["arg"])
        return str(self._stop.facts.get("buffers", {}).get(name, name))

    def _made(self, step: Step, row: Json | None) -> Producer:
        if step.launch is None:
            return Producer(None, row=row)
        facts = self._run.table.get(step.launch, {})
        kind, line = str(facts.get("kind", "")), int(facts.get("line", 0))
        return Producer(step.launch, step.iteration, step.kernel, kind, line, row)


def _located(copy: Path) -> tuple[Mapping[int, Launch], tuple[str, ...]]:
    """The launches of the copy of a wrapper, and the names of its inputs; none if it has none."""
    from rewriter.artifact import open_artifact

    if not copy.is_file():
        return {}, ()
    try:
        wrapper = open_artifact(copy).only
        inputs = {name for entry in wrapper.located.entries for name in entry.inputs}
        return {launch.index: launch for launch in wrapper.launches}, tuple(inputs)
    except RewriterError:
        # What the record says has to do.
        return {}, ()


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict.asynchronous:
        yield (
            "Launches on a GPU are asynchronous: a fault of one shows at a later one. "
            "`--probe names,sync` waits for each, and names the one at fault."
        )
    elif verdict.state == "earlier":
        yield "No probed launch was found faulty: what ran before it and is not probed may be."
    elif verdict.state == "begun":
        yield (
            f"With these probes nothing is recorded after a launch: what stands between "
            f"#{verdict.launch} and the next one may have been reached."
        )
    if verdict.state == "faulted" or (verdict.on_gpu and verdict.state in ("running", "begun")):
        yield (
            "On NVIDIA, `compute-sanitizer --target-processes all` in front of the command names "
            "the address and the threads of a bad access."
        )
    yield from _values(verdict)
    if verdict.ended.note:
        yield verdict.ended.note


def _values(verdict: Verdict) -> Iterator[str]:
    """What catches the eye in what the launch was given."""
    sizes = [size for x in verdict.arguments for size in x.row.get("shape", ())]
    indexes = any(
        word in name.lower()
        for name in (verdict.kernel, *verdict.origins, *verdict.source_nodes)
        for word in _INDEXING
    )
    for argument in verdict.arguments:
        row = argument.row
        if argument.role == "out" or not argument.is_measured:
            continue
        if row.get("nan") or row.get("inf"):
            yield (
                f"{argument.name} holds {row.get('nan', 0)} NaN and {row.get('inf', 0)} infinities "
                f"of {row['numel']} elements when the launch reads it."
            )
        low, high = row.get("min"), row.get("max")
        if not indexes or not row.get("dtype", "").startswith(("int", "uint")):
            continue
        if isinstance(low, int) and isinstance(high, int) and sizes:
            most = max(sizes)
            if high >= most or low < -most:
                yield (
                    f"{argument.name} holds integers from {low} to {high}, and no dimension of "
                    f"what was recorded is longer than {most}: out of bounds, if they are indices."
                )
