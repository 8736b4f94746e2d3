"""Verdicts about the first NaN in a dump: which launch made it, from what, and what to note.

`nonfinite_origin.py` finds the launch. Without a NaN, the verdict is about the first infinities
that a launch computed and no later one absorbs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from rewriter.core.dtypes import LARGEST
from rewriter.core.text import of_elements
from rewriter.diagnosis.domains import Domain, domains
from rewriter.diagnosis.element import follow
from rewriter.diagnosis.evidence import Evidence, in_model, unrecorded
from rewriter.diagnosis.history import CallHistory
from rewriter.diagnosis.nonfinite_origin import (
    Origin,
    infinite_origins_of,
    origins_of,
    skipped_steps,
)
from rewriter.diagnosis.training import Forward
from rewriter.diagnosis.verdict import NonFiniteState, NonFiniteVerdict
from rewriter.diagnosis.verdict_text import is_after
from rewriter.diagnosis.verdict_values import Held, Producer, VerdictArgument
from rewriter.dump import launched
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.reading import Dump, RunDump, is_recorded, open_dump
from rewriter.dump.rows import NonFinite, TensorRow
from rewriter.dump.saved import where
from rewriter.execution.dumped_wrappers import flow_of
from rewriter.model_names.graph import parse_inlined


class Searched(NamedTuple):
    """The verdict about the first NaN. There are two, the earlier launch first, if infinities were
    its cause. Without a NaN, the verdict is about the first infinities that a launch computed and
    no later one absorbs; without those, there is none.

    `skipped` are the names of the calls that were passed over: of backward graphs, whose gradients
    a scaled loss makes infinite, and no weight has taken.

    `absorbed` are the verdicts about NaN that no result of their call has, one for each launch. If
    there are no other NaN, `verdicts` are those of one of these launches: of a fault, if any."""

    verdicts: tuple[NonFiniteVerdict, ...] = ()
    skipped: frozenset[str] = frozenset()
    absorbed: tuple[NonFiniteVerdict, ...] = ()


def search(
    dump: Path | Dump,
    *,
    values: bool = False,
    among: Sequence[RunDump] | None = None,
    known_before: bool = False,
) -> Searched:
    """Search the calls of a dump, or those `among` them. `known_before`: another run has recorded
    what was before these.

    Values that the dump's `--allow` names are skipped. If `--stop` ended the program, the verdict
    is about the NaN that ended it. With `values`, torch reads what was saved: where in a tensor the
    NaN are, and what one of them was made from.

    Raises `RewriterError` if the dump is not as a runtime writes it.
    """
    if isinstance(dump, Path):
        if not is_recorded(dump):
            return Searched()
        dump = open_dump(dump)
    runs = sorted(dump.runs if among is None else among, key=lambda run: (run.number, run.rank))
    passed: frozenset[str] | None = None
    absorbed: dict[tuple[str, int | None], tuple[NonFiniteVerdict, ...]] = {}

    looks, allowed = (origins_of, infinite_origins_of), dump.allowed

    def is_finite(run: RunDump) -> bool:
        return all(origin.absorbed for look in looks for origin in look(run, allowed))

    def found(verdicts: tuple[NonFiniteVerdict, ...]) -> Searched:
        every = tuple(chain.from_iterable(absorbed.values()))
        return Searched(verdicts, passed or frozenset(), every)

    for look, run in product(looks, runs):
        for origin in look(run, allowed):
            if run.names.direction == "backward":
                passed = skipped_steps(dump, is_finite) if passed is None else passed
                if run.name in passed:
                    continue
            key = run.artifact, origin.node.step.launch
            if origin.absorbed and key in absorbed:
                continue
            made = _OriginVerdicts(dump, run, origin, values=values, known_before=known_before)
            verdicts = made.verdicts()
            if not origin.absorbed:
                return found(verdicts)
            absorbed[key] = verdicts
    faults_first = sorted(absorbed.values(), key=lambda of: not any(x.is_fault for x in of))
    return found(next(iter(faults_first), ()))


class _OriginVerdicts:
    """Makes the verdicts of one origin."""

    def __init__(
        self, dump: Dump, run: RunDump, origin: Origin, *, values: bool, known_before: bool
    ) -> None:
        self._dump, self._run, self._origin, self._values = dump, run, origin, values
        self._known_before = known_before
        self._calls = CallHistory(dump)
        self._flow = flow_of(run)

    def verdicts(self) -> tuple[NonFiniteVerdict, ...]:
        origin = self._origin
        what: NonFinite = "inf" if origin.state == "infinite" else "nan"
        made = self._verdict(origin.node, origin.state, origin.rows, what)
        if origin.given:
            of = tuple(self._held(row, "inf") for row in origin.given)
            made = replace(made, cause=Producer(None, row=origin.given[0]), given=of)
        if origin.allowed is not None:
            made = replace(made, cause=Producer.of(origin.allowed.place, None))
        if origin.overflow is None:
            return (self._noted(made),)
        cause = Producer.of(origin.overflow.place, next(iter(origin.overflow_rows), None))
        made = replace(made, cause=cause)
        first = self._verdict(origin.overflow, "overflowed", origin.overflow_rows, "inf")
        effect = Producer.of(origin.node.place, next(iter(origin.rows), None))
        notes = tuple(_overflow(origin.overflow_rows))
        return replace(first, effect=effect, notes=notes), self._noted(made)

    def _verdict(
        self, node: FlowNode, state: NonFiniteState, rows: Sequence[TensorRow], what: NonFinite
    ) -> NonFiniteVerdict:
        run, flow = self._run, self._flow
        saved = next((row for row in rows if row.file), None)
        is_followed = self._values and node.step.launch is not None
        evidence = Evidence(self._dump, run, node.step, flow)
        arguments = tuple(self._arguments(evidence, node, rows))
        return NonFiniteVerdict.of(
            self._dump,
            run,
            node.place,
            arguments,
            state=state,
            on_gpu=evidence.on_gpu(arguments),
            call=self._calls.words(run),
            number=self._calls.number(run),
            held=tuple(self._held(row, what) for row in rows),
            captured=any(row.captured for row in rows),
            followed=follow(run, flow, node, saved, what) if saved and is_followed else (),
            passed_on=tuple(self._passed_on(node)) if what == "nan" else (),
            absorbed=self._origin.absorbed,
        )

    def _held(self, row: TensorRow, what: NonFinite) -> Held:
        place = where(self._run.path, row, what) if self._values else ""
        return Held(row.arg, what, row.count(what), row.numel or 0, place)

    def _passed_on(self, node: FlowNode) -> Iterator[Producer]:
        """The later launches of the call that wrote NaN, too."""
        for later in self._flow.nodes[node.step.position + 1 : len(self._run.steps)]:
            written = launched.tensors(launched.results(self._flow.rows(later)))
            if (row := next((row for row in written if row.nan), None)) is not None:
                yield Producer.of(later.place, row)

    def _arguments(
        self, evidence: Evidence, node: FlowNode, rows: Sequence[TensorRow]
    ) -> Iterator[VerdictArgument]:
        step = node.step
        history = self._calls.history(self._run, step.launch, step.iteration)
        if step.launch is None:
            forward = Forward(self._dump, self._run)
            names = ((row, in_model(self._run, row.arg)) for row in rows)
            arguments: Iterator[VerdictArgument] = (
                VerdictArgument(x.arg, x.role, x, model=name, saved=forward.saved(x.arg))
                for x, name in names
            )
        else:
            arguments = evidence.with_results()
        for argument in arguments:
            made = argument.producer
            if argument.role == "inout" and not argument.after and made and made.row:
                # Nothing was read before the launch: it was as its producer left it.
                after = argument.row if is_after(argument) else None
                argument = replace(argument, row=made.row, after=after)
            yield replace(argument, earlier=history.get(argument.name, ()))

    def _noted(self, verdict: NonFiniteVerdict) -> NonFiniteVerdict:
        """The verdict with its notes, and the lines of the model that these speak of first."""
        read = [(x, row) for x in verdict.arguments if x.role != "out" and (row := x.measured)]
        graph = parse_inlined(self._run.graph) if verdict.computes else None
        suspicious = list(domains(verdict, read, graph))
        notes = tuple(self._notes(verdict, read, suspicious))
        nodes = (graph.nodes.get(name) for x in suspicious for name in x.nodes) if graph else ()
        places = [(x.place.file, x.place.line) for x in nodes if x is not None and x.place]
        lines = sorted(verdict.lines, key=lambda x: (x.file, x.line) not in places)
        return replace(verdict, notes=notes, lines=tuple(lines))

    def _notes(
        self,
        verdict: NonFiniteVerdict,
        read: Sequence[tuple[VerdictArgument, TensorRow]],
        suspicious: Sequence[Domain],
    ) -> Iterator[str]:
        """Whether the launch made the NaN or received it, and what is suspicious in its inputs."""
        infinite = [(x, row) for x, row in read if row.inf]
        if verdict.state == "made":
            if not infinite:
                yield "No input of the launch held NaN or infinities: the launch itself makes them."
            elif verdict.cause is None:
                yield from (_constant(x, row) for x, row in infinite)
            elif verdict.cause.launch is not None:
                names = ", ".join(x.in_model for x, _ in infinite) or "what it updates"
                yield (
                    f"Its inputs hold no NaN, but infinities ({names}): their difference, their "
                    "product with 0 and their quotient are NaN."
                )
        elif verdict.state == "wrote":
            left = unrecorded(self._run, self._flow, self._origin.node)
            names = ", ".join(map(self._run.names.called, left))
            what, without = "Its inputs were not recorded", ""
            if names:
                what = f"Not all of its inputs were recorded ({names} not)"
                without = "without --roles and --tensors, "
            yield f"{what}: {without}`--args all` tells whether it makes the NaN or hands it on."
        elif verdict.state == "given":
            earlier = any(x.earlier for x in verdict.arguments)
            why = "; earlier calls were given none" if earlier else ""
            yield f"It came in from outside{why or ': no launch that was recorded made it'}."
            if Forward(self._dump, self._run).is_missing:
                yield (
                    f"Its forward, {self._run.names.partner}, has no record here: what that kept "
                    "for the backward may have been so already."
                )
            if not (self._known_before or self._calls.follows(self._run)):
                yield (
                    "The call before it was not recorded (--calls, --last): the NaN may be of an "
                    "earlier one."
                )
        elif verdict.state == "infinite":
            yield from _overflow(self._origin.rows)
            yield (
                "No later launch that was recorded makes finite numbers of them, as softmax does "
                "of a mask: they are in what the call returns, or in what no launch reads."
            )
        elif verdict.state == "passed":
            yield "They are allowed where they were made, and not here: --allow names values."
        elif verdict.state == "read":
            yield "The write was not recorded: the writer has no probes, or is not compiled."
        if verdict.captured:
            yield (
                "It is inside of a CUDA graph, of which no values can be saved: they can be if the "
                'model is compiled without one, as in mode="max-autotune-no-cudagraphs".'
            )
        yield from (domain.note for domain in suspicious)
        yield from _masked(verdict)
        if verdict.absorbed:
            yield (
                "No result of the call has a NaN, nor has an input that it updates: if the launch "
                "computes what it should, which `rewriter verify` checks, this is no fault."
            )
        if self._dump.caveat:
            yield self._dump.caveat


def _constant(argument: VerdictArgument, row: TensorRow) -> str:
    """The note about infinities that no launch computed."""
    made = argument.producer
    whence = "of unknown origin" if made is None else str(made)
    return (
        f"{argument.in_model} has {row.count('inf'):,} infinities, {whence}: they were not "
        "computed from finite numbers, as those of a mask are not. A row that is masked in full is "
        "NaN after softmax."
    )


def _overflow(rows: Sequence[TensorRow]) -> Iterator[str]:
    """How close the finite elements of a result come to the largest number of their type."""
    for row in rows:
        largest, size = LARGEST.get(row.dtype), row.magnitude
        if largest and size is not None and size >= largest / 100:
            yield (
                f"The finite elements of {row.arg} come to {size:.6g}, the largest "
                f"{row.dtype} is {largest:.6g}: it overflows."
            )


def _masked(verdict: NonFiniteVerdict) -> Iterator[str]:
    """A note if a softmax read fully masked rows: their maxima are -Inf."""
    if verdict.state not in ("made", "wrote") or "softmax" not in verdict.kernel:
        return
    for argument in verdict.arguments:
        row = argument.row
        if argument.role == "out" and isinstance(row, TensorRow) and row.neginf == row.inf != 0:
            yield (
                f"-Inf is in {of_elements(row.inf, row.size)} of {argument.name}: if these are the "
                "maxima of rows, those rows are masked in full, and their softmax is NaN."
            )
