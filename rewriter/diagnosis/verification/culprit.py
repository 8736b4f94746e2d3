"""Finds the launch that a wrong result of a call comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from rewriter.artifact.given_copies import given_copy
from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.call_results import CallResults, unwritten_places
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.judge import compare_node
from rewriter.diagnosis.verification.types import Checked, Comparison, LaunchCheck, node_of
from rewriter.dump import launched, saved
from rewriter.dump.reading import RunStep
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.model_names.attribution import called
from rewriter.model_names.graph import FxGraph

ByLaunch = Mapping[tuple[int | None, int], LaunchCheck]  # and iteration


class Culprit(NamedTuple):
    """A launch whose result `of` is not the node that it should be, or that is given the wrong
    value `of`. It may be right nevertheless: if `other` made a wrong value that it reads, or if the
    launch behind it is missing that computes `of` from `holds`, the node that it left."""

    check: LaunchCheck
    of: Checked
    other: LaunchCheck | None = None
    holds: str = ""


class CulpritSearch:
    """The search in one call. `evaluator` computes its graph from its inputs, `checks` are those of
    its launches, and `wrong` those of its results that are wrong."""

    def __init__(
        self,
        results: CallResults,
        graph: FxGraph,
        evaluator: Evaluator,
        checks: ByLaunch,
        wrong: Sequence[Checked],
    ) -> None:
        self._results, self._run, self._flow = results, results.run, results.flow
        self._graph, self._evaluator, self._wrong = graph, evaluator, wrong
        self._checks = checks
        self._steps = {step.which: step for step in self._run.steps}

    def culprit(self) -> Culprit | None:
        """The launch, if it can be told."""
        found = self._lost()
        if found is None:
            found = self._first() or self._left_alone()
            if found is not None and (before := self._before(found.check)):
                found = self._should_be(*before) or found._replace(other=before[0])
            elif found is not None:
                found = self._left_out(found)
        if found is not None and self._follows_unrecorded(found.check):
            found = None
        fed = self._fed_unwritten()
        is_fed = fed is not None and (found is None or fed.check.launch <= found.check.launch)
        return fed if is_fed else found

    def _compared(self, row: TensorRow, node: str) -> Comparison | None:
        """How a recorded tensor differs from a node, in any layout; `None` if that is not known."""
        with suppress(UncheckedError, RuntimeError):
            tensor = received.load(self._run, row)
            return compare_node(tensor, row, node, self._evaluator, viewed=True)
        return None

    def _lost(self) -> Culprit | None:
        """The launch that has to write a wrong result, and does not."""
        found = (self._given_a_copy(output) or self._misplaced(output) for output in self._wrong)
        return next(filter(None, found), None)

    def _given_a_copy(self, output: Checked) -> Culprit | None:
        """The launch that is given a copy of a result to write to."""
        wrapper = wrapper_of(self._run)
        copy = None if wrapper is None else given_copy(wrapper, output.arg)
        if copy is None or (check := self._checks.get((copy[0].index, 0))) is None:
            return None
        problem = f"it only writes a copy, {copy[1].expr}"
        return Culprit(check, Checked.as_a_whole(output.arg, "", problem))

    def _misplaced(self, output: Checked) -> Culprit | None:
        """The launch that computes what the graph copies into an input, and writes it elsewhere, or
        a part of a result which nothing reads where it writes that."""
        elsewhere = [*self._elsewhere(output)]
        copied = f" = aten.copy_.default({output.arg}, "
        for check, _ in elsewhere:
            if any(copied in compute for compute in check.computes):
                return Culprit(check, output)
        whole = self._graph.nodes.get(node_of(output.claim)) if output.problem else None
        parts = {self._graph.base(name) for name in whole.reads} if whole is not None else set()
        read = {x.step for node in self._flow.nodes for x in node.origins}
        for check, written in elsewhere:
            part = next((x for x in map(node_of, check.computes) if x in parts), "")
            if part and written and check.step not in read:
                is_in = f"{part}, which belongs there, is in {', '.join(written)}, and nothing"
                problem = f"{output.problem}: {is_in} reads that"
                return Culprit(check, Checked.as_a_whole(output.arg, output.claim, problem))
        return None

    def _elsewhere(self, output: Checked) -> Iterator[tuple[LaunchCheck, tuple[str, ...]]]:
        """The launches that do not write a result, each with what it writes."""
        for which, check in self._checks.items():
            step, facts = self._steps.get(which), self._run.launch_row(check.launch)
            written = () if step is None else tuple(received.written(self._run.rows(step)))
            if output.arg not in {launched.buffer_of(facts, name) for name in written}:
                yield check, written

    def _first(self) -> Culprit | None:
        """The first launch whose result is not the node that its check took it for."""
        times = Counter(kernel for kernel, _ in {(x.kernel, x.launch) for x in self._run.steps})
        for which, check in self._checks.items():
            step = self._steps.get(which)
            # Graphs inside of the graph have nodes of the same names.
            is_inside = check.scope != self._results.scope
            if step is None or is_inside or check.route not in ("graph", "fragment"):
                continue
            if check.route == "fragment" and times[check.kernel] > 1:
                continue  # the node names in the fragment are those of the kernel's first launch
            written = received.written(self._run.rows(step))
            for checked in check.results:
                node = node_of(checked.claim)
                row = written.get(checked.arg)
                if row is None or node not in self._graph.nodes:
                    continue
                comparison = self._compared(row, node)
                if comparison is None or comparison.agrees:
                    continue
                own = {node_of(statement) for statement in check.computes}
                wrong = Culprit(check, replace(checked, comparison=comparison))
                return self._received(step, node, own) or wrong
        return None

    def _received(self, step: RunStep, node: str, own: set[str]) -> Culprit | None:
        """The launch that wrote an input of a launch which is not the node it should be, to compute
        `node`. `own` are nodes that the launch computes itself."""
        read = self._graph.ancestors(node, lambda name: self._graph.base(name) in own)
        missing = {self._graph.base(x) for x in read} & self._graph.nodes.keys() - own
        wrong: list[tuple[TensorRow, str, Comparison]] = []
        for row in received.given(self._run.rows(step)).values():
            found = ((name, self._compared(row, name)) for name in sorted(missing))
            compared = [(name, comparison) for name, comparison in found if comparison is not None]
            agreeing = [name for name, comparison in compared if comparison.agrees]
            missing -= set(agreeing)
            if not agreeing and compared:
                wrong.append((row, *compared[0]))
        for row, name, comparison in wrong:
            sources = self._flow.nodes[step.position].given.get(row.arg, ())
            if name not in missing or len(sources) != 1:
                continue
            maker = self._flow.nodes[sources[0].step].step
            if maker.launch is not None:
                check = self._checks.get(maker.which)
                of = Checked(row.arg, self._graph.statement(name), comparison)
                return None if check is None else Culprit(check, of)
        return None

    def _nodes(self, row: TensorRow) -> set[str]:
        """The nodes and inputs of the graph that a recorded tensor is, each by its base."""
        found = set()
        for name in self._graph.types.keys() | self._graph.nodes.keys():
            if self._graph.base(name) not in found and self._holds(row, name):
                found.add(self._graph.base(name))
        return found

    def _holds(self, row: TensorRow, node: str) -> bool:
        """Whether a recorded tensor is a node or an input of the graph, in any layout."""
        kind = self._evaluator.type_of(node)
        if kind is None or not kind.fits(row):
            return False
        comparison = self._compared(row, node)
        return comparison is not None and comparison.agrees and not comparison.is_unknown

    def _before(self, check: LaunchCheck) -> tuple[LaunchCheck, TensorRow] | None:
        """The first launch that was only checked by its own statement, which may be the wrong one,
        and that made what is no node of the graph; `check` was computed from that."""
        found, position = None, check.step
        while True:
            for source in self._flow.nodes[position].origins:
                step, row = self._flow.nodes[source.step].step, self._flow.origin(source)
                maker = self._checks.get(step.which)
                is_saved = row is not None and saved.file_of(self._run.path, row) is not None
                if maker and row and is_saved and not self._nodes(row):
                    found = (maker, row) if maker.route in ("operator", "arguments") else found
                    position = source.step
                    break
            else:
                return found

    def _should_be(self, check: LaunchCheck, row: TensorRow) -> Culprit | None:
        """The node that a launch calls the operator of, on what the node reads, if it made another
        value: its own statement is wrong."""
        wrapper, step = wrapper_of(self._run), self._steps.get((check.launch, check.iteration))
        if wrapper is None or step is None or check.route != "operator":
            return None
        launch = next(x for x in wrapper.launches if x.index == check.launch)
        operators = called(replace(launch, args=launch.tensors))  # whatever its other arguments
        given = [self._nodes(x) for x in received.given(self._run.rows(step)).values()]
        all_given = set().union(*given)
        for node in self._graph.nodes.values():
            source, kind = self._graph.call_of(node), self._evaluator.type_of(node.name)
            if source is None or source.operator.rstrip("_") not in operators:
                continue
            tensors = (x for x in source.reads if self._evaluator.type_of(x) is not None)
            reads = set(map(self._graph.base, tensors))
            is_call = reads <= all_given and all(reads & x for x in given)
            if is_call and kind is not None and kind.fits(row):
                comparison = self._compared(row, node.name)
                if comparison is not None and not comparison.agrees:
                    of = Checked(row.arg, self._graph.statement(node.name), comparison)
                    return Culprit(check, of)
        return None

    def _left_out(self, found: Culprit) -> Culprit:
        """The culprit; but if a launch may be missing behind it, or behind the one that it reads,
        the launch before the gap, with the node that it left."""
        check, node = found.check, node_of(found.of.claim)
        if held := self._argument_of(check, node):
            return found._replace(holds=held)
        step = self._steps.get((check.launch, check.iteration))
        if step is None or check.route != "operator" or check.outcome != "agrees":
            return found
        given = self._received(step, node, set())
        held = "" if given is None else self._argument_of(given.check, node_of(given.of.claim))
        return given._replace(holds=held) if given is not None and held else found

    def _argument_of(self, check: LaunchCheck, name: str) -> str:
        """An argument of a node that a launch left, if no launch left the node; else empty."""
        left = {
            which: received.written(self._run.rows(step)).values()
            for which, step in self._steps.items()
        }
        every = (row for rows in left.values() for row in rows)
        if name not in self._graph.nodes or any(self._holds(row, name) for row in every):
            return ""
        own = left.get((check.launch, check.iteration), ())
        reads = map(self._graph.base, self._graph.nodes[name].reads)
        read = sorted({*reads} & self._graph.nodes.keys())
        return next((x for x in read if any(self._holds(row, x) for row in own)), "")

    def _left_alone(self) -> Culprit | None:
        """The launch that wrote a wrong result last, if that could not be checked, and all that it
        read was checked: its computation or its inputs differ."""
        for output in self._wrong:
            node = self._results.writers.get(output.arg)
            if output.problem or node is None:
                continue
            check = self._checks.get(node.step.which)
            steps = [self._run.steps[x.step] for x in node.origins]
            made = [self._checks.get(x.which) for x in steps if x.launch is not None]
            is_fed = all(check is not None and check.outcome == "agrees" for check in made)
            if check is None or not is_fed or check.outcome == "differs":
                continue
            facts = self._run.launch_row(check.launch)
            if output.arg not in {launched.buffer_of(facts, x.arg) for x in check.results}:
                return Culprit(check, output)
        return None

    def _follows_unrecorded(self, check: LaunchCheck) -> bool:
        """Whether launches that were not recorded may have written what a launch was given, or what
        others computed that from."""
        waiting, seen = [self._flow.nodes[check.step]], set[int]()
        while waiting:
            node = waiting.pop()
            facts = self._run.launch_row(node.step.launch)
            buffers = {launched.buffer_of(facts, name) for name in node.given}
            if buffers & {*self._flow.unrecorded}:
                return True
            further = {x.step for x in node.origins} - seen
            seen |= further
            waiting += [self._flow.nodes[x] for x in further]
        return False

    def _fed_unwritten(self) -> Culprit | None:
        """The first launch that is given a buffer of which no launch wrote a part. It need not read
        that part, so this is only asked of a call that leaves something wrong."""
        for node in self._flow.nodes:
            if (check := self._checks.get(node.step.which)) is not None:
                for name, unwritten in self._results.unwritten_inputs(node, check.launch):
                    problem = unwritten_places(unwritten)
                    return Culprit(check, Checked.as_a_whole(name, "", problem))
        return None
