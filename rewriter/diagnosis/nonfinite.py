"""Tells from a dump where its first NaN is from: which launch made it, of what, and whether of
infinities that an earlier launch made; or where infinities are from that nothing absorbed.

An infinity by itself is no fault: attention masks with it. It is the cause of a NaN where the
launch that made the NaN read it, as far as the data flow tells, and a launch had computed it from
finite numbers (`rewriter.dump.infinities`). What `--allow` named is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.core.dtypes import LARGEST
from rewriter.diagnosis.evidence import Evidence, in_model, unrecorded
from rewriter.diagnosis.history import CallHistory
from rewriter.diagnosis.training import Forward
from rewriter.diagnosis.verdict import (
    ElementStep,
    Held,
    NonFiniteState,
    Producer,
    Verdict,
    VerdictArgument,
)
from rewriter.dump import dataflow, infinities
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.reading import Dump, RunDump, is_recorded, open_dump
from rewriter.dump.rows import EventRow, TensorRow, finite
from rewriter.dump.rows import NonFinite as What
from rewriter.runtime.allowed import Allowed

_ANY_NAN = re.compile(rb'"nan":\s*[1-9]')
_ANY_INFINITY = re.compile(rb'"inf":\s*[1-9]')
# Says where in the tensor of a row the values lie: `where` of `rewriter.dump.where`, which imports
# torch.
Where = Callable[[Path, TensorRow, What], str]
# Follows one element backwards: `follow` of `rewriter.diagnosis.element`, which imports torch.
Follow = Callable[[RunDump, Flow, FlowNode, TensorRow, What], tuple[ElementStep, ...]]


@dataclass(frozen=True)
class Origin:
    """Where the first NaN of a run is, or the first infinities that nothing absorbs (`infinite`):
    the step, and how it is known.

    `overflow` is the step that made infinities which became it, `None` if there is none; `allowed`
    the one that made NaN which are allowed there, where the step only passes those on; `given` are
    inputs of the call whose infinities became it.
    """

    state: NonFiniteState
    node: FlowNode
    rows: tuple[TensorRow, ...]
    overflow: FlowNode | None = None
    overflow_rows: tuple[TensorRow, ...] = ()
    allowed: FlowNode | None = None
    given: tuple[TensorRow, ...] = ()


def examine(
    dump: Path, *, where: Where | None = None, follow: Follow | None = None
) -> tuple[Verdict, ...]:
    """The verdict of the first NaN in a dump: one, or two where infinities were its cause, the
    earlier launch first. Without a NaN, that of the first infinities which a launch computed and
    no later one absorbs. Empty if there is none either. `Verdict.origin` tells what was made from
    what came in and what was passed on.

    What the dump's `--allow` named is no finding, and where its program was ended by `--stop` the
    verdict is that of what ended it. Of saved values, `where` says where in a tensor they lie, and
    `follow` follows one of them backwards.

    Raises `RewriterError` where the dump is not as a runtime writes it.
    """
    if not is_recorded(dump):
        return ()
    return of_dump(open_dump(dump), where=where, follow=follow)


def of_dump(
    dump: Dump,
    *,
    where: Where | None = None,
    follow: Follow | None = None,
    among: Sequence[RunDump] | None = None,
) -> tuple[Verdict, ...]:
    """As `examine`, of a dump that was opened: the first call, in order, that has a NaN, of all or
    of those named."""
    runs = sorted(dump.runs if among is None else among, key=lambda run: (run.number, run.rank))
    for look in (origin_of, infinite_origin_of):
        for run in runs:
            if (origin := look(run, dump.allowed)) is not None:
                return _Witness(dump, run, origin, where, follow).verdicts()
    return ()


def with_values(
    verdicts: Sequence[Verdict], dump: Path, *, where: Where, follow: Follow
) -> tuple[Verdict, ...]:
    """The same verdicts with where the values lie and with one element followed backwards, by the
    dump of another run of the same that saved what their launches read and wrote."""
    if not is_recorded(dump):
        return tuple(verdicts)
    (run, *_) = open_dump(dump).runs
    flow = Flow(run)
    return tuple(_with_values(verdict, run, flow, where, follow) for verdict in verdicts)


def _with_values(
    verdict: Verdict, run: RunDump, flow: Flow, where: Where, follow: Follow
) -> Verdict:
    which = verdict.launch, verdict.iteration
    node = next((x for x in flow.nodes if (x.step.launch, x.step.iteration) == which), None)
    if node is None or verdict.ended is not None or not verdict.held:
        return verdict
    rows = {row.arg: row for row in dataflow.tensors(dataflow.results(flow.rows(node)))}
    same = [(x, rows[x.name]) for x in verdict.held if x.name in rows]
    if any(row.count(held.what) != held.count for held, row in same) or not same:
        return verdict  # it draws random numbers
    held = tuple(replace(x, where=where(run.path, row, x.what)) for x, row in same)
    first, row = same[0]
    followed = follow(run, flow, node, row, first.what) if verdict.launch is not None else ()
    return replace(verdict, held=held, followed=followed)


def overflow_of(run: RunDump) -> Origin | None:
    """The origin of the first NaN of one call if that is infinities which a launch computed."""
    if not _ANY_INFINITY.search(run.event_bytes()):
        return None
    origin = origin_of(run, Allowed(run.manifest.allow))
    return None if origin is None or origin.overflow is None else origin


def infinite_origin_of(run: RunDump, allowed: Allowed) -> Origin | None:
    """Where the first infinities of one call are that a launch computed and none absorbs."""
    if not _ANY_INFINITY.search(run.event_bytes()):
        return None
    flow = Flow(run)
    for node in infinities.remaining(flow, len(run.steps), allowed):
        return Origin("infinite", node, infinities.held(flow, node, allowed))
    return None


def origin_of(run: RunDump, allowed: Allowed) -> Origin | None:
    """Where the first NaN of one call is, `None` if it has none."""
    # Most files have none, and they may be long.
    if not _ANY_NAN.search(run.event_bytes()):
        return None
    flow = Flow(run)
    for node in flow.nodes[: len(run.steps)]:
        rows = flow.rows(node)
        kernel = "" if node.step.launch is None else node.step.kernel
        written = _holding(dataflow.results(rows), "nan", kernel, allowed)
        read = _holding(dataflow.reads(rows), "nan", kernel, allowed)
        if node.step.launch is None:
            if written:
                return Origin("given", node, written)
            continue
        passed = [_allowed_maker(flow, node, row, allowed) for row in read]
        if read and None in passed:
            return Origin("read", node, read)
        if written and passed:
            return Origin("passed", node, written, allowed=passed[0])
        if written:
            return _written(run, flow, node, rows, written)
    return None


def _allowed_maker(flow: Flow, node: FlowNode, row: TensorRow, allowed: Allowed) -> FlowNode | None:
    """Who made the NaN that a launch read, if they are allowed there."""
    makers = []
    for source in node.given.get(row.arg.partition("[")[0], node.given.get(row.arg, ())):
        maker, made = flow.nodes[source.step], flow.origin(source)
        if made is None or not made.nan:
            continue
        kernel = "" if maker.step.launch is None else maker.step.kernel
        if not allowed.covers(kernel, made.arg):
            return None
        makers.append(maker)
    return makers[0] if makers else None


def _written(
    run: RunDump,
    flow: Flow,
    node: FlowNode,
    rows: Sequence[EventRow],
    held: tuple[TensorRow, ...],
) -> Origin:
    measured = any(row.is_measured for row in dataflow.tensors(dataflow.reads(rows)))
    known = measured or _is_known(flow, node, rows)
    known = known and not unrecorded(run, flow, node)
    origin = Origin("made" if known else "wrote", node, held)
    maker = next(infinities.makers(flow, node), None)
    if maker is None:
        return replace(origin, given=tuple(infinities.given(flow, node)))
    return replace(origin, overflow=maker, overflow_rows=infinities.held(flow, maker))


def _is_known(flow: Flow, node: FlowNode, rows: Sequence[EventRow]) -> bool:
    """Whether all that it was given is known from who wrote it, where nothing was read before."""
    given = dataflow.given(rows)
    for row in given:
        sources = [flow.origin(x) for x in node.given.get(row.arg, ())]
        if not sources or any(written is None or not written.is_measured for written in sources):
            return False
    return bool(given)


def _holding(
    rows: Sequence[EventRow], what: What, kernel: str, allowed: Allowed
) -> tuple[TensorRow, ...]:
    return tuple(
        row
        for row in dataflow.tensors(rows)
        if row.count(what) and not allowed.covers(kernel, row.arg)
    )


class _Witness:
    """Puts together what is known of an origin."""

    def __init__(
        self,
        dump: Dump,
        run: RunDump,
        origin: Origin,
        where: Where | None,
        follow: Follow | None,
    ) -> None:
        self._dump, self._run, self._origin = dump, run, origin
        self._where, self._follow = where, follow
        self._calls = CallHistory(dump)
        self._flow = Flow(run)

    def verdicts(self) -> tuple[Verdict, ...]:
        origin = self._origin
        what: What = "inf" if origin.state == "infinite" else "nan"
        made = self._verdict(origin.node, origin.state, origin.rows, what)
        if origin.given:
            made = replace(made, cause=Producer(None, row=origin.given[0]))
        if origin.allowed is not None:
            made = replace(made, cause=Producer.of(origin.allowed.place, None))
        if origin.overflow is None:
            return (replace(made, notes=tuple(self._notes(made))),)
        cause = Producer.of(origin.overflow.place, next(iter(origin.overflow_rows), None))
        made = replace(made, cause=cause)
        first = self._verdict(origin.overflow, "overflowed", origin.overflow_rows, "inf")
        first = replace(first, effect=Producer.of(origin.node.place, next(iter(origin.rows), None)))
        first = replace(first, notes=tuple(_overflow(origin.overflow_rows)))
        return first, replace(made, notes=tuple(self._notes(made)))

    def _verdict(
        self, node: FlowNode, state: NonFiniteState, rows: Sequence[TensorRow], what: What
    ) -> Verdict:
        run = self._run
        evidence = Evidence(self._dump, run, node.step, self._flow)
        arguments = tuple(self._arguments(evidence, node, rows))
        return replace(
            Verdict.of(self._dump, run, node.place, state, arguments),
            on_gpu=evidence.on_gpu(arguments),
            call=self._calls.words(run),
            number=self._calls.number(run),
            held=tuple(self._held(row, what) for row in rows),
            followed=self._followed(node, rows, what),
            passed_on=tuple(self._passed_on(node)) if what == "nan" else (),
        )

    def _followed(
        self, node: FlowNode, rows: Sequence[TensorRow], what: What
    ) -> tuple[ElementStep, ...]:
        saved = next((row for row in rows if row.file), None)
        if self._follow is None or saved is None or node.step.launch is None:
            return ()
        return self._follow(self._run, self._flow, node, saved, what)

    def _passed_on(self, node: FlowNode) -> Iterator[Producer]:
        """The later launches of the call that wrote NaN, too."""
        for later in self._flow.nodes[node.step.position + 1 : len(self._run.steps)]:
            written = dataflow.tensors(dataflow.results(self._flow.rows(later)))
            if (row := next((row for row in written if row.nan), None)) is not None:
                yield Producer.of(later.place, row)

    def _held(self, row: TensorRow, what: What) -> Held:
        place = "" if self._where is None else self._where(self._run.path, row, what)
        return Held(row.arg, what, row.count(what), row.numel or 0, place)

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
            arguments = evidence.arguments()
        written = {row.arg: row for row in dataflow.results(evidence.rows)}
        for argument in arguments:
            name = argument.name
            after = written.pop(name, None) if step.launch is not None else None
            is_after = argument.row is not None and argument.row.phase == "after"
            if argument.role == "inout" and after and not is_after:
                argument = replace(argument, after=after)
            elif argument.role == "inout" and argument.producer and argument.producer.row:
                # Nothing was read before the launch: it was as its producer left it.
                argument = replace(argument, row=argument.producer.row, after=after)
            yield replace(argument, earlier=history.get(name, ()))
        if step.launch is not None:
            for name, row in written.items():
                yield VerdictArgument(name, row.role, row)

    def _notes(self, verdict: Verdict) -> Iterator[str]:
        """Whether the NaN was made or came in, and what catches the eye in what was read."""
        read = [(x, row) for x in verdict.arguments if x.role != "out" and (row := x.measured)]
        infinite = [(x, row) for x, row in read if row.inf]
        if verdict.state == "made":
            if not infinite:
                yield "No input of the launch held NaN or infinities: the launch itself makes them."
            elif verdict.cause is not None and verdict.cause.launch is None:
                for row in self._origin.given:
                    name = in_model(self._run, row.arg)
                    named = f"{row.arg} ({name})" if name else row.arg
                    yield (
                        f"{named} came in with {row.count('inf'):,} infinite of {row.numel:,} "
                        "elements, which become NaN here."
                    )
            elif verdict.cause is None:
                yield from (_constant(x, row) for x, row in infinite)
            else:
                names = ", ".join(x.name for x, _ in infinite) or "what it updates"
                yield (
                    f"It was given no NaN, but infinities ({names}): their difference, their "
                    "product with 0 and their quotient are NaN."
                )
        elif verdict.state == "wrote":
            names = ", ".join(unrecorded(self._run, self._flow, self._origin.node))
            yield (
                f"Not all that it was given was recorded ({names} not): without --roles and "
                "--tensors, `--args all` tells whether it makes the NaN or hands it on."
                if names
                else "What it was given was not recorded: `--args all` tells whether it makes the "
                "NaN or hands it on."
            )
        elif verdict.state == "given":
            if any(x.earlier for x in verdict.arguments):
                yield "It came in from outside; earlier calls were given none."
            else:
                yield "It came in from outside: no launch that was recorded made it."
            if Forward(self._dump, self._run).is_missing:
                yield (
                    f"Its forward, {self._run.names.partner}, has no record here: what that kept "
                    "for the backward may have been so already."
                )
            if not self._calls.follows(self._run):
                yield (
                    "The call before it was not recorded (--calls, --last): the NaN may be of an "
                    "earlier one."
                )
        elif verdict.state == "infinite":
            yield from _overflow(self._origin.rows)
            yield (
                "No later launch that was recorded makes finite numbers of them, as softmax does "
                "of a mask: they are in what the call returns, or in what nobody reads."
            )
        elif verdict.state == "passed":
            yield "They are allowed where they were made, and not here: --allow names values."
        elif verdict.state == "read":
            yield "Whoever wrote it has no probes, or stands outside of compiled code."
        yield from _domains(verdict, read)
        yield from _masked(verdict)
        if self._dump.caveat:
            yield self._dump.caveat


def _constant(argument: VerdictArgument, row: TensorRow) -> str:
    """The note about infinities that nobody computed."""
    made = argument.producer
    whence = "of unknown origin" if made is None else str(made)
    return (
        f"{argument.name} has {row.count('inf'):,} infinities, {whence}: they were not computed "
        "from finite numbers, as those of a mask are not. A row that is masked in full is NaN "
        "after softmax."
    )


def _overflow(rows: Sequence[TensorRow]) -> Iterator[str]:
    """How near the finite elements of a result come to the largest of their type."""
    for row in rows:
        largest, size = LARGEST.get(row.dtype), row.magnitude
        if largest and size is not None and size >= largest / 100:
            yield (
                f"The finite elements of {row.arg} come to {size:.6g}, the largest "
                f"{row.dtype} is {largest:.6g}: it overflows."
            )


def _masked(verdict: Verdict) -> Iterator[str]:
    """Whether a softmax was given rows that are masked in full: their maxima are -Inf."""
    if verdict.state not in ("made", "wrote") or "softmax" not in verdict.kernel:
        return
    for argument in verdict.arguments:
        row = argument.row
        if argument.role == "out" and isinstance(row, TensorRow) and row.neginf == row.inf != 0:
            yield (
                f"{row.inf:,} of {row.numel:,} elements of {argument.name} are -Inf: if these are "
                "the maxima of rows, those rows are masked in full, and their softmax is NaN."
            )


# What a kernel computes, by its name and its operators, and where that is NaN.
_DOMAINS = (
    (("log", "log2", "log10"), "a logarithm of a negative number is NaN"),
    (("sqrt", "rsqrt"), "the square root of a negative number is NaN"),
    (("pow",), "a fractional power of a negative number is NaN"),
)
# What a kernel computes, and what becomes of it at 0: NaN, and infinities.
_DIVISIONS = ("div", "reciprocal", "rsqrt")
_LOGARITHMS = ("log", "log2", "log10")


def _zeros(
    verdict: Verdict, words: set[str], read: Sequence[tuple[VerdictArgument, TensorRow]]
) -> str:
    """What a 0 among what the launch read comes to, if the kernel divides, or takes a logarithm.

    The backward of a square root and of a norm divides by their result.
    """
    zeros = [
        argument.known_as
        for argument, row in read
        if row.is_floating and 0 in (finite(row.min), finite(row.max))
    ]
    if not zeros:
        return ""
    divides = [word for word in _DIVISIONS if word in words]
    logarithms = [word for word in _LOGARITHMS if word in words]
    if verdict.state != "infinite":
        computed, why = divides, "0 divided by 0 is NaN"
    elif logarithms:
        computed, why = logarithms, "a logarithm of 0 is -Inf"
    else:
        computed, why = divides, "what is divided by 0 is infinite"
    if not computed:
        return ""
    named = ", ".join(zeros[:3])
    return f"By its name the kernel computes {computed[0]}: {why}, and there is a 0 in {named}."


def _domains(verdict: Verdict, read: Sequence[tuple[VerdictArgument, TensorRow]]) -> Iterator[str]:
    """Where the kernel computes what is NaN for some of what it read."""
    if verdict.state not in ("made", "wrote", "infinite") or verdict.cause is not None:
        return
    words = {
        word for name in (verdict.kernel, *verdict.origins) for word in re.split(r"[._]", name)
    }
    if note := _zeros(verdict, words, read):
        yield note
        # The derivative of a square root or a logarithm is a division.
        if "backward" in words or verdict.state == "infinite":
            return
    below = [
        (argument.known_as, low)
        for argument, row in read
        if (low := finite(row.min)) is not None and low < 0 and row.is_floating
    ]
    for functions, why in _DOMAINS:
        computed = [word for word in functions if word in words]
        if computed and below:
            named = ", ".join(f"{name} goes down to {low:.4g}" for name, low in below[:3])
            yield f"By its name the kernel computes {computed[0]}: {why}, and {named}."
