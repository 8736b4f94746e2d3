"""Tells from the dump of a program that died which launch was running, with what, and from whom.

Nothing is executed: the record is read, and where it holds names alone, the copy of the wrapper
that lies beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.comparison import dataflow
from rewriter.dump import EVENTS, Dump, RunDump, Step, is_recorded, open_dump
from rewriter.errors import RewriterError
from rewriter.types import Json, Launch
from rewriter.verdict import Argument, Ended, Producer, State, Verdict, describe

__all__ = ["Ended", "Verdict", "describe", "examine"]

_INDEXING = ("index", "embedding", "gather", "scatter", "take", "select")


def examine(dump: Path, ended: Ended, *, blocking: bool = False) -> tuple[Verdict, ...]:
    """The verdicts of a program that ended like this: one for each process whose record stops at a
    launch, the likeliest culprit first. Empty where the dump names no launch.

    `blocking` says that each launch was waited for (`CUDA_LAUNCH_BLOCKING=1`).

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    if not is_recorded(dump):
        return ()
    opened = open_dump(dump)
    stops = [stop for runs in _processes(opened) if (stop := _stop(runs)) is not None]
    if any(stop.state != "after" for stop in stops):
        # A process that was through with its launches is not the one that died.
        stops = [stop for stop in stops if stop.state != "after" or not stop.is_last]
    if len(stops) > 1:
        stops = _waiting(stops)
    order: tuple[State, ...] = ("faulted", "running", "earlier", "after", "waiting")
    stops.sort(key=lambda stop: (order.index(stop.state), stop.time))
    return tuple(_Examiner(opened, stop, ended, blocking).verdict() for stop in stops)


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

    @property
    def is_last(self) -> bool:
        """Whether no launch comes after it in the wrapper."""
        return self.step.launch == max(self.run.table, default=None)


def _processes(dump: Dump) -> Iterable[list[RunDump]]:
    """The calls of each process, in the order of their last events."""
    found: dict[tuple[int, object], list[RunDump]] = {}
    for run in dump.runs:
        found.setdefault((run.rank, run.facts.get("pid")), []).append(run)
    return [sorted(runs, key=lambda run: (_time(run), run.number)) for runs in found.values()]


def _time(run: RunDump) -> int:
    return (run.path / EVENTS).stat().st_mtime_ns


def _stop(runs: Sequence[RunDump]) -> _Stop | None:
    """Where a process stopped: at its first fault, or else in its last call."""
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
    ran = any(row.get("phase") == "after" for row in run.rows(step))
    return _Stop(run, step, "after" if ran else "running", _time(run))


def _waiting(stops: Sequence[_Stop]) -> list[_Stop]:
    """Which of several processes only wait: they are in a collective, and others are elsewhere."""

    def waits(stop: _Stop) -> bool:
        return stop.state == "running" and stop.facts.get("kind") == "collective"

    if all(map(waits, stops)) and len({stop.step.launch for stop in stops}) == 1:
        return list(stops)
    return [replace(stop, state="waiting") if waits(stop) else stop for stop in stops]


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
        pinned = pinned or (self._blocking and stop.state == "running")
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
        return replace(made, notes=tuple(_notes(made, "after" in facts)))

    def _on_gpu(self, arguments: Iterable[Argument]) -> bool:
        devices = {str(argument.row.get("device", "cpu")) for argument in arguments}
        named = str(self._dump.manifest.get("device", "cpu"))
        kind = str(self._stop.facts.get("kind", ""))
        # A launch that a GPU runs, whatever the record says of its arguments.
        return named != "cpu" or devices > {"cpu"} or kind.startswith(("triton", "cuda"))

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


def _notes(verdict: Verdict, records_after: bool) -> Iterator[str]:
    if verdict.asynchronous:
        yield (
            "Launches on a GPU are asynchronous: a fault of one shows at a later one. "
            "`--probe names,sync` waits for each, and names the one at fault."
        )
    elif verdict.state == "earlier":
        yield "No probed launch was found faulty: what ran before it and is not probed may be."
    elif verdict.state == "running" and not records_after:
        yield (
            f"With these probes nothing is recorded after a launch: what stands between "
            f"#{verdict.launch} and the next one may have been reached."
        )
    if verdict.state == "faulted" or (verdict.on_gpu and verdict.state == "running"):
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
