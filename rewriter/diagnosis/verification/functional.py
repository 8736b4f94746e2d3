"""A graph in which each name has one value: what its operators write gets names of its own.

After `fill = own.fill.default(x, y)`, which writes `y`, the graph reads `y` and means what is in it
by then. Here this is `y_after_fill`: an item of `fill`, whose value is what it wrote, and then what
it returned. If `y` is a view, its base and the other views of it change, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.calls import bound
from rewriter.diagnosis.verification.evaluate import MEAN, THROUGH, operator_named
from rewriter.diagnosis.verification.operators import operands
from rewriter.diagnosis.verification.operators.operands import is_written
from rewriter.dump import launched
from rewriter.dump.changed import without_schema
from rewriter.dump.reading import RunDump
from rewriter.locate.operators import NAMESPACES, mutating_operators
from rewriter.model_names import graph as naming
from rewriter.model_names.graph import FxGraph, FxNode, parse_inlined

_COPIED = re.compile(r"aten\.copy_\.default\(\w+, (\w+)\)$")
# Operators that write nothing if they are not known to.
_OF_TORCH = ("higher_order.", *(f"{space}." for space in NAMESPACES))
_SHAPE = re.compile(r"\w+\[[^\]]*\]")
_MEAN = re.compile(r"aten\.mean\.(default|dim)\(")
_HALF = re.compile(r"b?f16\[")
_Places = Mapping[str, frozenset[int]]


def read(
    text: str, known: Mapping[str, str], changed: _Places = MappingProxyType({})
) -> FxGraph | None:
    """Read a graph; `None` if it is not one. `known` are schemas of operators by
    `namespace.op.overload`: of one that is neither there nor registered here, `changed` are the
    tensors that it changed, by their places among those that it is given; if it returns nothing,
    all may be written."""
    graph = parse_inlined(text)
    return None if graph is None else _Functional(graph, known, changed).graph()


def subgraphs(
    text: str, known: Mapping[str, str], changed: _Places = MappingProxyType({})
) -> dict[str, FxGraph]:
    """The same of its subgraphs, by name."""
    found = naming.subgraphs(text)
    return {name: _Functional(graph, known, changed).graph() for name, graph in found.items()}


def schemas(run: RunDump) -> dict[str, str]:
    """The recorded schemas of operators, by `namespace.op.overload`."""
    rows = run.table.values()
    return {x.kernel.removeprefix("torch.ops."): x.schema for x in rows if x.schema}


def changed_by(run: RunDump) -> dict[str, frozenset[int]]:
    """What operators without a recorded schema changed of the tensors that they were given, where
    each of these was recorded: else their places are not known."""
    found: dict[str, frozenset[int]] = {}
    for step in run.steps:
        facts = run.launch_row(step.launch)
        if not without_schema(facts) or launched.unread(facts, launched.reads(run.rows(step))):
            continue
        given = received.given(run.rows(step)).values()
        path = step.kernel.removeprefix("torch.ops.")
        places = frozenset(i for i, row in enumerate(given) if row.role == "inout")
        found[path] = found.get(path, frozenset()) | places
    return found


def schema_of(run: RunDump, path: str) -> Any:
    """The recorded schema of `namespace.op.overload`; `None` if it was not recorded."""
    return (text := schemas(run).get(path)) and operands.schema_of(text)


class _Functional:
    def __init__(self, graph: FxGraph, known: Mapping[str, str], changed: _Places) -> None:
        self._graph, self._schemas, self._places = graph, known, changed
        self._nodes: dict[str, FxNode] = {}
        self._now: dict[str, str] = {}  # the node with the present value of a name
        self._same: dict[str, str] = {}  # results of in-place operators: the names that they wrote
        self._results: dict[str, int] = {}  # how many values a call wrote, which come first
        self._views: dict[str, list[str]] = {}  # by base
        self._last: dict[str, int] = {}  # the last node that reads a name
        for number, node in enumerate(graph.nodes.values()):
            self._last |= dict.fromkeys(node.reads, number)
        self._last |= dict.fromkeys(graph.outputs, len(graph.nodes))

    def graph(self) -> FxGraph:
        """Raises nothing: what cannot be read stays as it is."""
        for number, node in enumerate(self._graph.nodes.values()):
            path = node.call.partition("(")[0]
            schema = mutating_schema(path, self._schemas)
            targets = [] if schema is None else list(written_by(node.call, schema))
            if schema is None and not node.call.startswith(_OF_TORCH):
                tensors = [x for x in node.reads if _SHAPE.match(self._type(x))]
                is_all = node.name in self._graph.updates  # it is called for what it writes
                places = self._places.get(path, ())
                targets = [x for i, x in enumerate(tensors) if is_all or i in places]
            node = self._renamed(node)
            if (base := self._base(node.name)) != node.name:
                self._views.setdefault(base, []).append(node.name)
            if node.item is not None and (written := self._results.get(node.reads[0])):
                node = replace(node, item=node.item + written)
            if targets and all(targets):
                self._write(node, targets, number)
            else:
                self._nodes |= {made.name: made for made in _with_sum(node)}
        given = (*self._graph.inputs, *sorted(self._graph.attributes))
        finals = {x: self._now[x] for x in given if x in self._now}
        outputs = tuple(map(self._named, self._graph.outputs))
        return replace(self._graph, nodes=self._nodes, outputs=outputs, finals=finals)

    def _named(self, name: str) -> str:
        name = self._same.get(name, name)
        return self._now.get(name, name)

    def _renamed(self, node: FxNode) -> FxNode:
        return node.reading({x: self._named(x) for x in node.reads})

    def _write(self, node: FxNode, targets: list[str], number: int) -> None:
        """Add a call that writes `targets`, and the values that these have afterwards."""
        if node.call.startswith("aten.") and node.operator.endswith("_") and len(targets) == 1:
            # It is evaluated as the operator without `_`, which returns what this one writes.
            kind = self._type(targets[0])
            copied = _COPIED.match(node.call)
            shape = _SHAPE.match(kind)
            if copied and shape and self._type(copied[1]).startswith(shape[0]):
                node = FxNode(node.name, "alias", (copied[1],), node.place)
            self._nodes[node.name] = replace(node, type=kind)
            self._same[node.name] = self._same.get(targets[0], targets[0])
            self._changed(targets[0], node.name, node, number)
            return
        name, is_read = node.name, self._last.get(node.name, -1) > number
        if is_read and node.type:  # it returns one tensor
            name = f"{node.name}_call"
            item = FxNode(node.name, "getitem", (name,), node.place, len(targets), type=node.type)
            self._nodes[name] = replace(node, name=name, type="")
            self._nodes[node.name] = item
        else:
            self._nodes[name] = node
            self._results[name] = len(targets)
        for place, target in enumerate(targets):
            after = self._after(target, node)
            kind = self._type(target)
            self._nodes[after] = FxNode(after, "getitem", (name,), node.place, place, type=kind)
            self._changed(target, after, node, number)

    def _changed(self, target: str, after: str, node: FxNode, number: int) -> None:
        """A name has another value, in the node `after`; so have its base and the views of it."""
        target = self._same.get(target, target)
        base = self._base(target)
        whole = after
        if base != target:
            whole, kind = self._after(base, node), self._type(base)
            reads = (self._named(base), after, target)
            call = f"{THROUGH}({', '.join(reads)})"
            self._nodes[whole] = FxNode(whole, THROUGH, reads, node.place, None, call, kind)
        self._now |= {base: whole, target: after}
        for view in self._views.get(base, ()):
            if view == target or self._last.get(view, -1) <= number:
                continue
            again = self._renamed(self._graph.nodes[view])
            again = replace(again, name=self._after(view, node))
            self._nodes[again.name] = again
            self._now[view] = again.name

    def _after(self, name: str, node: FxNode) -> str:
        """A name for a value behind a call, which may write two views of one base."""
        after = f"{name}_after_{node.name}"
        while after in self._nodes:
            after += "_"
        return after

    def _base(self, name: str) -> str:
        base = self._graph.base(name)
        return self._same.get(base, base)

    def _type(self, name: str) -> str:
        known = self._nodes.get(name)
        return known.type if known is not None else self._graph.type_of(name)


def _with_sum(node: FxNode) -> tuple[FxNode, ...]:
    """A node; a mean as its sum, of at least float32, and the mean of that: where other kernels
    read a mean, Inductor lets one kernel sum up, and these divide."""
    mean = _MEAN.match(node.call)
    if mean is None or not node.type or len(node.reads) != 1:
        return (node,)
    overload = "dim_IntList" if mean[1] == "dim" else "default"
    call = f"aten.sum.{overload}({node.call[mean.end() :]}"
    kind = _HALF.sub("f32[", node.type)
    total = FxNode(f"{node.name}_sum", "sum", node.reads, node.place, None, call, kind)
    return total, replace(node, operator=MEAN, reads=(total.name,))


def mutating_schema(path: str, known: Mapping[str, str]) -> Any:
    """The schema of an operator that writes its arguments; `None` of others."""
    try:
        text = known.get(path)
        schema = operands.schema_of(text) if text else _registered(path)
    except (UncheckedError, RuntimeError):
        return None
    return schema if schema is not None and schema.is_mutable else None


@cache
def _registered(path: str) -> Any:
    """The schema of an operator as it stands in the text of a graph."""
    space, _, name = path.partition(".")
    if space != "aten":
        return operator_named(path.split("."))._schema if name else None
    name = name.partition(".")[0]
    if not name.endswith("_") and path not in mutating_operators():
        return None  # most need not be looked up
    return operator_named(path.split("."), in_place=True)._schema


def written_by(call: str, schema: Any) -> Iterator[str]:
    """The arguments that a call writes, in the order of the schema; empty for what is no name."""
    try:
        given = bound(call, schema)
    except UncheckedError:
        yield ""
        return
    for argument in filter(is_written, schema.arguments):
        value = given[argument.name]
        for member in value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]:
            if not (isinstance(member, ast.Constant) and member.value in (None, ...)):
                yield member.id if isinstance(member, ast.Name) else ""
