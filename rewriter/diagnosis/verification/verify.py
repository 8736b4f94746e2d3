"""Goes through the calls of a dump with saved values, and checks each launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import UNSET

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification import calls, functional, threads
from rewriter.diagnosis.verification.bounded import UncheckedError, exact, in_short
from rewriter.diagnosis.verification.evaluate import UnregisteredError
from rewriter.diagnosis.verification.fragments import check_fragment
from rewriter.diagnosis.verification.given_graphs import GivenGraphs, graph_text
from rewriter.diagnosis.verification.graph_types import call_sizes, graph_sizes, inner_sizes
from rewriter.diagnosis.verification.judge import compare_recorded
from rewriter.diagnosis.verification.operators import products
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.references import Reference, check_reference, reference_of
from rewriter.diagnosis.verification.types import (
    ANYTHING,
    Checked,
    LaunchCheck,
    Outcome,
    Route,
    Verification,
)
from rewriter.diagnosis.verification.whole_graph import GraphOutcome, WholeGraph
from rewriter.dump import launched
from rewriter.dump.reading import RunDump, RunStep, open_dump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.locate.types import Launch, by_item
from rewriter.locate.vocabulary import kind_of
from rewriter.model_names.attribution import inner_names, values_inside, values_of
from rewriter.model_names.fragment import fragments
from rewriter.model_names.graph import FxGraph

_NO_GRAPH = (
    "a C++ kernel does not say what it computes, and no graph of the wrapper is known, neither "
    "from Inductor's cache nor from a debug directory; name one with --graph"
)
_NO_PART = "a C++ kernel does not say what it computes, and its part of the graph is not known"
_OTHER_GRAPH = (
    "none of the graphs that --graph names is known to be this wrapper's: name its "
    "fx_graph_transformed.py itself"
)
_USERS = "a user wrote this kernel: --reference KERNEL=module:function names what it has to compute"


def verify(
    dump: Path,
    *,
    graphs: GivenGraphs | None = None,
    references: Sequence[Reference] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check every launch of a dump: does it compute what it claims, on the values it received?

    `graphs` are for wrappers whose graph is not in the dump, `references` are functions that define
    what kernels compute. Raises `RewriterError` if there is no dump, or it has no values.
    """
    opened = open_dump(dump)
    if not any(run.saves for run in opened.runs):
        raise RewriterError(
            "nothing-saved",
            f"{dump} holds no values of launches",
            hint="Record them: `rewriter run … --probe save --args all --when both`.",
        )
    checks: list[LaunchCheck] = []
    total = opened.launches
    try:
        every = threads.for_each(opened.runs, lambda x: _Call(x, graphs, references).checks())
        for check in every:
            checks.append(check)
            if progress is not None:
                progress(len(checks), total)
    except KeyboardInterrupt:
        wrong = Verification(tuple(checks)).finding
        known = "none of them wrong" if wrong is None else f"{wrong} {wrong.wrong}"
        done = f"{len(checks):,} of {total:,} launches were looked at; {known}"
        raise KeyboardInterrupt(done) from None
    return Verification(tuple(checks), opened.caveat)


class _Call:
    """One call of one wrapper."""

    def __init__(
        self, run: RunDump, given: GivenGraphs | None, references: Sequence[Reference]
    ) -> None:
        self._run, self._references = run, references
        self._wrapper = wrapper = wrapper_of(run)
        text = graph_text(run, self._wrapper, given)
        # A dump of a C++ wrapper does not say whether TF32 is allowed, so it may be.
        allowed = run.manifest.tf32
        self._tf32 = frozenset(("matmul", "conv") if allowed is UNSET else allowed)
        self._without_graph = _OTHER_GRAPH if given is not None and not text else _NO_GRAPH
        launches = () if wrapper is None else wrapper.launches
        self._launches = {x.index: _as_recorded(x, run) for x in launches}
        self._source = b"" if wrapper is None else wrapper.plain.data
        self._fragments = fragments(self._source.decode("utf-8", "replace"))
        entries = () if wrapper is None else wrapper.located.entries
        symbols = {x.name: x.symbol for entry in entries[:1] for x in entry.input_specs if x.symbol}
        self._sizes = call_sizes(symbols, run.inputs)
        self._known = functional.schemas(run), functional.changed_by(run)
        graph = functional.read(text, *self._known)
        self._graphs: dict[tuple[str, int], WholeGraph] = {}  # by scope and iteration
        self._makers = {} if graph is None else self._whole(graph, text)

    def _graph(self, scope: str, iteration: int) -> WholeGraph | None:
        """The graph of one call of a function of the wrapper, if it is known."""
        maker = self._makers.get(scope)
        if maker is not None and (scope, iteration) not in self._graphs:
            self._graphs[scope, iteration] = maker()
        return self._graphs.get((scope, iteration))

    def _whole(self, graph: FxGraph, text: str) -> dict[str, Callable[[], WholeGraph]]:
        """For each function of the wrapper whose graph is known, what makes its `WholeGraph`: the
        entry, and the subgraphs of its graph."""
        if self._wrapper is None or not self._wrapper.located.entries:
            return {}
        tensors = {row.arg: row for row in self._run.inputs if isinstance(row, TensorRow)}
        if not any(name in graph.types for name in tensors):
            return {}
        located, sizes = self._wrapper.located, graph_sizes(graph, self._run.inputs)
        entry = located.entries[0]
        launches = list(self._launches.values())
        claims = values_of(launches, entry, graph).held
        found: dict[str, Callable[[], WholeGraph]] = {}
        own = [x for x in launches if x.scope == entry.name]
        found[entry.name] = partial(WholeGraph, graph, own, claims, self._run, tensors, sizes)
        for name, inner in functional.subgraphs(text, *self._known).items():
            if inside := [x for x in launches if x.scope == name]:
                claims = values_inside(inside, name, inner).held
                names = inner_names(inside, inner)
                known = inner_sizes(inner, sizes)
                made = partial(WholeGraph, inner, inside, claims, self._run, {}, known, names)
                found[name] = made
        return found

    def checks(self) -> Iterator[LaunchCheck]:
        for step in self._run.steps:
            if step.launch is not None:
                yield self._check(step)

    def _check(self, step: RunStep) -> LaunchCheck:
        assert step.launch is not None
        place = launched.recorded(self._run, step)
        base = LaunchCheck(**vars(place), artifact=self._run.artifact)
        launch = self._launches.get(step.launch)
        if launch is None or launch.kernel != step.kernel:
            return replace(base, reason="the dump has no copy of the wrapper")
        rows = (row for row in self._run.rows(step) if isinstance(row, TensorRow))
        devices = {(row.device or "cpu").partition(":")[0] for row in rows}
        is_on_gpu = bool(devices - {"cpu", "meta"})
        token = products.TF32.set(self._tf32 if is_on_gpu else frozenset())
        try:
            return self._judged(base, step, launch)
        except UncheckedError as error:
            return replace(base, reason=str(error))
        except RuntimeError as error:  # torch's, of shapes that do not fit each other
            return replace(base, reason=f"it could not be evaluated: {in_short(error)}")
        finally:
            products.TF32.reset(token)

    def _judged(self, base: LaunchCheck, step: RunStep, launch: Launch) -> LaunchCheck:
        values = LaunchValues.of(self._run, step, launch, self._source)
        if not values.written:
            return replace(base, reason="it wrote nothing that was saved")
        graph, outcome = self._graph(launch.scope, step.iteration), None
        problem: UncheckedError | RuntimeError | None = None
        is_empty = not any(row.size for row in values.written.values())
        is_own = calls.is_unregistered(launch.kernel.removeprefix("torch.ops."))
        if graph is not None and (is_own or not is_empty):
            try:  # also of a launch that is checked against something else: others follow from it
                outcome = graph.check(values)
            except (UncheckedError, RuntimeError) as error:
                problem = error
        if is_empty:
            return replace(base, outcome="agrees", reason="what it writes has no elements")
        if (reference := reference_of(self._references, launch.kernel)) is not None:
            return self._by(base, "reference", check_reference(reference, values))
        if isinstance(problem, RuntimeError):
            raise problem
        by_call: list[Checked] = []
        no_call = UncheckedError("it names no operator")
        is_python = self._wrapper is not None and self._wrapper.language == "python"
        if kind_of(launch.kind).operator and self._wrapper is not None:
            try:
                by_call = self._by_call(values, is_python=is_python)
            except UncheckedError as error:
                no_call = error
        if not all(x.agrees for x in by_call):
            return replace(base, outcome="differs", route="operator", results=tuple(by_call))
        either = self._by_graph(base, outcome), self._by_fragment(base, values)
        found = [check for check in either if check is not None]
        if judged := [check for check in found if check.outcome != "unchecked"]:
            return surest(judged)
        if by_call:
            return self._by(base, "operator", by_call)
        if found:
            return found[-1]
        if problem is not None:
            return replace(base, reason=str(problem))
        is_call = kind_of(launch.kind).operator
        if outcome is not None and not (is_call and is_python):
            return replace(base, reason=f"{', '.join(outcome.unknown)}: no node of the graph")
        if is_call:
            is_open = isinstance(no_call, UnregisteredError) and graph is None
            more = ", and no graph of the wrapper is known" if is_open else ""
            return replace(base, reason=f"{no_call}{more}")
        if launch.kind == "cpp":
            return replace(base, reason=_NO_PART if self._makers else self._without_graph)
        if launch.kind == "triton_user":
            return replace(base, reason=_USERS)
        return replace(base, reason=f"a launch of kind {launch.kind} has no program beside it")

    def _by_graph(self, base: LaunchCheck, outcome: GraphOutcome | None) -> LaunchCheck | None:
        if outcome is None or not outcome.results:
            return None
        found = self._by(base, outcome.route, outcome.results)
        if found.outcome == "unchecked":
            return found
        unknown = ", ".join(outcome.unknown)
        reason = f"not of {unknown}: no node of the graph" if unknown else ""
        if unsure := [x.arg for x in outcome.results if x.comparison.is_unknown]:
            reason += f"{'; ' if reason else ''}not of {', '.join(unsure)}: {ANYTHING}"
        return replace(found, together=outcome.group, reason=reason)

    def _by_fragment(self, base: LaunchCheck, values: LaunchValues) -> LaunchCheck | None:
        fragment = self._fragments.get(values.launch.kernel)
        if fragment is None:
            return None
        try:
            results = check_fragment(fragment, values, self._sizes)
        except UncheckedError as error:
            return replace(base, reason=str(error))
        return self._by(base, "fragment", results)

    def _by(self, base: LaunchCheck, route: Route, results: Sequence[Checked]) -> LaunchCheck:
        if route != "arguments" and results and all(x.comparison.is_unknown for x in results):
            return replace(base, reason=ANYTHING)
        outcome: Outcome = "agrees" if all(x.agrees for x in results) else "differs"
        return replace(base, outcome=outcome, route=route, results=tuple(results))

    def _by_call(self, values: LaunchValues, *, is_python: bool) -> list[Checked]:
        """Compare the results with the operator that the launch calls. Raises `UncheckedError`."""
        launch, known = values.launch, {}
        for argument in launch.args:
            row = values.given.get(argument.name)
            if row is not None and argument.role != "out":
                known[argument.expr] = exact(values.load(row))
        call = (
            calls.evaluate(values.text, known) if is_python else calls.evaluate_shim(launch, known)
        )
        found = []
        placed = by_item([*values.results.values()])
        for place, value in enumerate(calls.outputs(call)):
            if value is None or place not in placed:
                continue
            argument = placed[place]
            row = values.written[argument.name]
            got = values.load(row)
            if got.numel() != value.value.numel():
                raise UncheckedError("its results have other shapes than the operator's")
            comparison = compare_recorded(got, row, value)
            found.append(Checked(argument.name, launch.kernel, comparison))
        if not found:
            raise UncheckedError("what it wrote was not saved")
        return found


def surest(judged: Sequence[LaunchCheck]) -> LaunchCheck:
    """Of several checks of one launch, the one to trust.

    The mapping of arguments to nodes is a guess, and a wrong guess is unlikely to agree: so a check
    that agrees wins, unless it does not cover a result that another check finds wrong.
    """
    wrong = {x.arg for check in judged for x in check.results if not x.agrees}

    def rank(one: LaunchCheck) -> tuple[bool, bool, bool]:
        silent = bool(wrong - {x.arg for x in one.results})
        return silent, one.outcome != "agrees", one.route != "fragment"

    return min(judged, key=rank)


def _as_recorded(launch: Launch, run: RunDump) -> Launch:
    """An operator of a user with the recorded name and roles, which its wrapper does not say: they
    are its schema's, or for a package in a file beside the wrapper, which a dump does not have."""
    step = next((x for x in run.steps if x.launch == launch.index), None)
    if launch.kind != "custom_op" or step is None:
        return launch
    kind = run.launch_row(launch.index).kind
    roles = {row.arg: row.role for row in run.rows(step) if isinstance(row, TensorRow)}
    args = (replace(arg, role=roles.get(arg.name, arg.role)) for arg in launch.args)
    return replace(launch, kernel=step.kernel, kind=kind or launch.kind, args=tuple(args))
