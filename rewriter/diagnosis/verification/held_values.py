"""What the launches of a call have left in its buffers, as nodes of the graph, and the values of
nodes that a launch received by that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import Bounded, exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch
from rewriter.model_names.graph import FxGraph, FxNode


@dataclass(frozen=True)
class Held:
    """A value that a launch wrote, and the nodes that it may be; empty if it matches none.

    `made` is the launch. If no node matches, `sources` are the values that the launch could compute
    from, and `group` the launches that received them. `view` is the view of the node that it is;
    empty if several are possible. There is no `row` where what the launch wrote was not saved.
    `is_checked` says that it was compared with what it is, and `agrees` that it is that.
    """

    nodes: tuple[str, ...]
    view: str
    row: TensorRow | None
    made: int
    sources: Mapping[str, Bounded] = field(default_factory=dict)
    group: tuple[int, ...] = ()
    is_checked: bool = False
    agrees: bool = False


@dataclass
class HeldValues:
    """The values in one call of a function of a wrapper, at each point of it."""

    _graph: FxGraph
    _run: RunDump
    _inputs: Mapping[str, TensorRow]
    _sizes: Mapping[str, int]
    _names: Mapping[str, str]
    _types: Evaluator
    _held: dict[str, Held] = field(default_factory=dict, init=False)
    _made: dict[str, Held] = field(default_factory=dict, init=False)  # by node, where checked

    def hold(self, argument: Argument, held: Held) -> None:
        """Note what a launch wrote."""
        self._held[_variable(argument)] = self._held[argument.buffer] = held
        if held.is_checked and len(held.nodes) == 1:  # of several, it may be none to the last bit
            self._made[held.nodes[0]] = held

    def by(self, argument: Argument) -> Held | None:
        """What the launches so far left in an argument; `None` if none of them wrote it."""
        return self._held.get(_variable(argument)) or self._held.get(argument.buffer)

    def known(
        self, launch: Launch, given: Mapping[str, TensorRow]
    ) -> tuple[dict[str, Bounded], frozenset[str], tuple[int, ...]]:
        """The values of the nodes that a launch computes from, the names of those that it did not
        receive, as a received value that is no node was made of them, and the launches that made
        such values."""
        known: dict[str, Bounded] = {}
        borrowed: dict[str, Bounded] = {}
        group: set[int] = set()
        for argument in launch.args:
            row = given.get(argument.name)
            if argument.role == "out" or row is None:
                continue
            variable, is_view = self._input(argument), not argument.expr.isidentifier()
            held = self.by(argument)
            if held is None and variable:
                self._add(known, (variable,), row, self._inputs.get(variable), is_view=is_view)
            elif held is None or held.row is None:
                continue
            elif held.nodes:
                self._add(known, held.nodes, row, held.row, held.view, is_view=is_view)
            else:
                borrowed = {**held.sources, **borrowed}
                group |= {held.made, *held.group}
        for name in self._graph.inputs:  # numbers among the inputs
            if name in self._sizes:
                known[name] = self._sizes[name]  # type: ignore[assignment]
        others = tuple(sorted(group - {launch.index}))
        return {**borrowed, **known}, frozenset(borrowed), others

    def _input(self, argument: Argument) -> str:
        """The input of the graph that an argument is, or whose memory it reuses; empty if none."""
        variable = _variable(argument)
        names = (self._names.get(variable, variable), argument.buffer)
        known = (x for x in names if x in self._graph.types or x in self._graph.attributes)
        return next(known, "")

    def _add(
        self,
        known: dict[str, Bounded],
        nodes: tuple[str, ...],
        row: TensorRow,
        whole: TensorRow | None,
        view: str | None = None,
        *,
        is_view: bool,
    ) -> None:
        """Note the values of nodes that a recorded tensor is, or is a part of `whole`."""
        for node in nodes:
            kind = self._types.type_of(node)
            source = row
            if kind is not None and kind.numel not in (None, row.size):
                if whole is None or whole.size != kind.numel:
                    continue
                source = whole  # the launch reads a part of it
            tensor = received.load(self._run, source)
            # A variable may have memory that was written as something else: `buf8 =
            # reinterpret_tensor(buf7, (5, 5), (1, 5), 0)  # reuse` is what `buf7` was, transposed.
            is_whole = whole is not None and bool(whole.stride) and whole.size == row.size
            relaid = whole is not None and (row.shape, row.stride) != (whole.shape, whole.stride)
            viewed = source is row and (is_view or (is_whole and relaid))
            if viewed and is_whole and whole is not None and whole.stride:
                # Its memory, as the launch wrote it that made it.
                made = TensorType(tensor.dtype, tuple(whole.shape), tuple(whole.stride))
                tensor = received.layouts(tensor, source, made, viewed=True)[0]
                source, viewed = whole, False
            if not viewed and (members := self._types.held_as(node, source)):
                if len(members) > 1 and view is not None:
                    same = [x for x in members if x == view]
                    members = same if same or node == nodes[0] else members[:1]
                if not members:  # which of its views it is could not be told
                    continue
                if node == members[0]:
                    known[node] = exact(tensor)
                elif (base := self._types.base_of(members[0], exact(tensor))) is not None:
                    known[self._graph.base(node)] = base
                continue
            if viewed and kind is not None and not kind.stride and kind.shape:
                if node not in self._graph.attributes:
                    continue  # the graph of a package does not say how its values lie
                kind = kind.contiguous()
            known[node] = exact(received.layouts(tensor, source, kind, viewed=viewed)[0])

    def is_right(self, argument: Argument) -> bool:
        """Whether a tensor that a launch is given is an input, or a result that agreed."""
        held = self.by(argument)
        if held is None:
            return bool(self._input(argument))
        return held.agrees

    def established(
        self, node: FxNode, values: LaunchValues, but: frozenset[str] = frozenset()
    ) -> Evaluator:
        """The values of what a node reads, from inputs and results that were checked, other than
        those of some nodes, wherever the launch has its own from."""
        given = {*self._graph.inputs, *self._graph.attributes}
        received_here, *_ = self.known(values.launch, values.given)
        known = {name: value for name, value in received_here.items() if name in given}
        waiting, seen = [*node.reads], {*known}
        while waiting:
            if (name := waiting.pop()) in seen:
                continue
            seen.add(name)
            held = self._made.get(name)
            if name not in but and held is not None and held.row is not None:
                self._add(known, (name,), held.row, held.row, held.view, is_view=False)
            elif name in self._inputs:
                self._add(known, (name,), self._inputs[name], self._inputs[name], is_view=False)
            if name not in known and name in self._graph.nodes:
                waiting += self._graph.nodes[name].reads
        return Evaluator(self._graph, known, self._sizes)


def _variable(argument: Argument) -> str:
    """The variable of the wrapper that an argument is, or is a view of."""
    return argument.expr if argument.expr.isidentifier() else argument.buffer
