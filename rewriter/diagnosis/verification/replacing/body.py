"""Lines of Python that compute nodes of a graph by torch's operators."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rewriter.diagnosis.verification.evaluate import MEAN, THROUGH
from rewriter.diagnosis.verification.functional import mutating_schema, written_by
from rewriter.diagnosis.verification.graph_types import TensorType, tensor_type
from rewriter.model_names.graph import ATTRIBUTE, FxGraph, FxNode

INSIDE = ("higher_order.", "self.")
_OPERATOR = re.compile(r"[a-z_]\w*\.\w+\.\w+\(")
_DRAWN = re.compile(r"(?:^|_)(?:rand\w*|bernoulli|dropout|multinomial|normal|uniform|exponential"
                    r"|inductor_\w*seeds?|inductor_rand\w*|\w*philox\w*)(?:_|$)")  # fmt: skip
_NARROW = re.compile(r"\btorch\.(?:float16|bfloat16|float32|float8_\w+)\b")
_OF_TORCH = ("aten.", "prims.")
_IMPORTED = re.compile(r"(?<![\w.'])(device(?=\()|inf\b|nan\b)")


class NoBodyError(Exception):
    """A node cannot be computed from what is known; the message says why."""


def type_of(graph: FxGraph, name: str) -> TensorType | None:
    """The type of a node or an input, as far as its text says it."""
    return tensor_type(graph.type_of(name), {})


def sizes_of(graph: FxGraph, name: str) -> tuple[str, ...] | None:
    """The sizes of a node or an input as they stand in the graph, without spaces."""
    inside, closed, _ = graph.type_of(name).partition("[")[2].partition("]")
    if not closed or type_of(graph, name) is None:
        return None
    return _extents(inside)


def strides_of(graph: FxGraph, name: str) -> tuple[str, ...]:
    """Its strides; empty if the graph does not say them."""
    return _extents(graph.type_of(name).partition("][")[2].partition("]")[0])


def _extents(text: str) -> tuple[str, ...]:
    return tuple(part.replace(" ", "") for part in text.split(",") if part.strip())


@dataclass
class Body:
    """Computes nodes from `known` ones. `precise`: in float64, whatever the types of the graph.

    `schemas` are those of operators that only the program registers.
    """

    graph: FxGraph
    known: Collection[str]
    schemas: Mapping[str, str]
    precise: bool = False
    used: dict[str, None] = field(default_factory=dict, init=False)  # of `known`

    def lines(self, wanted: Sequence[str]) -> list[str]:
        """The statements that compute some nodes. Raises `NoBodyError`."""
        needed: set[str] = set()
        waiting = [*wanted]
        while waiting:
            name = waiting.pop()
            if name in self.known:
                self.used[name] = None
            elif name not in needed:
                needed.add(name)
                waiting += self._reads(name)
        found = [y for x in self.graph.nodes.values() if x.name in needed for y in self._of(x)]
        if self.precise:
            found[:0] = [f"{x} = {x}.double()" for x in self.used if self._is_narrow(x)]
        if names := sorted({x[1] for line in found for x in _IMPORTED.finditer(line)}):
            found.insert(0, f"from torch import {', '.join(names)}")
        return found

    def _is_narrow(self, name: str) -> bool:
        kind = type_of(self.graph, name)
        return kind is not None and kind.dtype.is_floating_point and kind.dtype != torch.float64

    def _reads(self, name: str) -> tuple[str, ...]:
        node = self.graph.nodes.get(name)
        if node is None or node.operator == ATTRIBUTE:
            raise NoBodyError(f"what it writes needs {name}, which it is not given")
        if node.call.startswith(INSIDE):
            raise NoBodyError(f"{name} is computed by a graph or a kernel inside of the graph")
        if _DRAWN.search(node.operator):
            raise NoBodyError(f"{name} draws random numbers")
        if node.operator == MEAN and node.reads[0] not in self.known:
            return self.graph.nodes[node.reads[0]].reads
        if node.operator == THROUGH:
            return node.reads[:2]
        return node.reads

    def _of(self, node: FxNode) -> Iterator[str]:
        """The statements of one node."""
        if node.operator == MEAN and node.reads[0] in self.known:
            yield f"{node.name} = {self._mean(node)}"
        elif node.operator == THROUGH:
            yield from self._written_through(node)
        elif node.item is not None:
            yield f"{node.name} = {node.reads[0]}[{node.item}]"
        elif node.operator == "alias" and not node.call:
            yield f"{node.name} = {node.reads[0]}"
        elif not _OPERATOR.match(node.call):
            yield f"{node.name} = {node.call}"  # arithmetic of sizes
        else:
            yield from self._called(node)

    def _called(self, node: FxNode) -> Iterator[str]:
        path = node.call.partition("(")[0]
        call = self._call(node)
        schema = mutating_schema(path, self.schemas)
        if schema is None:
            items = self.graph.items(node.name).values()
            if any(x.endswith(f"_after_{node.name}") for x in items):
                raise NoBodyError(f"which arguments {path} writes is not known here")
            yield f"{node.name} = torch.ops.{call}"
            return
        given = list(written_by(node.call, schema))
        if not all(given):
            raise NoBodyError(f"which arguments {path} writes cannot be told")
        copies = {name: f"{name}_of_{node.name}" for name in dict.fromkeys(given)}
        for name, copy in copies.items():
            yield f"{copy} = {name}.clone()"
        yield f"{node.name} = torch.ops.{self._call(node.reading(copies))}"
        if not (path.startswith("aten.") and len(given) == 1):  # that returns what it wrote
            results = f"{node.name} if isinstance({node.name}, tuple) else ({node.name},)"
            yield f"{node.name} = ({', '.join(copies[x] for x in given)}, *({results}))"

    def _call(self, node: FxNode) -> str:
        if not self.precise:
            return node.call
        if node.call.startswith(_OF_TORCH):
            return _NARROW.sub("torch.float64", node.call)
        narrow = {x: type_of(self.graph, x) for x in node.reads if self._is_narrow(x)}
        own = {x: f"{x}.to({kind.dtype})" for x, kind in narrow.items() if kind is not None}
        return node.reading(own).call

    def _mean(self, node: FxNode) -> str:
        """A mean of the sum that an earlier launch left."""
        (total,) = node.reads
        kind = type_of(self.graph, node.name)
        whole = type_of(self.graph, self.graph.nodes[total].reads[0])
        if kind is None or whole is None or not kind.numel or whole.numel is None:
            raise NoBodyError(f"of how many elements {node.name} is the mean is not known")
        dtype = torch.float64 if self.precise else kind.dtype
        return f"({total} / {whole.numel // kind.numel}).to({dtype})"

    def _written_through(self, node: FxNode) -> Iterator[str]:
        """A base once the elements that a view has of it are those of another value."""
        base, value, view = node.reads
        chain: list[FxNode] = []
        while (step := self.graph.nodes.get(view)) is not None and view != self.graph.base(view):
            if not step.is_view or step.item is not None:
                raise NoBodyError(f"{node.name} is written through {step.name}")
            chain.append(step)
            view = step.reads[0]
        yield f"{node.name} = {base}.clone()"
        inside = node.name
        for step in reversed(chain):
            again = f"{step.name}_of_{node.name}"
            yield f"{again} = torch.ops.{self._call(step.reading({step.reads[0]: inside}))}"
            inside = again
        yield f"{inside}.copy_({value})"
