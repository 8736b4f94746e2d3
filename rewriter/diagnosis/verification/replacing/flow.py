"""Which nodes of its graph each launch of a function receives, and which it has to write.

Most follow from the flow of data (`model_names/attribution.py`). What only the order of calls
tells, or nothing does, has to be the one node of that type which the launch can compute from what
it receives, and from which the launches that read it can compute what they write.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from rewriter.diagnosis.verification.graph_types import TensorType
from rewriter.diagnosis.verification.replacing.body import INSIDE, sizes_of, type_of
from rewriter.diagnosis.verification.replacing.layouts import Layout, Mentions, layout_of, view_in
from rewriter.diagnosis.verification.whole_graph import HEAVY
from rewriter.locate.types import Argument, Launch
from rewriter.model_names.attribution import Values, called, is_fused
from rewriter.model_names.graph import ATTRIBUTE, FxGraph, FxNode

Value = tuple[str, int]  # a buffer, and the launch that wrote it last, -1 before any did
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\d.])|\b(?:True|False)\b")
_MOST = 48  # nodes that a buffer may hold
_FAR = 4000  # nodes between what a launch writes and what it receives


class Flow:
    """The values of one function of a wrapper."""

    def __init__(
        self,
        graph: FxGraph,
        launches: Sequence[Launch],
        values: Values,
        returned: Mapping[str, str],
        layouts: Mapping[str, Layout],
        dead: Collection[str],
        others: Mentions,
    ) -> None:
        """`returned` are the buffers that are read when its launches are done, with their nodes
        where these are known. `dead` are the variables of memory whose old values the next launch
        does not need. What `others` name may be read at any time."""
        self.graph, self.layouts = graph, layouts
        self._called = {*values.calls.values()}
        self._updated = others.updated  # by statements: what launches left there is not read
        self._launches = {x.index: x for x in launches}
        unclear = {
            x for x, node in values.calls.items() if self._has_rival(self._launches[x], node)
        }
        self.calls = {x: node for x, node in values.calls.items() if x not in unclear}
        held, likely = (
            {x: node for x, node in some.items() if x[1] not in unclear}
            for some in (values.held, values.likely)
        )
        self._held = {x: node for x, node in held.items() if x[0] not in self._updated}
        self._before: dict[int, dict[str, int]] = {}  # by launch, who wrote a buffer before it
        self._made: dict[Value, Argument] = {}
        self._readers: dict[Value, list[int]] = {}
        last: dict[str, int] = {}
        begun: set[str] = set()  # variables that a launch was given
        for launch in launches:
            tensors = launch.tensors
            self._before[launch.index] = {x.buffer: last.get(x.buffer, -1) for x in tensors}
            for tensor in tensors:
                is_dead = tensor.expr in dead and tensor.expr not in begun
                if tensor.role != "out" and tensor.hazard != "updated" and not is_dead:
                    self._readers.setdefault(self.received(launch, tensor), []).append(launch.index)
            begun |= {x.expr for x in tensors}
            for tensor in tensors:
                if tensor.role != "in":
                    last[tensor.buffer] = launch.index
                    self._made.setdefault((tensor.buffer, launch.index), tensor)
                    if self.is_part(tensor):  # what the call returns is not what the buffer holds
                        self._held.pop((tensor.buffer, launch.index), None)
        for value in self._made:
            if value[0] in others.named:
                self._readers.setdefault(value, [])
        for buffer in last.keys() & returned.keys():
            self._readers.setdefault((buffer, last[buffer]), [])
            if (node := returned.get(buffer)) and buffer not in self._updated:
                self._held.setdefault((buffer, last[buffer]), graph.base(node))
        for launch in launches:
            self._resolve(launch, likely)

    def received(self, launch: Launch, argument: Argument) -> Value:
        """The value that a launch finds in an argument."""
        return argument.buffer, self._before[launch.index][argument.buffer]

    def is_read(self, launch: Launch, argument: Argument) -> bool:
        """Whether something reads what a launch writes; of a part, with what others write."""
        if not self.is_part(argument):
            return (argument.buffer, launch.index) in self._readers
        return any(buffer == argument.buffer and by >= launch.index for buffer, by in self._readers)

    def is_part(self, argument: Argument) -> bool:
        layout = layout_of(argument.expr, self.layouts)
        return layout is not None and layout.is_part

    def node_before(self, launch: Launch, argument: Argument) -> str:
        """The node in an argument before a launch; empty if it is not known."""
        return self._held.get(self.received(launch, argument), "")

    def made_as(self, launch: Launch, argument: Argument) -> Layout | None:
        """How what a launch receives was laid out when it was written."""
        made = self._made.get(self.received(launch, argument))
        if made is None or self.is_part(made):
            return self.layouts.get(argument.buffer)
        known = layout_of(made.expr, self.layouts) or self.layouts.get(made.name)
        if known is None:  # a call has made it, which may say how only under another name
            own = self.layouts.get(argument.expr)
            return own if own is not None and own.view is None else None
        return known

    def node_after(self, launch: Launch, argument: Argument) -> str:
        """The node in an argument after a launch; empty if it is not known."""
        if self.is_part(argument):
            return self._part(launch, argument)
        return self._held.get((argument.buffer, launch.index), "")

    def _part(self, launch: Launch, argument: Argument) -> str:
        """The node that is written into a part of a buffer: that of the call, or what is joined
        there."""
        if call := self.calls.get(launch.index, ""):
            outs = [x for x in launch.tensors if x.role != "in"]
            return call if len(outs) == 1 else ""
        view = view_in(argument.expr, self.layouts)
        later = sorted(by for buffer, by in self._held if buffer == argument.buffer)
        whole = next((by for by in later if by >= launch.index), None)
        node = self.graph.nodes.get(self._held.get((argument.buffer, whole or -1), ""))
        if view is None or node is None or node.operator != "cat":
            return ""
        return self._joined(node, view.offset, view.size)

    def _joined(self, node: FxNode, offset: str, sizes: tuple[str, ...]) -> str:
        """The operand of `cat` whose elements begin at an offset of the result."""
        whole, place = sizes_of(self.graph, node.name) or (), 0
        if not (offset.isdecimal() and all(x.isdecimal() for x in (*whole, *sizes))):
            return ""
        (dim, *more) = [x for x in range(len(whole)) if whole[x] != sizes[x]] or [0]
        if more or len(whole) != len(sizes):
            return ""
        stride = 1
        for extent in whole[dim + 1 :]:
            stride *= int(extent)
        for name in node.reads:  # an operand that is joined twice has one name
            own = sizes_of(self.graph, name)
            if own is None or len(own) != len(whole):
                return ""
            if place == int(offset) and own == sizes:
                return name if len(node.reads) == node.call.count(",") else ""
            place += stride * int(own[dim])
        return ""

    def _resolve(self, launch: Launch, likely: Mapping[Value, str]) -> None:
        """Find the nodes of what a launch writes where the flow of data does not tell them."""
        for argument in launch.tensors:
            value = argument.buffer, launch.index
            is_open = argument.role != "in" and value in self._readers
            if not is_open or value in self._held or argument.buffer in self._updated:
                continue
            is_part = self.is_part(argument)
            layout = self.layouts.get(argument.buffer) if is_part else None
            layout = layout or layout_of(argument.expr, self.layouts)
            layout = layout or self.layouts.get(argument.name)
            names = self._joins if is_part else self._written_by(launch)
            found = [*self._possible(names, layout)] if layout is not None else []
            if likely.get(value) in found:
                self._held[value] = likely[value]
                continue
            fit = [x for x in found if all(self._serves(x, y) for y in self._readers[value])]
            if len({self._same[x] for x in fit}) == 1 and not self._is_elsewhere(fit[0], value):
                self._held[value] = fit[0]

    def _is_elsewhere(self, name: str, value: Value) -> bool:
        """Whether what reads a value may receive a node in another buffer, of which no node is
        known either."""
        given = (self._launches[x] for x in self._readers[value])
        others = {self.received(x, y) for x in given for y in x.tensors if y.role != "out"}
        for other in others - self._held.keys() - {value}:
            made = self._made.get(other)
            layout = layout_of(made.expr, self.layouts) if made is not None else None
            if layout is not None and self._possible([name], layout):
                return True
        return False

    def _has_rival(self, launch: Launch, name: str) -> bool:
        """Whether a call may be of another node, which is given the same tensors and computes
        something else: the order of calls need not be that of the graph."""
        graph, operators = self.graph, called(launch)
        bases = {*map(graph.base, graph.nodes[name].reads)}
        given = Counter(y for x in launch.args if not x.buffer for y in _numbers(x.expr))
        similar = [
            x.name
            for x in graph.nodes.values()
            if x.operator.rstrip("_") in operators and {*map(graph.base, x.reads)} == bases
        ]
        if len({self._same[x] for x in similar}) < 2:
            return False
        fit = {self._same[x] for x in similar if given >= Counter(_numbers(graph.nodes[x].call))}
        return fit != {self._same[name]}

    def _written_by(self, launch: Launch) -> list[str]:
        """The nodes that a launch may write."""
        if call := self.calls.get(launch.index, ""):
            return [call, *self.graph.items(call).values()]
        return self._computed(self._given(launch), launch.kernel) if is_fused(launch) else []

    def _possible(self, names: Sequence[str], layout: Layout) -> list[str]:
        """Those of some nodes that lie like this, and no other buffer holds."""
        taken = set(self._held.values())
        found = []
        for name in names:
            kind, sizes = self._types[name]
            if kind is None or sizes is None or name in taken or self.graph.nodes[name].is_view:
                continue
            if layout.dtype in ("", str(kind.dtype)) and layout.fits(sizes):
                found.append(name)
        return found if len(found) <= _MOST else []

    def _given(self, launch: Launch) -> set[str]:
        found = {x for x, text in self.graph.types.items() if text.startswith("Sym(")}
        for tensor in launch.tensors:
            if tensor.role != "out":
                found.add(self.node_before(launch, tensor))
        return found - {""}

    def _computed(self, given: set[str], kernel: str) -> list[str]:
        """What a fused kernel can compute from some nodes, in the order of the graph."""
        found, waiting = set(given), deque((*given, *self._constants))
        while waiting and len(found) < _FAR:
            name = waiting.popleft()
            for node in (*self._users.get(name, ()), *filter(None, [self.graph.nodes.get(name)])):
                is_open = node.name not in found and self._is_fusible(node, kernel)
                if is_open and all(x in found for x in node.reads):
                    found.add(node.name)
                    waiting.append(node.name)
        return [x for x in self.graph.nodes if x in found and x not in given]

    def _serves(self, name: str, reader: int) -> bool:
        """Whether a launch that reads a value can compute what it writes if the value is a node."""
        launch = self._launches[reader]
        given = {*self._given(launch), name}

        def can_fuse(one: str) -> bool:
            node = self.graph.nodes.get(one)
            return node is not None and self._is_fusible(node, launch.kernel)

        written = (x for x in launch.tensors if x.role != "in")
        wanted = {self._held.get((x.buffer, reader), "") for x in written}
        call = self.calls.get(reader, "")
        wanted = {*wanted, call} - {"", *given}
        read = set[str]()
        for name in wanted:
            read |= self.graph.ancestors(name, lambda x: x not in given and can_fuse(x))
        return all(x == call or can_fuse(x) for x in wanted) and all(map(can_fuse, read - given))

    def _is_fusible(self, node: FxNode, kernel: str) -> bool:
        """Whether a fused kernel may compute a node, which no launch calls by itself."""
        if node.operator == ATTRIBUTE or node.call.startswith(INSIDE) or node.name in self._called:
            return False
        return node.operator not in HEAVY or node.operator in kernel

    @cached_property
    def _users(self) -> dict[str, list[FxNode]]:
        users: dict[str, list[FxNode]] = {}
        for node in self.graph.nodes.values():
            for name in node.reads:
                users.setdefault(name, []).append(node)
        return users

    @cached_property
    def _types(self) -> dict[str, tuple[TensorType | None, tuple[str, ...] | None]]:
        return {x: (type_of(self.graph, x), sizes_of(self.graph, x)) for x in self.graph.nodes}

    @cached_property
    def _joins(self) -> list[str]:
        return [x.name for x in self.graph.nodes.values() if x.operator == "cat"]

    @cached_property
    def _constants(self) -> list[str]:
        return [x.name for x in self.graph.nodes.values() if not x.reads]

    @cached_property
    def _same(self) -> dict[str, str]:
        """For each node the first one that computes the same."""
        first: dict[tuple[str, int | None], str] = {}
        same: dict[str, str] = {x: x for x in self.graph.inputs}
        for node in self.graph.nodes.values():
            call = node.reading(same).call if node.call else f"{same.get(node.reads[0], '')}"
            same[node.name] = first.setdefault((call, node.item), node.name)
        return same


def _numbers(text: str) -> list[int]:
    """The integers that an expression has, with those that stand for truth values."""
    return [int(x == "True") if x.isalpha() else int(x) for x in _NUMBER.findall(text)]
