"""Finds where the values that a launch read came from, as far as a dump tells.

Memory holds what was written to it last, under any of its names; the table of launches says which
names share memory. If that is not the value that was read, as for a parameter of a subgraph, the
value itself is searched for, by its digest or by its statistics.

A launch that was not recorded may have written what a later one reads. The wrapper says so: its
launches are handed over as `launches`, without which nothing is known of such a launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from msgspec import UNSET, structs

from rewriter.core.align import Keys
from rewriter.core.types import Role
from rewriter.dump import changed, launched, saved
from rewriter.dump.launched import OUTPUTS, RecordedLaunch, variable
from rewriter.dump.reading import RunDump, RunStep
from rewriter.dump.rows import EventRow, TensorRow, renamed
from rewriter.locate.names import canonical, launch_keys
from rewriter.locate.types import Argument, Launch

_KEPT = 1024  # steps whose results are kept in memory


@dataclass(frozen=True, order=True)
class ValueOrigin:
    """A value by its origin: result number `slot` of a step of the same run."""

    step: int
    slot: int


@dataclass(frozen=True)
class NoResult:
    """An output of a call that no recorded launch wrote: what it is, in words, and whether these
    words identify the value. Of a buffer, whose value they do not, `name` is its variable."""

    text: str
    is_known: bool
    name: str = ""


@dataclass(frozen=True)
class FlowNode:
    """A step with its inputs and results.

    `given` maps the name of each input tensor to its origins: several if different launches wrote
    parts of it, none if they are unknown. `unread` are the names and roles of inputs without a row
    at this launch: each value is recorded once, and its origin has the row (see `Flow.reads`).
    `views` are the expressions of those that the launch reads as a view. `slots` numbers the
    results by name; `updated` are results whose rows say that they are only read. `keys` are used
    to align launches. For the outputs of a call (`returned`), which are no event, `given` has the
    last writers of their memory, and `earlier` the other ones: these wrote other parts of it, or
    were overwritten.
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
    updated: frozenset[str] = frozenset()

    @property
    def origins(self) -> Iterator[ValueOrigin]:
        """Yield the origins of all inputs."""
        return chain.from_iterable(self.given.values())

    def result(self, name: str) -> ValueOrigin | None:
        """A result as the origin of what reads it, by its name; `None` if it has none of that."""
        return ValueOrigin(self.step.position, self.slots[name]) if name in self.slots else None

    def writer(self, name: str) -> ValueOrigin | None:
        """The last writer of an input, by its name; `None` if unknown."""
        return max(self.given.get(name, ()), key=lambda source: source.step, default=None)


def fingerprint(row: TensorRow) -> Hashable:
    """What identifies a value without reading it; `None` if the dump does not say."""
    if row.digest:
        return (row.dtype, row.digest)
    if row.numel and row.std:  # too many constants have equal statistics
        statistics = (row.min, row.max, row.mean, row.std)
        return (row.dtype, row.numel, *statistics, row.nan, row.inf)
    return None


class Flow:
    """The steps of a run in order, and the rows of each with its inputs from other steps.

    If a value was recorded when it was made and not again when it was read, the row of its producer
    is used. Rows are read from disk when they are needed. `launches` are those of the wrapper.

    The last node is not a launch: it stands for the outputs of the call, if these are known, and
    reads what the call returns. `unseen` are the values that launches read which were not recorded,
    `unrecorded` the buffers of which not everything that launches may have written was recorded.
    """

    def __init__(self, run: RunDump, launches: Sequence[Launch] = ()) -> None:
        self._run = run
        self._made = lru_cache(maxsize=_KEPT)(self._results)
        tracer = _Tracer(run, launches, self.origin)
        self.nodes: list[FlowNode] = []
        for step in run.steps:
            self.nodes.append(tracer.node(step))
        if (last := tracer.outputs(self.nodes)) is not None:
            self.nodes.append(last)
        self.unseen: Collection[ValueOrigin] = tracer.unseen
        self.unrecorded: Collection[str] = tracer.unrecorded

    def rows(self, node: FlowNode) -> list[EventRow]:
        """The rows of a step, as if its inputs had been recorded before it."""
        rows = self._recorded(node)
        carried = (
            self._as_read(node, name, role, origins)
            for name, role in node.unread
            if (origins := node.given.get(name))
        )
        return [*chain.from_iterable(carried), *rows]

    def origin(self, source: ValueOrigin) -> TensorRow | None:
        """The row of a value as its producer left it."""
        made = self._made(source.step)
        return made[source.slot] if source.slot < len(made) else None

    def _results(self, step: int) -> list[TensorRow]:
        return launched.tensors(launched.results(self._recorded(self.nodes[step])))

    def _recorded(self, node: FlowNode) -> list[EventRow]:
        rows = self._run.rows(node.step)
        return changed.updating(rows, node.updated) if node.updated else rows

    def _as_read(
        self, node: FlowNode, name: str, role: Role, origins: tuple[ValueOrigin, ...]
    ) -> Iterator[TensorRow]:
        for source in origins:
            row = self.origin(source)
            if row is not None:
                # If several launches wrote parts of the memory, each part has its own row.
                part = name if len(origins) == 1 else f"{name}[{row.arg}]"
                launch, iteration = node.step.which
                yield structs.replace(
                    row,
                    launch=UNSET if launch is None else launch,
                    phase="before",
                    kernel=node.step.kernel,
                    iteration=iteration or UNSET,
                    arg=part,
                    role=role,
                    unexpected="",
                )


def outputs(nodes: Sequence[FlowNode]) -> FlowNode | None:
    """The node for the outputs of the call, among those of a `Flow`."""
    last = nodes[-1] if nodes else None
    return last if last is not None and last.place.kernel == OUTPUTS else None


def output_variable(label: str) -> str:
    """The variable of an output: `buf3` for the label `0: buf3`."""
    return label.partition(": ")[2]


def output_position(label: str) -> int:
    """Its position among the outputs: 0 for the label `0: buf3`."""
    return int(label.partition(": ")[0])


def _no_keys(name: str) -> Keys:
    """Keys for a step that is not a launch, as many as a launch has."""
    return tuple(name for _ in (..., ..., *launch_keys("", "", (), (), ())))


class _Tracer:
    """Follows one run: which step wrote which name, and which value. `origin` has the rows of the
    results of steps that it has passed."""

    def __init__(
        self,
        run: RunDump,
        launches: Sequence[Launch],
        origin: Callable[[ValueOrigin], TensorRow | None],
    ) -> None:
        self._run, self._origin = run, origin
        self._launches = {x.index: x for x in launches}
        self._missed: dict[str, list[Launch]] = defaultdict(list)  # not recorded, by scope
        ran = {step.launch for step in run.steps}
        for launch in launches:
            is_skipped = launch.conditional and launch.index in run.table
            if launch.index not in ran and not is_skipped:
                self._missed[launch.scope].append(launch)
        self._at: dict[str, int] = {}  # by scope, the launch that was recorded last
        # The buffers that a launch wrote last whose result is not known, by scope and name.
        self._lost: set[tuple[str, str]] = set()
        self.unseen: set[ValueOrigin] = set()
        self.unrecorded: set[str] = set()
        # By scope and name of a buffer: its last writers, and the names that these used, since
        # parts of a buffer may have their own names and writers.
        self._memory: dict[tuple[str, str], dict[str, ValueOrigin]] = {}
        # The same for the most recent scope, whichever that was.
        self._by_name: dict[str, dict[str, ValueOrigin]] = {}
        self._inputs: dict[str, ValueOrigin] = {}
        self._by_value: dict[Hashable, ValueOrigin] = {}
        self._values: dict[ValueOrigin, Hashable] = {}
        self._sizes: dict[ValueOrigin, tuple[str, int]] = {}
        # The size of the last value that filled a buffer, by scope and name.
        self._filled: dict[tuple[str, str], tuple[str, int]] = {}
        # The names of sources in the keys, which are the same in two equal runs.
        self._near: dict[ValueOrigin, Hashable] = {}
        self._deep: dict[ValueOrigin, Hashable] = {}

    def node(self, step: RunStep) -> FlowNode:
        facts = self._run.launch_row(step.launch)
        place = launched.recorded(self._run, step)
        memory, rows = facts.buffers, self._run.rows(step)
        if step.launch is not None:
            self._pass_over(place.scope, step.launch)
        # In a launch that repeats, a name from the previous iteration says nothing.
        again = facts.repeats
        updated = frozenset[str]()
        if changed.without_schema(facts) and not again:
            updated = frozenset(self._updated(place.scope, memory, rows))
            rows = changed.updating(rows, updated)
        got, written = launched.given(rows), launched.tensors(launched.results(rows))
        after = {row.arg: row for row in written}
        sources = {
            row.arg: self._whole(self._sources(place.scope, memory, row, again), after.get(row.arg))
            for row in got
        }
        unread = launched.unread(facts, launched.reads(rows))
        for name, role in unread:
            if name not in sources or role == "inout":
                writers = tuple(self._writers(place.scope, memory, name).values())
                sources[name] = self._whole(writers, after.get(name))
        keys = self._keys(place, got, written, tuple(sources.values()))
        slots = self._write(place, memory, written, keys)
        if launch := self._launches.get(-1 if step.launch is None else step.launch):
            self._forget(place.scope, launched.unknown_results(launch, facts, rows))
        carried = {name for name, _ in unread}
        views = {
            name: more[0].replace(name, "", 1)
            for _, name, *more in facts.reads
            if more and name in carried
        }
        return FlowNode(step, place, sources, slots, keys, unread, views, updated=updated)

    def _updated(
        self, scope: str, memory: dict[str, str], rows: Sequence[EventRow]
    ) -> Iterator[str]:
        """What an operator without a schema is given, and leaves with another value than the one
        that was written there last."""
        for row in launched.tensors(launched.reads(rows)):
            writers = [*self._writers(scope, memory, row.arg).values()]
            made = self._origin(writers[0]) if len(writers) == 1 and row.phase == "after" else None
            if made is None or (made.dtype, made.shape) != (row.dtype, row.shape):
                continue
            if made.stride == row.stride and saved.same_bits(self._run.path, made, row) is False:
                yield row.arg

    def _pass_over(self, scope: str, launch: int | None) -> None:
        """Forget what the launches wrote that were not recorded between the last one of a scope and
        the next one, `None` for the end of the call."""
        last = self._at.get(scope, -1)
        for missed in self._missed.get(scope, ()):
            is_after, is_before = missed.index > last, launch is None or missed.index < launch
            is_again = launch is not None and launch <= last  # in a loop
            if is_after or is_before if is_again else is_after and is_before:
                for argument in missed.tensors:
                    if argument.role != "out":
                        self.unseen |= {*self._writers(scope, {}, argument.buffer).values()}
                self._forget(scope, missed.may_write)
        if launch is not None:
            self._at[scope] = launch

    def _forget(self, scope: str, written: Iterable[Argument]) -> None:
        """Forget what was in the buffers of these arguments."""
        for argument in written:
            self._lost.add((scope, argument.buffer))
            self.unrecorded.add(argument.buffer)
            self._memory.setdefault((scope, argument.buffer), {}).clear()

    def outputs(self, nodes: Sequence[FlowNode]) -> FlowNode | None:
        """The outputs of the call among the results of its launches, with their last writers."""
        scopes = {node.place.scope for node in nodes}
        for scope in {*self._missed}:
            self._pass_over(scope, None)
        returned = next((x for x in self._run.facts.outputs.items() if x[0] in scopes), None)
        if returned is None:
            return None
        scope, names = returned
        lost = {name for _, name in self._lost}
        got: dict[str, tuple[ValueOrigin, ...]] = {}
        earlier: dict[str, tuple[ValueOrigin, ...]] = {}
        rows: list[TensorRow | NoResult] = []
        for position, name in enumerate(names):
            writers = self._memory.get((scope, name)) or self._by_name.get(name)
            label = f"{position}: {name}"
            if name and name in lost:
                rows.append(NoResult(f"{name}, whose last writer was not recorded", False, name))
            elif writers:
                source = max(writers.values(), key=lambda source: source.step)
                row = self._origin(source)
                assert row is not None
                got[label] = (source,)
                earlier[label] = tuple(x for x in writers.values() if x != source)
                rows.append(renamed(row, label))
            elif name in self._inputs:
                rows.append(NoResult(f"the input {name}", True))
            elif name:
                rows.append(NoResult(f"{name}, which no recorded launch wrote", False, name))
            else:  # the wrapper does not return a variable there
                rows.append(NoResult("no tensor", True))
        step = RunStep(len(nodes), None, 0, OUTPUTS, 0, 0)
        place = RecordedLaunch(self._run.name, len(nodes), None, 0, OUTPUTS, "", scope, 0, (), ())
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
            # A parameter of a subgraph, whose name means nothing outside, or something else. A part
            # of a buffer has a value that no launch wrote, and is not found here.
            return (self._by_value[value],)
        return tuple(writers.values())

    def _writers(self, scope: str, memory: dict[str, str], arg: str) -> dict[str, ValueOrigin]:
        """The last writers of what an argument shows, by the names that they wrote."""
        name = variable(arg)
        root = memory.get(name, name)
        writers = self._memory.get((scope, root), {})
        if name in writers:
            return {name: writers[name]}
        if (scope, root) in self._lost:
            return {}
        if not writers and root in self._inputs:
            return {name: self._inputs[root]}
        return writers

    def _whole(
        self, writers: tuple[ValueOrigin, ...], updated: TensorRow | None
    ) -> tuple[ValueOrigin, ...]:
        """Only the last writer, if its result is as large as what is updated in place: reused
        memory has nothing left from earlier writers."""
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
        # A hash of everything that led here; the tree itself would be as large as the run.
        return (hash((keys[0], deep)), hash((keys[0], near)), *keys)

    def _fills(self, scope: str, root: str, row: TensorRow) -> bool:
        """Whether a launch writes all of a buffer: what takes over its memory is as large as what
        was there, and what is updated under a new name is no smaller; a part is."""
        name, known = variable(row.arg), self._memory[scope, root]
        if name == root or self._filled.get((scope, root)) == (row.dtype, row.size):
            return True
        if (scope, root) in self._lost:
            return False
        largest = max((self._sizes[source][1] for source in known.values()), default=0)
        return row.role == "inout" and name not in known and row.size >= largest

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
                if self._fills(place.scope, root, row):
                    self._filled[place.scope, root] = (row.dtype, row.size)
                    writers.clear()
                    self._lost.discard((place.scope, root))
                writers[name] = source
                self._by_name[root] = writers
                self._near[source] = (canonical(place.kernel), slot)
                self._deep[source] = (keys[0], slot)
            self._values[source] = value
            self._sizes[source] = (row.dtype, row.size)
            if value is not None:
                self._by_value[value] = source
        return slots
