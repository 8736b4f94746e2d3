"""Where the values that a launch read came from, as far as a dump tells.

Memory holds what was written to it last, under whatever name: the table of launches says which
names share it. Where that is not the value that was read (a parameter of a subgraph), the value
itself is looked up: by its digest, or by its statistics.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from rewriter.core.align import Keys
from rewriter.core.types import Role
from rewriter.dump.documents import LaunchRow
from rewriter.dump.names import SourceLine
from rewriter.dump.reading import RunDump, RunStep, label
from rewriter.dump.rows import EventRow, TensorRow, ValueRow, as_read, renamed
from rewriter.locate.names import canonical, launch_keys

OUTPUTS = "outputs"
_KEPT = 1024  # steps whose results are kept in memory

_MEMBER = re.compile(r"\[\d+\]|\.\d+$")  # of a list of tensors; a further view of the same tensor


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch as it ran in one of the dumps. `step` is its position in the run, from 0.

    `launch` is its index in the wrapper, `None` for what is no launch: the inputs of the call,
    which are its first step, and its outputs, the last one. `kernel` is then empty, or `OUTPUTS`.
    `lines` are those of the model that it computes, `computes` nodes of Inductor's graph.
    """

    run: str
    step: int
    launch: int | None
    iteration: int
    kernel: str
    kind: str
    scope: str
    line: int
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    lines: tuple[SourceLine, ...] = ()
    computes: tuple[str, ...] = ()

    @property
    def is_inputs(self) -> bool:
        return self.launch is None and self.kernel != OUTPUTS

    def __str__(self) -> str:
        if self.launch is None:
            return self.kernel or "inputs"
        return f"{label(self.launch, self.iteration)} {self.kernel}"


def recorded(run: RunDump, step: RunStep) -> RecordedLaunch:
    """A step of a run, with what the table of launches says of it."""
    facts = run.launch_row(step.launch)
    index = -1 if step.launch is None else step.launch
    return RecordedLaunch(
        run.name,
        step.position,
        step.launch,
        step.iteration,
        step.kernel,
        facts.kind,
        facts.scope,
        facts.line,
        facts.source_nodes,
        facts.origins,
        run.names.lines.get(index, ()),
        run.names.computes.get(index, ()),
    )


@dataclass(frozen=True)
class ValueOrigin:
    """A value by its origin: the `slot`-th result of a step of the same run."""

    step: int
    slot: int


@dataclass(frozen=True)
class NoResult:
    """An output of a call that no recorded launch wrote: what it is, in words, and whether that
    says which value it is."""

    text: str
    is_known: bool


@dataclass(frozen=True)
class FlowNode:
    """A step with what it read and wrote.

    `given` says of each tensor that it was given, by name, where that came from: several where
    launches wrote parts of it, none where nobody knows. `unread` are the names and roles of those
    that were not read at this launch: each value is recorded once, and their origin has it (see
    `Flow.reads`). `slots` number its results by their names.
    `views` are the expressions of those of them that are shown otherwise than under their names.
    `keys` are what it is aligned by. `returned` are the outputs of a call, which are no event; of
    these `given` has who wrote last to their memory, and `earlier` who else did: they wrote other
    parts of it, or what was written over since.
    """

    step: RunStep
    place: RecordedLaunch
    given: dict[str, tuple[ValueOrigin, ...]]
    slots: dict[str, int]
    keys: Keys
    unread: tuple[tuple[str, Role], ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    returned: tuple[TensorRow | NoResult, ...] = ()
    earlier: Mapping[str, tuple[ValueOrigin, ...]] = field(default_factory=dict)

    @property
    def origins(self) -> Iterator[ValueOrigin]:
        """Everything that it was given, by where it came from."""
        return chain.from_iterable(self.given.values())

    def writer(self, name: str) -> ValueOrigin | None:
        """The last of those who wrote what it was given under a name; `None` if nobody knows."""
        return max(self.given.get(name, ()), key=lambda source: source.step, default=None)


def reads(rows: Sequence[EventRow]) -> list[ValueRow]:
    """The rows of what a launch was given: before it, or after it where only that was recorded.

    What it updates is only known before.
    """
    before = [row for row in values(rows) if row.phase == "before"]
    names = {row.arg for row in before}
    return before + [row for row in _after(rows) if row.role == "in" and row.arg not in names]


def given(rows: Sequence[EventRow]) -> list[TensorRow]:
    """The rows of the tensors that a launch was given, also of those whose value then is not known:
    what it updates, where nothing was recorded before it."""
    return _given(rows, reads(rows))


def _given(rows: Sequence[EventRow], read: Sequence[ValueRow]) -> list[TensorRow]:
    known = tensors(read)
    names = {row.arg for row in known}
    return known + [
        row for row in tensors(_after(rows)) if row.role == "inout" and row.arg not in names
    ]


def results(rows: Sequence[EventRow]) -> list[ValueRow]:
    """The rows of what a launch wrote; the inputs of a call are the results of its first step."""
    if rows and rows[0].phase == "inputs":
        return values(rows)
    return [row for row in _after(rows) if row.role != "in"]


def _unread(facts: LaunchRow, read: Sequence[ValueRow]) -> tuple[tuple[str, Role], ...]:
    """The tensors that a launch is given, by its row of the table, and of which it has no rows."""
    names = {row.arg for row in read}
    return tuple(
        (name, "inout" if role == "inout" else "in")
        for role, name, *_ in facts.reads
        if name not in names
    )


def computes(rows: Sequence[EventRow]) -> bool:
    """Whether a launch was given numbers that may be infinite, or updates them.

    What a launch writes that was given none are constants: infinities in them are no fault, as
    those of a mask.
    """
    return any(row.is_floating for row in given(rows))


def _after(rows: Sequence[EventRow]) -> list[ValueRow]:
    return [row for row in values(rows) if row.phase == "after"]


def values(rows: Sequence[EventRow]) -> list[ValueRow]:
    return [row for row in rows if isinstance(row, ValueRow)]


def tensors(rows: Sequence[EventRow]) -> list[TensorRow]:
    return [row for row in rows if isinstance(row, TensorRow)]


def empty_variables(run: RunDump) -> set[str]:
    """The variables of a wrapper that held tensors without elements in a call."""
    rows = (row for step in run.steps for row in tensors(run.rows(step)))
    return {variable(row.arg) for row in rows if not row.size}


def variable(name: str) -> str:
    """The variable behind a name of the dump: `buf5.2` and `buf7[0]` are of `buf5` and `buf7`."""
    return _MEMBER.sub("", name)


def buffer_of(facts: LaunchRow, name: str) -> str:
    """The buffer that owns the memory of a value of a launch, by the names in its row."""
    return facts.buffers.get(name) or facts.buffers.get(variable(name), variable(name))


def fingerprint(row: TensorRow) -> Hashable:
    """What tells a value from others without reading it; `None` where the dump does not say."""
    if row.digest:
        return (row.dtype, row.digest)
    if row.numel and row.std:  # of a constant there are too many
        statistics = (row.min, row.max, row.mean, row.std)
        return (row.dtype, row.numel, *statistics, row.nan, row.inf)
    return None


class Flow:
    """The steps of a run in order, and the rows of each with what it was given from elsewhere.

    Where a value was recorded when it was made and not once more where it was read, the row of its
    maker stands for it. Rows are read from disk when they are asked for.
    """

    def __init__(self, run: RunDump) -> None:
        self._run = run
        self.nodes = trace(run)
        self._made = lru_cache(maxsize=_KEPT)(self._results)

    def rows(self, node: FlowNode) -> list[EventRow]:
        """The rows of a step, as if what it was given had been recorded before it."""
        rows = self._run.rows(node.step)
        given = (
            self._as_read(node, name, role, origins)
            for name, role in node.unread
            if (origins := node.given.get(name))
        )
        return [*chain.from_iterable(given), *rows]

    def origin(self, source: ValueOrigin) -> TensorRow | None:
        """The row of a value as its maker left it."""
        made = self._made(source.step)
        return made[source.slot] if source.slot < len(made) else None

    def _results(self, step: int) -> list[TensorRow]:
        return tensors(results(self._run.rows(self.nodes[step].step)))

    def _as_read(
        self, node: FlowNode, name: str, role: Role, origins: tuple[ValueOrigin, ...]
    ) -> Iterator[TensorRow]:
        for source in origins:
            row = self.origin(source)
            if row is not None:
                # Of memory that several launches wrote parts of, each part by itself.
                part = name if len(origins) == 1 else f"{name}[{row.arg}]"
                yield as_read(
                    row, node.step.launch, node.step.iteration, node.step.kernel, part, role
                )


def trace(run: RunDump) -> list[FlowNode]:
    """The steps of a run in order, with the sources of what they read.

    The last one is no launch but stands for the outputs of the call, where it is known what they
    are: it reads what the call returns.
    """
    tracer = _Tracer()
    nodes = [tracer.node(run, step, run.rows(step)) for step in run.steps]
    last = tracer.outputs(run, nodes)
    return [*nodes, last] if last else nodes


def outputs(nodes: Sequence[FlowNode]) -> FlowNode | None:
    """The node of these, which `trace` returned, that stands for the outputs of the call."""
    last = nodes[-1] if nodes else None
    return last if last is not None and last.place.kernel == OUTPUTS else None


def output_variable(label: str) -> str:
    """The variable that a call returns: `buf3` of the label `0: buf3`."""
    return label.partition(": ")[2]


def _no_keys(name: str) -> Keys:
    """As many as a launch has, for what is none."""
    return tuple(name for _ in (..., ..., *launch_keys("", "", (), (), ())))


class _Tracer:
    """Follows one run: who wrote what under which name, and which value."""

    def __init__(self) -> None:
        # By scope and name of a buffer: who wrote to it last, and under which names, since parts of
        # it may have names and writers of their own.
        self._memory: dict[tuple[str, str], dict[str, ValueOrigin]] = {}
        self._by_name: dict[
            str, dict[str, ValueOrigin]
        ] = {}  # the same, of whatever scope was last
        self._inputs: dict[str, ValueOrigin] = {}
        self._by_value: dict[Hashable, ValueOrigin] = {}
        self._values: dict[ValueOrigin, Hashable] = {}
        self._sizes: dict[ValueOrigin, tuple[str, int]] = {}
        # How sources are called in the keys: the same in two runs that are alike.
        self._near: dict[ValueOrigin, Hashable] = {}
        self._deep: dict[ValueOrigin, Hashable] = {}

    def node(self, run: RunDump, step: RunStep, rows: list[EventRow]) -> FlowNode:
        facts = run.launch_row(step.launch)
        place = recorded(run, step)
        memory = facts.buffers
        read = reads(rows)
        got, written = _given(rows, read), tensors(results(rows))
        # In what runs again and again, a name of the last time says nothing.
        again = facts.repeats
        sources = {row.arg: self._sources(place.scope, memory, row, again) for row in got}
        unread = _unread(facts, read)
        after = {row.arg: row for row in written}
        for name, role in unread:
            if name not in sources or role == "inout":
                writers = tuple(self._writers(place.scope, memory, name).values())
                sources[name] = self._whole(writers, after.get(name))
        keys = self._keys(place, got, written, tuple(sources.values()))
        slots = self._write(place, memory, written, keys)
        carried = {name for name, _ in unread}
        views = {
            name: more[0].replace(name, "", 1)
            for _, name, *more in facts.reads
            if more and name in carried
        }
        return FlowNode(step, place, sources, slots, keys, unread, views)

    def outputs(self, run: RunDump, nodes: Sequence[FlowNode]) -> FlowNode | None:
        """What the call returned of what its launches wrote, and wrote last."""
        scopes = {node.place.scope for node in nodes}
        returned = next((x for x in run.facts.outputs.items() if x[0] in scopes), None)
        if returned is None:
            return None
        scope, names = returned
        got: dict[str, tuple[ValueOrigin, ...]] = {}
        earlier: dict[str, tuple[ValueOrigin, ...]] = {}
        rows: list[TensorRow | NoResult] = []
        for position, name in enumerate(names):
            writers = self._memory.get((scope, name)) or self._by_name.get(name)
            label = f"{position}: {name}"
            if writers:
                source = max(writers.values(), key=lambda source: source.step)
                row = tensors(results(run.rows(run.steps[source.step])))[source.slot]
                got[label] = (source,)
                earlier[label] = tuple(x for x in writers.values() if x != source)
                rows.append(renamed(row, label))
            elif name in self._inputs:
                rows.append(NoResult(f"the input {name}", True))
            elif name:
                rows.append(NoResult(f"{name}, which no recorded launch wrote", False))
            else:  # the text of the wrapper has no variable there
                rows.append(NoResult("no tensor", True))
        step = RunStep(len(nodes), None, 0, OUTPUTS, 0, 0)
        place = RecordedLaunch(run.name, len(nodes), None, 0, OUTPUTS, "", scope, 0, (), ())
        keys = _no_keys(OUTPUTS)
        return FlowNode(step, place, got, {}, keys, returned=tuple(rows), earlier=earlier)

    def _sources(
        self, scope: str, memory: dict[str, str], row: TensorRow, again: bool
    ) -> tuple[ValueOrigin, ...]:
        name, value = variable(row.arg), fingerprint(row)
        root = memory.get(name, name)
        sure = (scope, root) in self._memory and not again
        writers = self._writers(scope, memory, row.arg)
        known = [self._values[source] for source in writers.values()]
        is_read = row.phase == "before" or row.role == "in"
        if not sure and is_read and known != [value] and value in self._by_value:
            # A parameter of a subgraph, whose name says nothing, or means something else outside.
            # The value of a part of a buffer is no writer's, and is not found here.
            return (self._by_value[value],)
        return tuple(writers.values())

    def _writers(self, scope: str, memory: dict[str, str], arg: str) -> dict[str, ValueOrigin]:
        """Who wrote last what an argument shows, by the names that they wrote it under."""
        name = variable(arg)
        writers = self._memory.get((scope, memory.get(name, name)), {})
        if name in writers:
            return {name: writers[name]}
        if not writers and name in self._inputs:
            return {name: self._inputs[name]}
        return writers

    def _whole(
        self, writers: tuple[ValueOrigin, ...], updated: TensorRow | None
    ) -> tuple[ValueOrigin, ...]:
        """The last one alone, if what it wrote is as large as what is updated in place: memory that
        is used again holds nothing of those before it."""
        if updated is None or len(writers) < 2:
            return writers
        last = max(writers, key=lambda source: source.step)
        return (last,) if self._sizes[last] == (updated.dtype, updated.size) else writers

    def _keys(
        self,
        place: RecordedLaunch,
        got: list[TensorRow],
        written: list[TensorRow],
        sources: tuple[tuple[ValueOrigin, ...], ...],
    ) -> Keys:
        shapes = (
            tuple(row.shape for row in got if row.role == "in"),
            tuple(row.shape for row in written),
        )
        keys = launch_keys(place.kernel, place.kind, shapes, place.source_nodes, place.origins)
        near = tuple(tuple(map(self._near.get, each)) for each in sources)
        deep = tuple(tuple(map(self._deep.get, each)) for each in sources)
        if place.launch is None:
            return _no_keys("inputs")
        # A hash stands for all that led here, which would be a tree as large as the run.
        return (hash((keys[0], deep)), hash((keys[0], near)), *keys)

    def _write(
        self, place: RecordedLaunch, memory: dict[str, str], written: list[TensorRow], keys: Keys
    ) -> dict[str, int]:
        slots: dict[str, int] = {}
        for slot, row in enumerate(written):
            source = ValueOrigin(place.step, slot)
            name, value = variable(row.arg), fingerprint(row)
            slots.setdefault(row.arg, slot)
            if place.launch is None:
                self._inputs[name] = source
                self._near[source] = self._deep[source] = ("input", name)
            else:
                root = memory.get(name, name)
                writers = self._memory.setdefault((place.scope, root), {})
                if name == root or row.role == "inout":
                    writers.clear()
                writers[name] = source
                self._by_name[root] = writers
                self._near[source] = (canonical(place.kernel), slot)
                self._deep[source] = (keys[0], slot)
            self._values[source] = value
            self._sizes[source] = (row.dtype, row.size)
            if value is not None:
                self._by_value[value] = source
        return slots
