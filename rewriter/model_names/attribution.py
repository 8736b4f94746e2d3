"""Tells which nodes of a graph each launch computes.

Without provenance, a wrapper does not name the nodes of its fused CPU kernels, but they follow from
its data flow: inputs and outputs have the names and the order of the graph's, a call of an operator
is the node of that operator, and a fused kernel computes the nodes between what it reads and what
it writes. If these facts contradict each other, a launch gets no nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice

from rewriter.locate.declarations import unwritten_operators
from rewriter.locate.names import canonical
from rewriter.locate.types import Argument, EntryPoint, Launch, by_item
from rewriter.locate.vocabulary import kind_of
from rewriter.model_names.graph import FxGraph, FxNode

_CONTROL = "higher_order."  # conditions and loops, which no kernel computes
_OVERLOADS = frozenset({"Scalar", "Tensor", "correction", "low", "stable", "two", "value"})
# Operators that are called in place of an operator of the graph.
_INSTEAD = {"scatter_reduce": "scatter_add", "randint": "inductor_seeds"}
_REDUCTIONS = frozenset({"prod", "mean", "amax", "amin"})  # of scatter_reduce, other than sum
# Operators of kernels that the user wrote in Triton, and those whose template takes code of the
# user's, which its name has.
_OF_TRITON = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")
_TEMPLATES = ("flex_attention_backward", "flex_attention")
_FIRST = 3  # arguments of a template that are in the order of its operator: query, key, value
_LOOKED_AT = 100  # nodes of an operator that are compared with one call of it
# What a buffer holds: its name, and the launch that wrote it last, -1 before any did.
_Value = tuple[str, int]


def attribute(
    launches: Sequence[Launch], entry: EntryPoint, graph: FxGraph
) -> Mapping[int, tuple[str, ...]]:
    """The nodes of the graph that launches compute, by launch index, in the order of the graph."""
    return _Attribution([x for x in launches if not x.repeats], entry, graph).nodes()


@dataclass(frozen=True)
class Values:
    """Which graph node each buffer holds, by the buffer and the launch that wrote it last.

    `likely` has those that the order of calls alone tells. `calls` are the nodes of launches that
    call an operator, by their index.
    """

    held: Mapping[tuple[str, int], str]
    likely: Mapping[tuple[str, int], str]
    calls: Mapping[int, str]


def values_of(launches: Sequence[Launch], entry: EntryPoint, graph: FxGraph) -> Values:
    """The values of a function whose launches run once."""
    return _Attribution([x for x in launches if not x.repeats], entry, graph).values


def values_inside(
    launches: Sequence[Launch], scope: str, graph: FxGraph, outputs: Sequence[str] = ()
) -> Values:
    """As `values_of`, for a subgraph and the launches of its function. `outputs` are the buffers
    that it returns, where they are known."""
    inside = [replace(launch, repeats=False) for launch in launches if launch.scope == scope]
    names = inner_names(inside, graph)
    own = [replace(x, args=tuple(_by_variable(y, names) for y in x.args)) for x in inside]
    entry = EntryPoint(scope, 0, b"", tuple(graph.inputs), outputs=tuple(outputs))
    return _Attribution(own, entry, graph, names).values


def _by_variable(argument: Argument, names: Container[str]) -> Argument:
    """An argument by its name inside the function, not the caller's."""
    return replace(argument, buffer=argument.expr) if argument.expr in names else argument


def inner_names(launches: Sequence[Launch], graph: FxGraph) -> Mapping[str, str]:
    """The inputs of a subgraph by the variables of its function, whose names begin with that of the
    subgraph."""
    names = sorted(graph.inputs, key=len, reverse=True)
    tensors = [x for launch in launches for x in launch.tensors]
    variables = {x.expr for x in tensors if x.expr.isidentifier()} | {x.buffer for x in tensors}
    pairs = ((x, next((y for y in names if x.endswith(f"_{y}")), "")) for x in variables)
    return {variable: name for variable, name in pairs if name and variable not in graph.inputs}


def attribute_inside(
    launches: Sequence[Launch], scope: str, graph: FxGraph
) -> Mapping[int, tuple[str, ...]]:
    """The nodes of a subgraph that the launches of its function compute.

    The outputs of the function are not known: see `left_over`.
    """
    inside = [launch for launch in launches if launch.scope == scope]
    entry = EntryPoint(scope, 0, b"", tuple(graph.inputs))
    computed = dict(_Attribution(inside, entry, graph).nodes())
    return computed | left_over(inside, computed, graph)


def left_over(
    launches: Sequence[Launch], computed: Mapping[int, tuple[str, ...]], graph: FxGraph
) -> dict[int, tuple[str, ...]]:
    """If a single fused kernel has no nodes, the nodes that are left.

    It computes something that is not an output of the graph, such as a condition. Some of the nodes
    may not be its own: nodes that no launch needs.
    """
    left = [launch for launch in launches if launch.index not in computed]
    if len(left) != 1 or not is_fused(left[0]):
        return {}
    known = {name for names in computed.values() for name in names}
    rest = (x for x in graph.nodes.values() if x.name not in known and x.operator)
    shown = (x for x in rest if not x.is_view and x.item is None)
    names = tuple(x.name for x in shown if not x.call.startswith(_CONTROL))
    return {left[0].index: names} if names else {}


def is_fused(launch: Launch) -> bool:
    """Whether Inductor may have made the kernel of a launch from several nodes."""
    return kind_of(launch.kind).code == "generated"


def called(launch: Launch) -> frozenset[str]:
    """The operators of a graph that a launch may be a call of, by its name."""
    if launch.kind == "triton_user":
        return frozenset(_OF_TRITON)
    if template := _template(launch):
        return frozenset({template})
    operator = canonical(launch.kernel)
    names = {operator}
    if launch.kernel.startswith("torch.ops."):
        names.update(launch.kernel.split(".")[3:4])
    base, _, overload = operator.rpartition("_")  # names of the C shim include the overload
    if overload in _OVERLOADS:
        names.add(base)
    names |= {other for name, other in _INSTEAD.items() if f"{operator}_".startswith(f"{name}_")}
    if _REDUCTIONS.intersection(arg.expr.strip("'\"") for arg in launch.args):
        names.discard("scatter_add")
    return frozenset(names)


def _template(launch: Launch) -> str:
    return next((x for x in _TEMPLATES if is_fused(launch) and x in launch.kernel), "")


def _untaken(nodes: deque[FxNode], taken: set[str]) -> list[FxNode]:
    """The next nodes of an operator that have no call yet; forgets the taken ones at the front."""
    while nodes and nodes[0].name in taken:
        nodes.popleft()
    return [node for node in islice(nodes, _LOOKED_AT) if node.name not in taken]


class _Attribution:
    def __init__(
        self,
        launches: Sequence[Launch],
        entry: EntryPoint,
        graph: FxGraph,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._launches = launches
        self._order = {name: number for number, name in enumerate(graph.nodes)}
        self._reads: dict[int, list[_Value]] = {}
        self._writes: dict[int, list[_Value]] = {}
        self._items: dict[int, dict[str, int]] = {}  # which result of its call each buffer is
        given = (*graph.inputs, *graph.attributes)
        self._held: dict[_Value, str] = {(name, -1): name for name in given}
        self._held |= {(variable, -1): name for variable, name in (names or {}).items()}
        last: dict[str, int] = {}
        for launch in self._launches:
            tensors = launch.tensors
            # In C++ what an operator updates is given twice, as its result and as its argument.
            self._reads[launch.index] = list(
                dict.fromkeys(
                    (tensor.buffer, last.get(tensor.buffer, -1))
                    for tensor in tensors
                    if tensor.role != "out"
                )
            )
            written = [tensor for tensor in tensors if tensor.role != "in"]
            self._writes[launch.index] = [(argument.buffer, launch.index) for argument in written]
            self._items[launch.index] = {x.buffer: n for n, x in by_item(written).items()}
            last.update(dict.fromkeys((argument.buffer for argument in written), launch.index))
        left = (*zip(entry.outputs, graph.outputs, strict=False), *graph.finals.items())
        for buffer, node in left:
            if buffer in last and node in graph.nodes:
                self._held.setdefault((buffer, last[buffer]), graph.base(node))
        self._likely: set[_Value] = set()
        # A call is compared with many nodes, so both are found once: what owns the memory that a
        # node reads, and which of that nobody has written yet.
        self._bases = {
            name: frozenset(map(graph.base, node.reads)) for name, node in graph.nodes.items()
        }
        updated: dict[str, int] = {}  # where a node is updated in place first
        for name in sorted(graph.updates, key=self._order.__getitem__):
            for base in self._bases[name]:
                updated.setdefault(base, self._order[name])
        operators = unwritten_operators()
        new = {name for name, node in graph.nodes.items() if node.operator in operators}
        self._unwritten = {
            name: frozenset(x for x in bases & new if updated.get(x, place) >= place)
            for (name, bases), place in zip(self._bases.items(), self._order.values(), strict=True)
        }
        self._called = self._calls()

    @property
    def values(self) -> Values:
        likely = {value: self._held[value] for value in self._likely}
        held = {value: name for value, name in self._held.items() if value not in likely}
        return Values(held, likely, self._called)

    def nodes(self) -> dict[int, tuple[str, ...]]:
        by_launch: dict[int, tuple[str, ...]] = {}
        for launch in self._launches:
            if launch.index in self._called:
                by_launch[launch.index] = (self._called[launch.index],)
            elif nodes := self._between(launch.index):
                by_launch[launch.index] = tuple(sorted(nodes, key=self._order.__getitem__))
        return by_launch

    def _calls(self) -> dict[int, str]:
        """The node of each call of an operator; also notes what the calls read and write."""
        candidates: dict[str, deque[FxNode]] = {}
        for node in self._graph.nodes.values():
            for operator in {node.operator, node.operator.rstrip("_")}:
                candidates.setdefault(operator, deque()).append(node)
        calls: dict[int, str] = {}
        taken: set[str] = set()
        for launch in self._launches:
            names = sorted(called(launch) & set(candidates))
            nodes = {x.name: x for name in names for x in _untaken(candidates[name], taken)}
            known = {self._held.get(value) for value in self._reads[launch.index]}
            possible = [x for x in nodes.values() if self._may_read(x, known - {None})]
            if not possible:
                continue
            # The calls are in the order of the graph, or nearly so.
            node = min(possible, key=lambda x: self._order[x.name])
            values = (*self._reads[launch.index], *self._writes[launch.index])
            before = {x for x in values if x in self._held}
            if launch.kind == "triton_user" or _template(launch):
                self._hold_in_order(launch, node)
            unknown = self._bases[node.name] - known - self._unwritten[node.name]
            self._hold_read(launch.index, node, unknown)
            calls[launch.index] = node.name
            taken.add(node.name)
            if not _template(launch) or len(self._writes[launch.index]) == 1:
                # A template also writes what it leaves to its backward, in an order of its own.
                self._hold(launch.index, node.name)
            # Of a linear layer with a bias, `_mkl_linear` leaves that to the next kernel.
            is_part = sum(arg.expr == "None" for arg in launch.args) > node.call.count("None")
            # Which of several nodes it is, the order alone tells.
            if is_part or (None in known and len(possible) > 1):
                self._likely |= {x for x in values if x in self._held} - before
        return calls

    def _may_read(self, node: FxNode, known: set[str | None]) -> bool:
        """Whether a call that is given these values may be of a node. What it overwrites may hold
        another one, of a buffer whose memory is reused."""
        others = known - self._bases[node.name]
        few = len(others) <= len(self._unwritten[node.name])
        return few and self._graph.inputs.keys().isdisjoint(others)

    def _hold_read(self, launch: int, node: FxNode, rest: Set[str]) -> None:
        """Note what a call reads: the arguments of its node. `rest` are the unknown ones.

        Arguments are in the same order, unless the operator is called in another way. So the known
        ones have to agree.
        """
        bases, unwritten = self._bases[node.name], self._unwritten[node.name]
        given = [x for x in map(self._graph.base, node.reads) if x not in unwritten]
        values = [
            x for x in self._reads[launch] if not unwritten or self._held.get(x, "") in {"", *bases}
        ]
        pairs = list(zip(values, given, strict=False))
        if len(values) == len(given) == len(set(values)) and all(
            self._held.get(value, name) == name for value, name in pairs
        ):
            for value, name in pairs:
                self._held.setdefault(value, name)
            return
        unknown = [x for x in values if x not in self._held]
        if len(unknown) == 1 and len(rest) == 1:
            self._held[unknown[0]] = next(iter(rest))

    def _hold_in_order(self, launch: Launch, node: FxNode) -> None:
        """Note what a kernel with code of the user's is given: what its node is, in that order."""
        buffers = [arg.buffer for arg in launch.tensors]
        given = [self._graph.base(name) for name in node.reads]
        if launch.kind != "triton_user":
            buffers, given = buffers[:_FIRST], given[:_FIRST]
        names = dict(zip(buffers, given, strict=False)) if len(buffers) == len(given) else {}
        for value in (*self._reads[launch.index], *self._writes[launch.index]):
            if value[0] in names:
                self._held.setdefault(value, names[value[0]])

    def _hold(self, launch: int, node: str) -> None:
        """Note what a call writes: its node, or the items of the node."""
        written = self._writes[launch]
        items = self._graph.items(node)
        places = self._items[launch]
        for value in written:
            number = places.get(value[0], -1)
            name = items.get(number) if items else node if len(written) == 1 else None
            if node in self._graph.updates:  # a buffer that it updates in place keeps its name
                new, given = self._unwritten[node], self._bases[node]
                read = [self._held.get(x) for x in self._reads[launch] if x[0] == value[0]]
                known = [x for x in read if x is not None and (x in given or not new)]
                name = next(iter(known or (new if len(new) == 1 else ())), None)
            if name is not None:
                self._held[value] = name

    def _between(self, launch: int) -> set[str]:
        """The nodes that a fused kernel computes; none if they need more than the kernel reads."""
        given = {self._held.get(value) for value in self._reads[launch]}
        called = set(self._called.values())
        results = [self._held[x] for x in self._writes[launch] if x in self._held]
        computed: set[str] = set()
        left = [name for name in results if name not in given]
        while left:
            name = left.pop()
            if name in computed or name in given:
                continue
            node = self._graph.nodes.get(name)
            if node is None or name in called:
                return set()  # an input or a call that the kernel does not read
            if node.is_view and self._graph.base(name) in given:
                continue
            computed.add(name)
            left += node.reads
        return {name for name in computed if not self._graph.nodes[name].is_view}
