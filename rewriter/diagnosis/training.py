"""Traces inputs of a backward to the call of the forward that saved them, and to their producers.

The names in the dump say which variable of the forward an input is. Several calls of the forward
may precede a backward. The matching one is the last call whose values agree with the inputs of the
backward, as far as both were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verdict_values import Producer, SavedValue
from rewriter.dump import dataflow, launched
from rewriter.dump.dataflow import Flow
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of


class Forward:
    """The forward that a call of a backward belongs to."""

    def __init__(self, dump: Dump, backward: RunDump) -> None:
        self._dump, self._backward = dump, backward

    @cached_property
    def run(self) -> RunDump | None:
        """The call of the forward, if it was recorded."""
        return next((run for run in self._candidates() if self._agrees(run)), None)

    @property
    def is_missing(self) -> bool:
        """Whether the wrapper of the forward is known, but none of its calls was recorded."""
        names = self._backward.names
        return names.direction == "backward" and bool(names.partner) and not [*self._candidates()]

    def saved(self, name: str) -> SavedValue | None:
        """The variable of the forward that became an input of the backward."""
        variable = self._backward.names.saved.get(name)
        if variable is None or self.run is None:
            return None
        return SavedValue(self.run.name, variable, self._producer(variable))

    def _candidates(self) -> Iterator[RunDump]:
        """The calls of the forward before the backward, the last one first."""
        one = self._backward
        if one.names.direction != "backward" or not one.names.partner:
            return
        name = Path(one.names.partner).name
        for run in sorted(self._dump.runs, key=lambda run: -run.number):
            process = (run.rank, run.facts.pid) == (one.rank, one.facts.pid)
            if process and run.number < one.number and Path(run.artifact).name == name:
                yield run

    def _agrees(self, forward: RunDump) -> bool:
        """Whether no value that both recorded differs."""
        left, inputs = _left(forward), _inputs(self._backward)
        for name, variable in self._backward.names.saved.items():
            given, made = inputs.get(name), left.get(variable)
            if given is None or made is None:
                continue
            values = dataflow.fingerprint(given), dataflow.fingerprint(made)
            if None not in values and values[0] != values[1]:
                return False
        return True

    @cached_property
    def _flow(self) -> Flow:
        assert self.run is not None
        return flow_of(self.run)

    def _producer(self, variable: str) -> Producer | None:
        """The producer of a variable of the forward, by its rows, or else by its text."""
        nodes = self._flow.nodes
        if (outputs := dataflow.outputs(nodes)) is not None:
            for label in outputs.given:
                source = outputs.writer(label)
                if source is not None and dataflow.output_variable(label) == variable:
                    return Producer.of(nodes[source.step].place, self._flow.origin(source))
        assert self.run is not None
        if variable in _inputs(self.run):
            return Producer(None)
        if (wrapper := wrapper_of(self.run)) is None:
            return None
        try:
            located = wrapper.located
        except RewriterError:
            return None
        if any(variable in entry.inputs for entry in located.entries):
            return Producer(None)
        own = [x for x in located.launches if not x.repeats]
        writers = [x for x in own if any(y.buffer == variable and y.role != "in" for y in x.args)]
        if not writers:
            return None
        last = writers[-1]
        return Producer(last.index, 0, last.kernel, last.kind, last.line)


def _inputs(run: RunDump) -> dict[str, TensorRow]:
    """The recorded inputs of a call."""
    return {row.arg: row for row in launched.tensors(run.inputs)}


def _left(run: RunDump) -> dict[str, TensorRow]:
    """The recorded values of variables: as inputs of the call, or else as it returned them."""
    last = dataflow.outputs(flow_of(run).nodes)
    rows = [row for row in last.returned if isinstance(row, TensorRow)] if last else []
    return {dataflow.output_variable(row.arg): row for row in reversed(rows)} | _inputs(run)
