"""Checks launches against the graph that their wrapper was compiled from.

A wrapper does not say which node of the graph a buffer holds. For some buffers, the data flow does:
inputs, outputs, calls of operators and what is between them (`model_names/attribution.py`). For
the others, values decide: of the nodes that a launch can compute from what it received, those that
agree with what it wrote. A buffer that matches no node is an intermediate value, such as half of a
sum. A launch that reads it is then checked together with its producer, from what that received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import torch

from rewriter.diagnosis.verification import calls, functional, readings, received
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.graph_types import bias_of_convolution
from rewriter.diagnosis.verification.held_values import Held, HeldValues
from rewriter.diagnosis.verification.judge import compare, compare_node, value_of
from rewriter.diagnosis.verification.operators.operands import names
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.types import Checked, Comparison, Route, node_of
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch, by_item
from rewriter.model_names.attribution import called, is_fused
from rewriter.model_names.graph import FxGraph, FxNode

# Operators that Inductor calls from a library, unless a kernel's name contains them.
HEAVY = names(
    "mm bmm addmm baddbmm convolution convolution_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _linear_pointwise _convolution_pointwise linear sort topk "
    "_fft_c2c _embedding_bag triton_kernel_wrapper_functional auto_functionalized "
)
_SHARP = 0.25  # a bound, relative to the largest element, for a value to be told from others
_MANY = 0.5  # the share of elements that has to be so
_MOST = 48  # nodes that are tried for one buffer


@dataclass
class GraphOutcome:
    """The check of one launch. `unknown` are buffers that it wrote and that match no node, `group`
    are other launches whose inputs were used."""

    results: list[Checked] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    group: tuple[int, ...] = ()
    route: Route = "graph"


@dataclass
class WholeGraph:
    """Follows one call of a function of a wrapper through the launches of that function, in the
    order in which they ran."""

    _graph: FxGraph
    _launches: Sequence[Launch]
    _claims: Mapping[tuple[str, int], str]
    _run: RunDump
    _inputs: Mapping[str, TensorRow]
    _sizes: Mapping[str, int]
    _names: Mapping[str, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set, init=False)
    _last: int = field(default=-1, init=False)  # the launch that was checked last
    # What the launches called whose results are not known: any node of these may be theirs.
    _missed: set[str] = field(default_factory=set, init=False)
    # The operators of which a launch may be another node than those that it took.
    _shared: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._types = Evaluator(self._graph, {}, self._sizes)
        self._held = HeldValues(
            self._graph, self._run, self._inputs, self._sizes, self._names, self._types
        )
        # The nodes that call operators which are not registered here, with these.
        paths = ((x.name, x.call.partition("(")[0]) for x in self._graph.nodes.values())
        self._own = {x: path for x, path in paths if calls.is_unregistered(path)}

    def check(self, values: LaunchValues) -> GraphOutcome:
        """Check a launch, and remember which nodes its results are."""
        launch = values.launch
        self._forget_until(launch)
        if calls.is_unregistered(launch.kernel.removeprefix("torch.ops.")):
            return self._check_given(values)
        known, borrowed, group = self._held.known(launch, values.given)
        is_call = not is_fused(launch)
        outcome = GraphOutcome(group=group)
        evaluator = Evaluator(self._graph, known, self._sizes)
        forbidden = frozenset(x for x in HEAVY if x not in launch.kernel)
        computable = evaluator.computable(frozenset() if is_call else forbidden)
        found: dict[str, tuple[str, ...]] = {}
        problem: UncheckedError | None = None
        for name, argument in values.results.items():
            row = values.written[name]
            claim = self._claim(argument, launch)
            candidates = self._candidates(launch, row, computable - known.keys(), is_call=is_call)
            checked: Checked | None = None
            try:
                got = values.load(row)
                is_claim = claim in computable and self._fits(claim, row)
                judge = self._as_claimed if is_claim else self._by_values
                nodes, checked = judge(evaluator, claim, candidates, got, row)
                if checked is not None and nodes == (claim,) and launch.kind == "cpp":
                    checked = self._sharper(checked, known, claim, got, row)
            except UncheckedError as error:
                problem, nodes = problem or error, (claim,) if claim else ()
                drawn = self._graph.nodes.get(claim)
                if drawn and drawn.operator == "inductor_seeds" and self._fits(claim, row):
                    checked = Checked(row.arg, drawn.statement, calls.as_recorded(row.size))
                    outcome.route = "arguments"
            if checked is None and is_call and problem is None and argument.role == "out":
                with suppress(UncheckedError):
                    checked = self._by_others(claim, row, values)
                if checked is not None:
                    nodes = (node_of(checked.claim),)
                    outcome.route = outcome.route if checked.agrees else "arguments"
            if not nodes and is_call:  # calls of one operator come in the order of the graph
                held = self._held.by(argument)
                before = held.nodes if held is not None else ()
                in_order = () if called(launch) & self._missed else tuple(candidates[:1])
                nodes = before if argument.role == "inout" else in_order
            # A library may convolve without the bias of the node, which a kernel adds later.
            read = [x for x in launch.tensors if x.role != "out"]
            text = (self._graph.nodes[x].call for x in nodes if x in self._graph.nodes)
            if is_call and len(read) == 2 and any(map(bias_of_convolution, text)):
                nodes, checked = (), None
            found[name] = nodes
            if checked is not None:
                outcome.results.append(checked)
            else:
                outcome.unknown.append(name)
        for name, argument in values.results.items():
            nodes, row = found[name], values.written[name]
            self._taken.update(nodes)
            is_guess = name in outcome.unknown or outcome.route == "arguments"
            if len(nodes) > 1 or is_guess:  # another launch may be the one of these
                own = (self._graph.nodes[x] for x in nodes if x in self._graph.nodes)
                sources = (self._graph.call_of(x) for x in own)
                self._shared |= {x.operator for x in sources if x is not None}
            view = self._view(nodes, row, evaluator) if nodes else ""
            is_checked = name not in outcome.unknown
            agrees = any(x.arg == row.arg and x.agrees for x in outcome.results)
            given = {} if nodes else dict(known)
            held = Held(nodes, view, row, launch.index, given, group, is_checked, agrees)
            self._held.hold(argument, held)
        if problem is not None and not outcome.results:
            raise problem
        wrong = [node_of(x.claim) for x in outcome.results if not x.agrees]
        above = (self._graph.ancestors(x, lambda name: name not in known) for x in wrong)
        if wrong and borrowed.isdisjoint(chain(*above)):
            outcome.group = ()  # whatever these launches left, what is wrong is not made of it
        return outcome

    def _forget_until(self, launch: Launch) -> None:
        """Forget what is in the results of the launches before one that were not recorded, or not
        in full: what earlier launches left in them is not there any more."""
        before = [x for x in self._launches if self._last <= x.index < launch.index]
        self._last = launch.index
        for other in before:
            is_known = other.index in self._run.table  # then the roles are as recorded
            for argument in other.may_write:
                held = self._held.by(argument)
                is_read = is_known and argument.role == "in"
                if not is_read and (held is None or held.made != other.index):
                    self._held.hold(argument, Held((), "", None, other.index))
                    self._missed |= {other.kernel.removeprefix("torch.ops."), *called(other)}

    def _check_given(self, values: LaunchValues) -> GraphOutcome:
        """Check a call of an operator that is not registered here by its arguments: it is a call of
        the first node whose arguments they are. Its results are what they were recorded as."""
        launch = values.launch
        path = launch.kernel.removeprefix("torch.ops.")
        claims = {self._claim(x, launch) for x in values.results.values()}
        if any(map(calls.is_unregistered, self._missed)):
            raise UncheckedError(
                "a call before it, which was not recorded, may be of the same node"
            )
        waiting = self._own.keys() - self._taken  # their launches come later
        called = [x for x in self._graph.nodes.values() if self._own.get(x.name) == path]
        nodes = [
            x for x in called if x.name in waiting and not waiting & self._graph.ancestors(x.name)
        ]
        nodes.sort(key=lambda x: not claims & {x.name, *self._graph.items(x.name).values()})
        problem = None if nodes else UncheckedError(f"no node of the graph is a call of {path}")
        found: list[tuple[FxNode, list[Checked]]] = []
        for node in nodes:
            try:
                found.append((node, self._compare_given(node, values)))
            except UncheckedError as error:
                problem = problem or error
                continue
            if all(x.agrees for x in found[-1][1]):
                found, problem = found[-1:], None
                break
        if problem is not None:  # the results are those of the likeliest node nevertheless
            self._hold_results(values, nodes[0].name if nodes else "", is_checked=False)
            raise problem
        node, checked = min(found, key=lambda x: sum(not y.agrees for y in x[1]))
        checked += self._hold_results(values, node.name, is_checked=True)
        return GraphOutcome(checked, route="arguments")

    def _hold_results(self, values: LaunchValues, node: str, *, is_checked: bool) -> list[Checked]:
        """Note which nodes the results of a call are, which are taken as they were recorded."""
        self._taken.add(node)
        items = self._graph.items(node)
        placed = by_item([*values.results.values()])
        given = [x.name for x in values.launch.tensors if x.role != "out"]
        if any(given.count(x.name) > 1 for x in placed.values()):
            placed = {}  # which of two parameters it is written as is not known
        found = []
        for place, argument in placed.items():
            name = items.get(place, "") if items else node
            row = values.written[argument.name]
            nodes, made = (name,) if name else (), values.launch.index
            held = Held(nodes, name, row, made, is_checked=is_checked, agrees=is_checked)
            self._held.hold(argument, held)
            if name and self._fits(name, row):
                recorded = calls.as_recorded(row.size)
                found.append(Checked(row.arg, self._graph.statement(name), recorded))
        return found

    def _compare_given(self, node: FxNode, values: LaunchValues) -> list[Checked]:
        """Compare the arguments of a launch with those of a node."""
        schema = functional.schema_of(self._run, values.launch.kernel.removeprefix("torch.ops."))
        if schema is None:
            raise UncheckedError(f"the schema of {values.launch.kernel} was not recorded")
        known = self._held.established(node, values)
        found = calls.check(node, schema, values, known, self._sizes)
        if all(x.agrees for x in found):
            return found
        # Another kernel may have computed the same once more, and rounded it otherwise.
        own = frozenset(text for x in node.reads for text in (x, self._graph.base(x)))
        try:
            known = self._held.established(node, values, own)
            again = calls.check(node, schema, values, known, self._sizes)
        except UncheckedError:
            return found
        return again if all(x.agrees for x in again) else found

    def _by_others(self, claim: str, row: TensorRow, values: LaunchValues) -> Checked | None:
        """The check of a result of an operator that is no node computed from what its call was
        given: that may be another tensor. So it is compared with each node of the operator that has
        no launch yet, computed from what earlier launches left. `None` if that shows nothing: a
        value is not known, what it was given may be wrong, or launches and nodes may not be one for
        each other."""
        launch, nodes = values.launch, self._graph.nodes.values()
        own = called(launch)
        number = sum(x.operator in own or x.operator.rstrip("_") in own for x in nodes)
        launches = sum(bool(own & called(x)) for x in self._launches)
        if number != launches or own & (self._missed | self._shared):
            return None
        first: Checked | None = None
        given = [x for x in launch.tensors if x.role != "out"]
        waiting = self._candidates(launch, row, {*self._graph.nodes}, is_call=True)
        if len(waiting) == _MOST:
            return None  # there may be more
        for name in sorted(waiting, key=lambda x: x != claim):
            node = self._graph.call_of(self._graph.nodes[name]) or self._graph.nodes[name]
            if len(given) == 2 and bias_of_convolution(node.call):
                return None  # a kernel adds it later
            evaluator = self._held.established(node, values)
            statement = self._graph.statement(name)
            checked = Checked(
                row.arg, statement, compare_node(values.load(row), row, name, evaluator)
            )
            if checked.comparison.is_unknown:
                return None
            if checked.agrees:
                return checked
            other = f"it is given other values than those of {statement}"
            first = first or Checked.as_a_whole(row.arg, statement, other)
        return first if all(map(self._held.is_right, given)) else None

    def _view(self, nodes: tuple[str, ...], row: TensorRow, evaluator: Evaluator) -> str:
        """Which view of a node a result is; empty if that is not known."""
        members = self._types.held_as(nodes[0], row)
        if len(members) == 1:
            return members[0]
        try:
            got = received.load(self._run, row)
            agreeing = [x for x in members if compare(got, value_of(x, evaluator)).agrees]
        except UncheckedError:
            return ""
        return agreeing[0] if agreeing else ""

    def _claim(self, argument: Argument, launch: Launch) -> str:
        """The node that a buffer should hold by the data flow; empty if that is not known, or is
        no result of the operator that the launch calls."""
        claim = self._claims.get((argument.buffer, launch.index), "")
        if is_fused(launch):
            return claim
        known = self._graph.nodes.get(claim)
        node = None if known is None else self._graph.call_of(known)
        # `scatter_reduce.two` is `scatter_reduce_two` in the C shim.
        start = "" if node is None else node.operator.rstrip("_")
        return claim if node and any(x.startswith(start) for x in called(launch)) else ""

    def _fits(self, name: str, row: TensorRow) -> bool:
        kind = self._types.type_of(name)
        return kind is not None and kind.fits(row)

    def _candidates(
        self, launch: Launch, row: TensorRow, computable: set[str], *, is_call: bool
    ) -> list[str]:
        """The nodes that a buffer may hold, the likeliest first."""
        operators = called(launch)
        found = []
        for node in self._graph.nodes.values():
            if node.name not in computable or node.is_view:
                continue
            source = self._graph.call_of(node)
            if source is None or node.operator == "copy_":
                continue
            is_own = bool(operators & {source.operator, source.operator.rstrip("_")})
            if is_call and (not is_own or node.name in self._taken):
                continue
            if self._fits(node.name, row):
                found.append(node.name)
        used = {name for node in self._graph.nodes.values() for name in node.reads}
        # A kernel writes what others read: prefer the last node of a chain to those inside it.
        found.sort(key=lambda name: name in used)
        return found[:_MOST]

    def _as_claimed(
        self, evaluator: Evaluator, claim: str, candidates: list[str], got: torch.Tensor,
        row: TensorRow,
    ) -> tuple[tuple[str, ...], Checked]:  # fmt: skip
        """The node that a result is, and its check: the claim, unless another node agrees."""
        above = self._graph.ancestors(claim)
        names = [claim, *(x for x in candidates if x != claim and x not in above)]
        tried = ((name, compare_node(got, row, name, evaluator)) for name in names)
        first = next(tried)
        # Anything agrees with what is not initialised, such as `empty`.
        others = (x for x in tried if x[1].agrees and _is_sharp(value_of(x[0], evaluator)))
        name, comparison = first if first[1].agrees else next(others, first)
        return (name,), Checked(row.arg, self._graph.statement(name), comparison)

    def _sharper(
        self, checked: Checked, known: Mapping[str, Bounded], node: str, got: torch.Tensor,
        row: TensorRow,
    ) -> Checked:  # fmt: skip
        """The check of a result that agrees, by both readings of what it is computed from."""
        value = readings.between(self._graph, known, self._sizes, node)
        if value is None or not checked.agrees:
            return checked
        evaluator = Evaluator(self._graph, {**known, node: value}, self._sizes)
        return replace(checked, comparison=compare_node(got, row, node, evaluator))

    def _by_values(
        self, evaluator: Evaluator, claim: str, candidates: list[str], got: torch.Tensor,
        row: TensorRow,
    ) -> tuple[tuple[str, ...], Checked | None]:  # fmt: skip
        """The nodes that a result may be, and its check; `()` and `None` if it matches no node."""
        agreeing: list[tuple[str, Comparison]] = []
        for name in candidates:
            try:
                comparison = compare_node(got, row, name, evaluator)
            except UncheckedError:
                continue
            if comparison.agrees and _is_sharp(value_of(name, evaluator)):
                agreeing.append((name, comparison))
        if not agreeing:
            return ((claim,) if claim else ()), None
        names = tuple(name for name, _ in agreeing)
        return names, Checked(row.arg, self._graph.statement(names[0]), agreeing[0][1])


def _is_sharp(expected: Bounded) -> bool:
    """Whether a value is known well enough to tell it from others: what rounding decides is not."""
    if not expected.value.numel():
        return True
    value = expected.value if expected.value.is_complex() else expected.value.double()
    bound, size = expected.bound(), value.abs().nan_to_num(0.0, 0.0, 0.0)
    return bool((bound <= _SHARP * size.max() + 1e-30).double().mean() > _MANY)
