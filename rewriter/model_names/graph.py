"""Reads an FX graph as torch prints it: `fx_graph_readable.py`, and payloads of a trace log.

The text is that of `print_readable` (torch/fx/graph.py): a `def forward` with the inputs, comments
with the place in the model where the following lines come from, and an assignment for each node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from rewriter.dump.names import SourceLine
from rewriter.locate.declarations import unwritten_operators

ATTRIBUTE = "get_attr"  # the operator of a node that is a tensor of the model
MOST_BYTES = 32 << 20  # longer texts are not read

_FIRST_LINES = 5_000  # where the first line of the model is searched for: inputs come before it
_CLASS = re.compile(r"^([ \t]*)class (\w+|<lambda>)\(torch\.nn\.Module\):", re.MULTILINE)
_INPUT = re.compile(r"(\w+): ?\"([^\"]*)\"")
# The same in the head of a graph, where what is no tensor, such as a device mesh, has no type.
_GIVEN = re.compile(r'(?:^|,)\s*(\w+)(?: ?: ?(?:"([^"]*)"|[\w.\[\]]+))?(?: ?= ?[^,]*)?\s*(?=,|$)')
_COMMENT = re.compile(r"#.*")
_DESCRIBED = re.compile(r"^\s*(\w+)(?:: ?\"[^\"]*\")?,?\s*# (\w+)\((.*)\)$")
_PLACE = re.compile(r"^\s*# File: (.+):(\d+) in ([^,]*), code: (.*)$")
_UNKNOWN = re.compile(r"^\s*# No stacktrace found")
# The start of an exported program, whose inputs are declared on a line in the body.
_DECLARED = re.compile(r"^\s+(?:\w+: ?\"[^\"]*\"; *)+$")
_ATTRIBUTE = re.compile(r"self(?:\.\w+)+")
_CONTROLLED = re.compile(r"higher_order\.control_deps\(\([^()]*\), (\w+)((?:, \w+)*)\)")
_NODE = re.compile(r"^\s+(\w+)(?:: ?\"([^\"]*)\")? = (.*)$")
_ITEM = re.compile(r"\w+\[(\d+)\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")  # not of an operator, as in `aten.relu.default(relu)`
# Operators that return a view of their argument without running a kernel.
_VIEWS = {
    "alias", "as_strided", "_conj", "detach", "diagonal", "expand", "imag", "narrow", "_neg_view",
    "permute", "real", "reshape", "_reshape_alias", "select", "slice", "squeeze", "t", "transpose",
    "unfold", "_unsafe_view", "unsqueeze", "view", "view_as_complex", "view_as_real",
}  # fmt: skip
# Those of them that may give its elements in another order.
_REORDERING = {"as_strided", "diagonal", "permute", "t", "transpose", "unfold"}
# Operators whose results are several views of their argument.
_SPLITS = {"chunk", "split", "split_with_sizes", "tensor_split", "unbind"}


@dataclass(frozen=True)
class ModelLine(SourceLine):
    """A line of the model. `turn` counts its blocks in the graph: a line in a loop has several."""

    turn: int = 0


@dataclass(frozen=True)
class FxNode:
    """One operation. `reads` are the nodes and inputs in its arguments, `item` its index in a
    tuple, if it is an item of one. `call` is its text, such as `aten.log.default(addmm)`, `type`
    the type of its value in the text, such as `f32[8, 4][4, 1]cpu`."""

    name: str
    operator: str
    reads: tuple[str, ...]
    place: ModelLine | None = None
    item: int | None = None
    call: str = ""
    type: str = ""

    @property
    def is_view(self) -> bool:
        return self.operator in _VIEWS

    def reading(self, names: Mapping[str, str]) -> FxNode:
        """The node with others in place of some that it reads, by name."""
        own = {x: names[x] for x in self.reads if x in names}
        call = _NAME.sub(lambda word: own.get(word[0], word[0]), self.call)
        return replace(self, call=call, reads=tuple(own.get(x, x) for x in self.reads))

    @property
    def statement(self) -> str:
        """Such as `log = aten.log.default(addmm)`; the name alone if there is no call."""
        return f"{self.name} = {self.call}" if self.call else self.name


@dataclass(frozen=True)
class FxGraph:
    """`inputs` maps names to AOTAutograd's descriptions, such as `PlainAOTInput(idx=3)`; `types`
    maps them to the types in the text. `finals` maps inputs and attributes that the graph writes to
    the nodes with their last values; only known if each name has one value
    (`verification/functional.py`).
    """

    inputs: Mapping[str, str]
    nodes: Mapping[str, FxNode]
    outputs: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    finals: Mapping[str, str] = field(default_factory=dict)

    @property
    def attributes(self) -> frozenset[str]:
        """The nodes that are weights and constants of the model, not inputs."""
        return frozenset(x.name for x in self.nodes.values() if x.operator == ATTRIBUTE)

    @cached_property
    def updates(self) -> frozenset[str]:
        """The calls without a value, if the graph has the types of values: they write into their
        arguments."""
        if not any(node.type for node in self.nodes.values()):
            return frozenset()
        read = {name for node in self.nodes.values() for name in node.reads}
        bare = (x.name for x in self.nodes.values() if not x.type and x.operator and x.item is None)
        return frozenset(bare) - read - {*self.outputs, *self.attributes}

    def type_of(self, name: str) -> str:
        """The type of a node or an input in the text; empty if it does not say."""
        node = self.nodes.get(name)
        return node.type if node is not None and node.type else self.types.get(name, "")

    def base(self, name: str) -> str:
        """The node or input that owns the memory of a node."""
        return self._bases.get(name, name)

    def ancestors(self, name: str, through: Callable[[str], bool] = lambda _: True) -> set[str]:
        """The nodes and inputs that a node is computed from, those of a node `through` which it
        reads among them."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            node = self.nodes.get(waiting.pop())
            new = {*node.reads} - found if node is not None else set()
            found |= new
            waiting += filter(through, new)
        return found

    def family(self, name: str) -> tuple[str, ...]:
        """A node, then the others with its memory: its base, and the views of that."""
        base = self.base(name)
        return tuple(dict.fromkeys((name, base, *self._views.get(base, ()))))

    def reordered(self, name: str) -> frozenset[str]:
        """The views of a node that may have its elements in another order."""
        found: set[str] = set()
        for view in self._views.get(name, ()):  # in the order of the graph
            node = self.nodes[view]
            if node.operator in _REORDERING or node.reads[0] in found:
                found.add(view)
        return frozenset(found)

    @property
    def unwritten(self) -> frozenset[int]:
        """The indices of the outputs that the model returns without writing them."""
        operators = unwritten_operators()
        nodes = (self.nodes.get(self.base(name)) for name in self.outputs)
        return frozenset(
            place for place, node in enumerate(nodes) if node and node.operator in operators
        )

    def statement(self, name: str) -> str:
        """The statement of a node; an input has only its name."""
        return self.nodes[name].statement if name in self.nodes else name

    def first_use(self, name: str) -> ModelLine | None:
        """The place where the model first uses an input."""
        return self._first_uses.get(name)

    def items(self, name: str) -> Mapping[int, str]:
        """The nodes that are the items of a tuple, by their indices."""
        return self._items.get(name, {})

    @cached_property
    def _bases(self) -> dict[str, str]:
        bases: dict[str, str] = {}
        for node in self.nodes.values():  # the arguments of a node come before it
            if node.reads and (node.is_view or self._is_part(node)):
                bases[node.name] = bases.get(node.reads[0], node.reads[0])
        return bases

    def call_of(self, node: FxNode) -> FxNode | None:
        """The call that a node is, or is a result of; `None` for an item of an input."""
        return self.nodes.get(node.reads[0]) if node.item is not None else node

    def _is_part(self, node: FxNode) -> bool:
        """Whether a node is a view that a splitting operator returns, or all of these."""
        source = self.call_of(node)
        return source is not None and source.operator in _SPLITS

    @cached_property
    def _views(self) -> dict[str, list[str]]:
        views: dict[str, list[str]] = {}
        for name, base in self._bases.items():
            views.setdefault(base, []).append(name)
        return views

    @cached_property
    def _first_uses(self) -> dict[str, ModelLine]:
        uses: dict[str, ModelLine] = {}
        for node in self.nodes.values():
            for name in node.reads if node.place is not None else ():
                assert node.place is not None
                uses.setdefault(name, node.place)
        return uses

    @cached_property
    def _items(self) -> dict[str, dict[int, str]]:
        items: dict[str, dict[int, str]] = {}
        for node in self.nodes.values():
            if node.operator == "getitem" and node.item is not None and len(node.reads) == 1:
                items.setdefault(node.reads[0], {})[node.item] = node.name
        return items


def first_place(text: str) -> ModelLine | None:
    """The first line of the model in the text of a graph."""
    for line in text.split("\n", _FIRST_LINES)[:_FIRST_LINES]:
        if match := _PLACE.match(line):
            return ModelLine(match[1], int(match[2]), match[3], match[4])
    return None


def parse_inlined(text: str) -> FxGraph | None:
    """As `parse`, with each `control_deps` node replaced by the operator that it wraps.

    The node only says what has to run before the operator, which is in a subgraph of its own.
    """
    graph = parse(text)
    if graph is None:
        return None
    inner = subgraphs(text)
    return replace(graph, nodes={name: _inlined(node, inner) for name, node in graph.nodes.items()})


def _inlined(node: FxNode, inner: Mapping[str, FxGraph]) -> FxNode:
    match = _CONTROLLED.fullmatch(node.call)
    body = inner.get(match[1]) if match else None
    if match is None or body is None or len(body.nodes) != 1:
        return node
    (own,) = body.nodes.values()
    given = dict(zip(body.inputs, (x.strip() for x in match[2].split(",") if x), strict=False))
    call = _WORD.sub(lambda word: given.get(word[0], word[0]), own.call)
    reads = tuple(given.get(name, name) for name in own.reads)
    return replace(node, operator=own.operator, call=call, reads=reads)


def subgraphs(text: str) -> dict[str, FxGraph]:
    """The subgraphs of a graph: the branches of a condition, the body of a loop. One in another has
    the name of both, such as `true_graph_0_false_graph_0`, as the functions of wrappers have."""
    heads = list(_CLASS.finditer(text))[1:] if len(text) <= MOST_BYTES else []
    ends = [*(head.start() for head in heads[1:]), len(text)]
    parsed: dict[str, FxGraph | None] = {}
    around: list[re.Match[str]] = []  # the heads of the graphs that one is in, and its own
    for head, end in zip(heads, ends, strict=False):
        while around and len(around[-1][1]) >= len(head[1]):
            around.pop()
        around.append(head)
        name, graph = "_".join(x[2] for x in around), parse(text[head.start() : end])
        parsed[name] = graph if parsed.get(name, graph) == graph else None  # which one is meant?
    return {name: graph for name, graph in parsed.items() if graph is not None}


def parse(text: str) -> FxGraph | None:
    """Read a graph without its subgraphs; `None` if the text is not a graph."""
    start = text.find("def forward(")
    if start < 0 or len(text) > MOST_BYTES:
        return None
    head, _, body = text[start:].partition("):\n")
    given = dict(_GIVEN.findall(_COMMENT.sub("", head.partition("(")[2])))
    given.pop("self", None)
    types = {name: kind for name, kind in given.items() if kind}
    inputs = dict.fromkeys(given, "")
    for line in head.split("\n"):
        if match := _DESCRIBED.match(line):
            inputs[match[1]] = f"{match[2]}({match[3]})"
    nodes: dict[str, FxNode] = {}
    place: ModelLine | None = None
    turns: dict[tuple[str, int], int] = {}
    outputs: tuple[str, ...] = ()
    lines = iter(body.split("\n"))
    for line in lines:
        if match := _PLACE.match(line):
            key = match[1], int(match[2])
            turns[key] = turns.get(key, -1) + 1
            place = ModelLine(*key, match[3], match[4], turns[key])
        elif _UNKNOWN.match(line):
            place = None
        elif _DECLARED.match(line):
            declared = dict(_INPUT.findall(line))
            if not types:  # the arguments of the module, of which these are the members
                inputs.clear()
            types |= declared
            inputs |= dict.fromkeys(declared, "")
        elif match := _NODE.match(line):
            name, value = match[1], match[3].partition(";  ")[0]
            if value in inputs or value in nodes:
                if value in inputs:
                    inputs[name] = inputs[value]
                nodes[name] = FxNode(name, "alias", (value,), place)
                continue
            if match[2] and _ATTRIBUTE.fullmatch(value):
                nodes[name] = FxNode(name, ATTRIBUTE, (), place, call=value, type=match[2])
                continue
            node = _node(name, value, place, inputs, nodes)
            nodes[name] = replace(node, type=match[2] or "")
        elif line.lstrip().startswith("return "):
            text = line.strip().removeprefix("return ")
            # AOTAutograd's graphs have one input per line, with its description.
            rest = lines if text == "(" else ()
            members = takewhile(lambda line: line.strip() not in (")", ""), rest)
            outputs = _returned(text + "".join(x.partition("#")[0].strip() for x in members))
            break
    return FxGraph(inputs, nodes, outputs, types)


def _node(
    name: str,
    value: str,
    place: ModelLine | None,
    inputs: Mapping[str, str],
    nodes: Mapping[str, FxNode],
) -> FxNode:
    def named(text: str) -> tuple[str, ...]:
        return tuple(x for x in dict.fromkeys(_WORD.findall(text)) if x in inputs or x in nodes)

    call = value.removeprefix("torch.ops.")
    if match := _ITEM.fullmatch(value):
        return FxNode(name, "getitem", named(value), place, int(match[1]), call)
    called, bracket, arguments = value.partition("(")
    parts = called.split(".")
    if not bracket or not parts[-1].isidentifier():
        return FxNode(name, "", named(value), place, call=call)  # `a + b`, as in Dynamo's graphs
    operator = parts[3] if called.startswith("torch.ops.") and len(parts) > 3 else parts[-1]
    # An operator may have the name of a node.
    return FxNode(name, operator, named(arguments), place, call=call)


def _returned(text: str) -> tuple[str, ...]:
    """The names in `(a, None, b)`, in order; empty for an item that is not a name."""
    parts = text.strip().rstrip(",").strip("()[] ").split(",")
    return tuple(
        part.strip() if part.strip().isidentifier() else "" for part in parts if part.strip()
    )
