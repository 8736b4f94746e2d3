"""Checks launches of a Triton kernel against the fragment of the graph in the comment above it.

The fragment has the names of the launch that Inductor compiled the kernel for, and other launches
use the same kernel. So arguments are matched by their order: pointers are declared in the order in
which the kernel first reads them, which is that of the placeholders. Only a pointer that is updated
in place comes first, wherever its placeholder is. If several ways of matching are possible, the
values decide.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import torch

from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import NARROW, Bounded, UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator, run
from rewriter.diagnosis.verification.graph_types import (
    bias_of_convolution,
    named_sizes,
    tensor_type,
)
from rewriter.diagnosis.verification.judge import compare_recorded
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.types import Checked, Comparison
from rewriter.dump.rows import TensorRow
from rewriter.locate.operators import is_torchs
from rewriter.locate.types import Argument
from rewriter.model_names.fragment import BEFORE, updated_in_place, with_items
from rewriter.model_names.graph import FxGraph, FxNode

_PART = re.compile(r"buf\d+")
_GIVEN = re.compile(r"(?:buf|arg|primals_|tangents_)\d+(?:_\d+)?")  # as wrappers name values
_FLEX = "flex_attention"
_NUMBER = "_local_scalar_dense"
_UNBACKED = re.compile(r"u\d+")
_PARTS = {"unbind", "split", "split_with_sizes", "chunk"}
_MOST = 24  # ways of matching that are tried
_Pairs = tuple[tuple[str, Argument], ...]


class NoneAgreesError(UncheckedError):
    """A buffer agrees with no candidate, but it may be a value that has no name in the fragment."""


def check_fragment(
    graph: FxGraph, values: LaunchValues, sizes: Mapping[str, int] = MappingProxyType({})
) -> list[Checked]:
    """Check what a launch wrote. `sizes` are those that its call was given as numbers. Raises
    `UncheckedError` if the fragment does not say enough."""
    fragment = _Fragment(with_items(updated_in_place(graph)), values, sizes)
    tried: list[list[Checked]] = []
    problem = UncheckedError("its arguments do not fit what the fragment reads")
    for pairs in itertools.islice(fragment.matchings(), _MOST):
        try:
            found = fragment.results(pairs)
        except UncheckedError as error:
            problem = error
            continue
        tried.append(found)
        if all(checked.agrees for checked in found):
            break
    if not tried:
        flex = [x.operator for x in graph.nodes.values() if x.operator.startswith(_FLEX)]
        if flex:
            problem = type(problem)(f"the functions of {flex[0]} are not in the text")
        raise problem
    return min(tried, key=lambda found: sum(not checked.agrees for checked in found))


class _Fragment:
    def __init__(self, graph: FxGraph, values: LaunchValues, sizes: Mapping[str, int]) -> None:
        self._graph, self._values, self._sizes = graph, values, sizes
        self._given, self._written = values.given, values.written
        # Results of the kernel that it also reads are no placeholders.
        copies = [x for x in graph.nodes.values() if x.operator == "copy_"]
        # The nodes that are copied into inputs, by the input's name in the call.
        self._copies = {x.reads[0]: x.reads[1] for x in copies if len(x.reads) == 2}
        own = {*graph.outputs, *(x.name for x in copies)}
        self._read = [x for x in graph.types if x not in own]
        reads = dict.fromkeys(x for node in graph.nodes.values() for x in node.reads)
        self._reads = reads.keys()
        self._open = reads.keys() - graph.nodes.keys() - graph.types.keys()
        # Sizes that the program read from a tensor: `u1 = buf6.item()`.
        items = sorted(x for x in self._open if x.startswith(_NUMBER))
        made = [n for x, n in values.numbers.items() if _UNBACKED.fullmatch(x)]
        self._numbers = dict(zip(items, made, strict=True)) if len(items) == len(made) else {}
        self._updated: dict[str, str] = {}  # the nodes of buffers that the kernel updates
        # A buffer that is no node: what an earlier kernel computed a part of the nodes to, such as
        # half of a variance, of values that it had not rounded yet.
        self._has_part = any(_PART.fullmatch(x) and x not in reads for x in self._read)
        # Before torch 2.9, fragments have no placeholders, no types and no return value.
        self._is_bare = not graph.types and not graph.outputs
        if self._is_bare:
            self._read = [x for x in reads if x in self._open]
        # Results that are no node, and whether they have the names of this launch.
        self._extra = [x for x in graph.outputs if _PART.fullmatch(x)]
        tensors = {x.name: x for x in values.launch.args}  # also one that is passed as a number
        named = [x for x in self._read if _GIVEN.fullmatch(x)]
        self._is_own = set(named) <= {y for x in tensors.values() for y in (x.name, x.buffer)}
        self._in = [x for x in tensors.values() if x.role == "in" and x.name in self._given]
        self._inout = [x for x in tensors.values() if x.role == "inout" and x.name in self._given]
        self._out = [x for x in tensors.values() if x.role != "in" and x.name in self._written]

    def matchings(self) -> Iterator[_Pairs]:
        """The ways to match placeholders with arguments, the likeliest first."""

        def fits(pairs: _Pairs) -> bool:
            kinds = ((tensor_type(types.get(name, ""), {}), x.name) for name, x in pairs)
            return all(kind is None or kind.fits(self._given[x]) for kind, x in kinds)

        ways: list[tuple[int, _Pairs]] = []
        given, types = self._in, self._graph.types
        if len(self._read) < len(given):
            given = [x for x in given if x.buffer in self._read or x.buffer not in self._open]
        kept = itertools.combinations(range(len(self._read)), len(given))
        for chosen in itertools.islice(kept, 4096):
            names = [self._read[number] for number in chosen]
            pairs = tuple(zip(names, given, strict=True))
            if not fits(pairs):
                continue
            rest = [text for text in self._read if text not in names]
            for inout in itertools.permutations(self._inout, min(len(rest), len(self._inout))):
                for places in itertools.combinations(rest, len(inout)):
                    more = tuple(zip(places, inout, strict=True))
                    if fits(more):
                        named = sum(name == x.buffer for name, x in (*pairs, *more))
                        ways.append((-named, (*pairs, *more)))
        ways.sort(key=lambda way: way[0])
        yield from (pairs for _, pairs in ways)

    def results(self, pairs: _Pairs) -> list[Checked]:
        """Compare what the launch wrote with what the fragment computes, for one matching."""
        sizes = dict(self._numbers)
        for name, argument in pairs:
            shape = self._given[argument.name].shape
            sizes |= named_sizes(self._graph.types.get(name, ""), shape)
        # A kernel that is used again may be given other sizes than those that its fragment names.
        if self._is_own and all(self._sizes.get(x, size) == size for x, size in sizes.items()):
            sizes = {**self._sizes, **sizes}
        known: dict[str, Bounded] = {}
        for name, argument in pairs:
            row = self._given[argument.name]
            kind = tensor_type(self._graph.types.get(name, ""), sizes)
            tensor = self._values.load(row)
            value = exact(received.layouts(tensor, row, kind)[0])
            known[name] = _before_rounding(value) if self._has_part else value
        self._updated = {
            argument.name: name.removesuffix(BEFORE)
            for name, argument in pairs
            if name.endswith(BEFORE)
        }
        for argument in (*self._in, *self._inout):  # named like an input of the call
            if argument.buffer in self._open and argument.buffer not in known:
                row = self._given[argument.name]
                known[argument.buffer] = exact(self._values.load(row))
        known |= self._unnamed(known)
        found: list[Checked] = []
        for link in self._links(known, sizes):
            found = self._results_of(Evaluator(self._graph, known | link, sizes), known)
            if all(checked.agrees for checked in found):
                break
        return found

    def _links(
        self, known: Mapping[str, Bounded], sizes: Mapping[str, int]
    ) -> Iterator[dict[str, Bounded]]:
        """Candidate values for a name that the fragment reads and does not define. Fragments leave
        views out, so it may be any part of a split tensor. `{}` if there is no such name."""
        given = {*known, *self._graph.nodes, *self._graph.types}
        missing = [x for x in self._open if x not in given and x not in self._numbers]
        parts = [x.name for x in self._graph.nodes.values()
                 if x.operator in _PARTS and x.name not in self._reads]  # fmt: skip
        if len(missing) == 1 and len(parts) == 1:
            evaluator = Evaluator(self._graph, known, sizes)
            yield from ({missing[0]: value} for value in evaluator.value(parts[0]))
        else:
            yield {}

    def _results_of(self, evaluator: Evaluator, known: Mapping[str, Bounded]) -> list[Checked]:
        # Without outputs, all nodes: first those that no other node reads.
        names = list(dict.fromkeys(self._graph.outputs))
        names = names or sorted(self._graph.nodes, key=lambda name: name in self._reads)
        ordered = self._in_order(evaluator, names)
        if ordered and all(checked.agrees for checked in ordered):
            return ordered
        found = self._searched(evaluator, names, known)
        return ordered if ordered and not all(checked.agrees for checked in found) else found

    def _in_order(self, evaluator: Evaluator, names: Sequence[str]) -> list[Checked]:
        """Compare each result with its own node: kernels store them in the order in which the
        fragment returns them. Empty if it does not say what each of them is."""
        if len(names) != len(self._out) or not set(names) <= evaluator.computable():
            return []
        found = []
        for name, argument in zip(names, self._out, strict=True):
            row = self._written[argument.name]
            if name not in self._graph.nodes or argument.role == "inout":
                return []
            comparison = self._compare(evaluator, name, self._values.load(row), row)
            if comparison is None:
                return []
            found.append(Checked(argument.name, self._graph.statement(name), comparison))
        return found

    def _searched(
        self, evaluator: Evaluator, names: list[str], known: Mapping[str, Bounded]
    ) -> list[Checked]:
        """Find out which node each result is, by the values."""
        computable = evaluator.computable()
        found: list[Checked] = []
        waiting: list[Argument] = []
        for argument in self._out:
            row = self._written[argument.name]
            name = self._updated.get(argument.name, "")
            copied = self._copies.get(argument.buffer, "")
            if argument.role == "inout" and copied in computable:
                kind = evaluator.type_of(copied)
                name = copied if kind is None or kind.fits(row) else name
            if not name:
                waiting.append(argument)
                continue
            # A buffer that the kernel updates, or an input that it changes, can only be this node.
            comparison = self._compare(evaluator, name, self._values.load(row), row)
            if comparison is None:
                raise UncheckedError(f"{argument.name} is no {name} of the fragment")
            found.append(Checked(argument.name, self._graph.statement(name), comparison))
        # Those that agree take their names first, nodes before buffers that may be any of them:
        # another result is then none of these.
        names.sort(key=lambda name: name not in self._graph.nodes)
        for last in (False, True):
            for argument in list(waiting):
                try:
                    name, meant, comparison = self._best(evaluator, names, argument, known)
                except NoneAgreesError:
                    if last:
                        raise
                    continue
                if not (last or comparison.agrees):
                    continue
                waiting.remove(argument)
                if name in names:
                    names.remove(name)
                name = meant if name in self._graph.nodes else name
                found.append(Checked(argument.name, self._graph.statement(name), comparison))
        if not found:
            raise UncheckedError("what it wrote was not saved")
        return found

    def _best(
        self,
        evaluator: Evaluator,
        names: list[str],
        argument: Argument,
        known: Mapping[str, Bounded],
    ) -> tuple[str, str, Comparison]:
        """The result that an argument is, the node whose value it has, and how it differs: the
        first candidate that agrees, or else the last one that is possible."""
        row = self._written[argument.name]
        got = self._values.load(row)
        computable = evaluator.computable()
        last: tuple[str, Comparison] | None = None
        tried: list[tuple[str, Comparison]] = []
        problem = UncheckedError(f"{argument.name} is no result of the fragment")
        # The name of a buffer, or of a node that several kernels compute together, may be any node
        # that this kernel can compute.
        nodes = self._graph.nodes
        every = [x for x in nodes if x in computable]
        if all(nodes[x].is_view for x in every):  # a kernel that only copies its input
            every += known
        for name in names:
            for text in [name] if name in self._graph.nodes and name in computable else every:
                try:
                    comparison = self._compare(evaluator, text, got, row)
                except UncheckedError as error:
                    problem = error
                    continue
                if comparison is not None and comparison.agrees:
                    return name, text, comparison
                # A buffer without its own node may be any value, so it is only noted as tried.
                if comparison is not None:
                    tried.append((text, comparison))
                    last = (name, comparison) if text == name else last
        is_copy = computable >= nodes.keys() and not self._is_bare
        if len(tried) == 1 and tried[0][0] in known and is_copy:
            return tried[0][0], *tried[0]
        if last is None or self._is_bare or self._may_be_unnamed(argument, row):
            if not tried:
                raise problem
            names = list(dict.fromkeys(name for name, _ in tried))
            raise NoneAgreesError(f"{argument.name} is not {', '.join(names)}")
        return last[0], *last

    def _may_be_unnamed(self, argument: Argument, row: TensorRow) -> bool:
        """Whether a result may be one that the fragment has no node for, as what flex attention
        computes before its backward template. The fragment has the names of another launch where
        the kernel is used again."""
        if self._is_own:
            return argument.name in self._extra
        kinds = [tensor_type(self._graph.types.get(x, ""), {}) for x in self._extra]
        return any(kind is None or kind.fits(row) for kind in kinds)

    def _compare(
        self, evaluator: Evaluator, name: str, got: torch.Tensor, row: TensorRow
    ) -> Comparison | None:
        kind = evaluator.type_of(name)
        if kind is not None and not kind.fits(row):
            return None
        expected = evaluator.value(name)
        if not isinstance(expected, Bounded) or expected.value.numel() != got.numel():
            return None
        return compare_recorded(got, row, expected, kind)

    def _unnamed(self, known: Mapping[str, Bounded]) -> dict[str, Bounded]:
        """Nodes that the fragment reads, if the kernel gets their value in a buffer of another
        name: from an earlier launch, or from a library, whose convolution leaves the bias out."""
        spare = [x for x in known if x not in self._reads]
        found: dict[str, Bounded] = {}
        # What a kernel computes is torch's; other calls are there for what the kernel prepares.
        nodes = [x for x in self._graph.nodes.values() if is_torchs(x.call)]
        missing = [
            x for x in dict.fromkeys(y for node in nodes for y in node.reads)
            if x not in known and x not in self._graph.nodes and x not in self._numbers
        ]  # fmt: skip
        for node in self._graph.nodes.values():
            if node.operator != "convolution" or set(node.reads[:2]) <= set(known):
                continue
            kind = tensor_type(node.type, {})
            same = [x for x in spare if kind and known[x].value.numel() == kind.numel]
            if len(same) != 1:
                continue
            value = known[same[0]]
            if name := bias_of_convolution(node.call):
                bias = _bias_of(name, node, known, spare)
                if bias is None:
                    continue
                shape = [1, -1] + [1] * (value.value.ndim - 2)
                shaped = bias.moved(partial(torch.reshape, shape=shape))
                value = run(torch.ops.aten.add.Tensor, (value, shaped), {}, value.dtype)
            spare.remove(same[0])
            found[node.name] = value
            missing = [x for x in missing if x not in node.reads]
        if len(missing) == len(spare):
            found |= {name: known[x] for name, x in zip(missing, spare, strict=True)}
        return found


def _bias_of(
    name: str, node: FxNode, known: Mapping[str, Bounded], spare: list[str]
) -> Bounded | None:
    """The bias of a convolution that a library has left out: by its name, or the one received
    value of its size; `None` if it is not known."""
    if name in known:
        return known[name]
    kind = tensor_type(node.type, {})
    channels = kind.shape[1] if kind is not None and len(kind.shape) > 1 else None
    same = [x for x in spare if tuple(known[x].value.shape) == (channels,)]
    if len(same) != 1:
        return None
    spare.remove(same[0])
    return known[same[0]]


def _before_rounding(x: Bounded) -> Bounded:
    """A received value, as far as it is known before it was rounded to its type."""
    if x.dtype not in NARROW:
        return x
    facts = torch.finfo(x.dtype)
    return replace(x, error=x.value.abs() * facts.eps / 2 + facts.smallest_normal * facts.eps)
