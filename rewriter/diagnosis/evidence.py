"""What a dump says about one launch: its arguments as they were, and what wrote them.

Nothing is executed. Where the rows hold only names, the rest is read from the dump's copy of the
wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from rewriter.artifact.kernel_sources import kernel_sources
from rewriter.core.errors import RewriterError
from rewriter.diagnosis.findings import Certainty, Finding, FindingKind
from rewriter.diagnosis.training import Forward
from rewriter.diagnosis.verdict_text import argument_lines
from rewriter.diagnosis.verdict_values import Producer, VerdictArgument
from rewriter.dump import launched
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.reading import Dump, RunDump, RunStep
from rewriter.dump.rows import EventRow, TensorRow, ValueRow
from rewriter.execution.dumped_wrappers import flow_of, wrapper_of
from rewriter.locate.types import Launch
from rewriter.locate.vocabulary import kind_of


class Evidence:
    """Collects what is known of one step of a run."""

    def __init__(self, dump: Dump, run: RunDump, step: RunStep, flow: Flow | None = None) -> None:
        self._dump, self._run, self._step = dump, run, step
        self._flow = flow or flow_of(run)
        self._forward = Forward(dump, run)
        self.rows = self._flow.rows(self._flow.nodes[step.position])
        self.facts = run.launch_row(step.launch)
        self._static: Mapping[int | None, Launch] = {}
        self._inputs: tuple[str, ...] = ()
        if not launched.values(self.rows):
            self._static, self._inputs = located(run)

    def on_gpu(self, arguments: Iterable[VerdictArgument]) -> bool:
        devices = {x.tensor.device for x in arguments if x.tensor is not None}
        devices.add(self._dump.manifest.device or "")
        # The kind decides where no argument was recorded.
        return bool(devices - {"cpu", ""}) or kind_of(self.facts.kind).runs == "gpu"

    def arguments(self) -> Iterator[VerdictArgument]:
        """The arguments that were recorded before the launch, then the others that are known."""
        given = launched.reads(self.rows)
        sources = self._sources() if given else {}
        for row in given:
            producer = None
            if isinstance(row, TensorRow):
                producer = sources.get(row.arg) or self._producer(
                    row.arg, launched.buffer_of(self.facts, row.arg)
                )
            yield self._argument(row.arg, row.role, row, producer)
        named = {row.arg for row in given}
        named |= {name.partition("[")[0] for name in named}
        for role, name, root, is_tensor in self._known():
            if name not in named:
                producer = self._producer(name, root) if role != "out" and is_tensor else None
                after = next((x for x in launched.results(self.rows) if x.arg == name), None)
                yield self._argument(name, role, after, producer)

    def with_results(self) -> Iterator[VerdictArgument]:
        """The arguments, each with what the launch left in it, then the other results."""
        written = {row.arg: row for row in launched.results(self.rows)}
        for argument in self.arguments():
            after = written.pop(argument.name, None)
            is_after = argument.row is not None and argument.row.phase == "after"
            yield argument if is_after else replace(argument, after=after or argument.after)
        yield from (VerdictArgument(name, row.role, row) for name, row in written.items())

    def _argument(
        self, name: str, role: str, row: ValueRow | None, producer: Producer | None
    ) -> VerdictArgument:
        """An argument; if it is an input of a backward, with what its forward saved there."""
        is_input = producer is not None and producer.launch is None
        saved = self._forward.saved(launched.variable(name)) if is_input else None
        return VerdictArgument(
            name, role, row, producer, model=in_model(self._run, name), saved=saved
        )

    def _known(self) -> Iterator[tuple[str, str, str, bool]]:
        """The arguments in the text of the wrapper, or else in its table: role, name, buffer, and
        whether it is a tensor."""
        launch = self._static.get(self._step.launch)
        if launch is not None and launch.kernel == self._step.kernel:
            for argument in launch.args:
                if argument.type != "other" and (argument.type == "tensor" or argument.buffer):
                    is_tensor = argument.type == "tensor"
                    yield argument.role, argument.name, argument.buffer, is_tensor
            return
        seen = set()
        labels = (self.facts.before or (), self.facts.after or (), self.facts.reads)
        for role, name, *_ in chain(*labels):
            if name not in seen:
                seen.add(name)
                yield role, name, launched.buffer_of(self.facts, name), True

    def _sources(self) -> dict[str, Producer]:
        """The producers by argument, as far as the recorded values show them."""
        node = self._flow.nodes[self._step.position]
        last = ((name, one) for name in node.given if (one := node.writer(name)) is not None)
        made = ((name, self._flow.nodes[x.step].place, self._flow.origin(x)) for name, x in last)
        return {name: Producer.of(place, row) for name, place, row in made}

    def _producer(self, name: str, root: str) -> Producer | None:
        """The last writer of a buffer before this step, by the names in the wrapper."""
        for step in reversed(self._run.steps[: self._step.position]):
            rows = self._run.rows(step)
            if step.launch is None:
                row = next((x for x in launched.values(rows) if x.arg in (name, root)), None)
                if row is not None:
                    return self._made(step, row)
            elif root in self._writes(step, rows):
                facts = self._run.launch_row(step.launch)
                wrote = launched.tensors(launched.results(rows))
                same = (x for x in wrote if launched.buffer_of(facts, x.arg) == root)
                return self._made(step, next(same, None))
        return Producer(None) if root in self._inputs else None

    def _writes(self, step: RunStep, rows: Sequence[EventRow]) -> set[str]:
        """The buffers that a launch writes."""
        assert step.launch is not None
        if (launch := self._static.get(step.launch)) is not None:
            return {argument.buffer for argument in launch.args if argument.role != "in"}
        facts = self._run.launch_row(step.launch)
        names = {row.arg for row in launched.results(rows)}
        names |= {name for role, name, *_ in facts.after or () if role != "in"}
        return {launched.buffer_of(facts, name) for name in names}

    def _made(self, step: RunStep, row: ValueRow | None) -> Producer:
        return Producer.of(launched.recorded(self._run, step), row)


def in_model(run: RunDump, name: str) -> str:
    """What an input of the call is in the model, such as `blocks.1.temp at model.py:12`."""
    if run.piece is not None and (path := run.piece.input(name)):
        return path
    known = run.names.inputs.get(name)
    return " at ".join(filter(None, (known.name, known.at))) if known and known.name else ""


def finding_at(
    run: RunDump,
    step: RunStep,
    kind: FindingKind,
    what: str,
    shown: str,
    certainty: Certainty = "shown",
    **more: Any,
) -> Finding:
    """A finding about a launch of a recorded call, or about its inputs."""
    at = launched.recorded(run, step)
    text = (*more.pop("text", ()), *piece_lines(run))
    return Finding.of(at, kind, what, shown, certainty, artifact=run.artifact, text=text, **more)


def piece_lines(run: RunDump) -> tuple[str, ...]:
    """Which piece of a model that was split the call is, and in which process, as a line of text;
    empty if it is not known."""
    if not run.piece_words:
        return ()
    return (f"in {', '.join(filter(None, (run.piece_words, str(run.process))))}",)


def located(run: RunDump) -> tuple[Mapping[int | None, Launch], tuple[str, ...]]:
    """The launches and the input names of the wrapper that was called; empty without its copy."""
    wrapper = wrapper_of(run)
    if wrapper is None:
        return {}, ()
    try:
        inputs = {name for entry in wrapper.located.entries for name in entry.inputs}
        return {launch.index: launch for launch in wrapper.launches}, tuple(inputs)
    except RewriterError:
        # The copy is damaged: use the dump's rows alone.
        return {}, ()


def sources_of(run: RunDump) -> Mapping[str, str]:
    """The sources of the kernels of the wrapper that was called; empty without a copy of it."""
    wrapper = wrapper_of(run)
    return {} if wrapper is None else kernel_sources(wrapper)


def unrecorded(run: RunDump, flow: Flow, node: FlowNode) -> tuple[str, ...]:
    """The tensors that a launch was given and that were not recorded, because of --roles or
    --tensors.

    Without a copy of the wrapper, they are taken from its table. Empty if nothing was recorded for
    the launch at all.
    """
    step, rows = node.step, launched.values(flow.rows(node))
    launch = located(run)[0].get(step.launch) if rows else None
    if launch is None or launch.kernel != step.kernel:
        return tuple(name for name, _ in node.unread if not node.given.get(name)) if rows else ()
    # What a launch left in what it updates says nothing about what was there.
    names = {row.arg for row in rows if row.role != "inout" or row.phase == "before"}
    names |= {launched.variable(name) for name in names} | {x.partition("[")[0] for x in names}
    given = [x for x in launch.tensors if x.role != "out"]
    return tuple(dict.fromkeys(x.name for x in given if x.name not in names))


def evidence_of(dump: Dump, run: RunDump, launch: int, iteration: int = 0) -> tuple[str, ...]:
    """The piece of the model, the inputs and the results of a recorded launch, as lines of text."""
    if (step := run.step(launch, iteration)) is None:
        return ()
    return (*piece_lines(run), *argument_lines([*Evidence(dump, run, step).with_results()]))
