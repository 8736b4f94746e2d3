"""The examinations of `rewriter diagnose`, once the runs are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Artifact
from rewriter.commands._output import counting
from rewriter.commands._probed_runs import ProbedRun
from rewriter.commands._verify import given_graphs, register_operators
from rewriter.commands.diagnose import Arguments
from rewriter.core.terminal import message
from rewriter.diagnosis import heap, plain_python, ruling, sanitized
from rewriter.diagnosis.corruption import examine_corruption
from rewriter.diagnosis.evidence import evidence_of
from rewriter.diagnosis.expected import ComparedCall, compare_outputs
from rewriter.diagnosis.nonfinite_origin import skipped_note
from rewriter.diagnosis.operators import examine_operators
from rewriter.diagnosis.outputs import of_calls, with_types
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict import NonFiniteVerdict
from rewriter.diagnosis.verification.types import Verification
from rewriter.diagnosis.wrapper_text import examine_kernels, examine_lifetimes, examine_races
from rewriter.dump import eager_calls, launched
from rewriter.dump.reading import open_dump
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.instrumentation.types import Selection

if TYPE_CHECKING:
    import torch

    from rewriter.diagnosis.verification.end_to_end import CallCheck

# `--against eager`: compare calls of compiled functions with plain Python, and those of wrappers
# with their graphs, evaluated by torch's operators.
EAGER = "eager"
_SHOWN = 3  # findings that list the arguments of the launch

Key = tuple[str, int, int]  # run, launch, iteration


@dataclass(frozen=True)
class Right:
    """Correct results: the outputs in a file, and the dump of a run. `named` is an artifact that
    `--against` names instead of a dump."""

    path: Path | None = None
    outputs: Sequence[torch.Tensor | None] = ()
    dump: Path | None = None
    named: str | None = None


def examined(
    arguments: Arguments,
    first: ProbedRun,
    pieces: Sequence[ProbedRun],
    selection: Selection,
    right: Right,
    artifact: Artifact | None = None,
    guarded: ProbedRun | None = None,
    watched: Sequence[heap.Watched] = (),
) -> Iterator[Examined]:
    """Make all examinations. `first` is the run that decides. `pieces` are the runs with all
    values, maybe including `first`; there are several if the values did not fit into one. `guarded`
    is a run with guard bands, `watched` are kernels that were run alone."""
    values = pieces[0] if pieces else None
    crashes = first.crashes
    end = ruling.of_end(first.ended, crashes, first.following(crashes, selection))
    if first.dump is not None and len(end.findings) == len(crashes):
        end = with_types(end, crashes, open_dump(first.dump))
        end = heap.with_watched(end, crashes, open_dump(first.dump), watched)
    yield end
    if guarded is not None and guarded.dump is not None:
        yield sanitized.of_rows([open_dump(guarded.dump)], {"bounds"})
    dump = first.dump if values is None or values.dump is None else values.dump
    inputs = Examined() if dump is None else ruling.of_inputs(open_dump(dump))
    unsure = [inputs] if inputs.findings else []  # a broken guard may turn out to be harmless
    yield from [] if unsure else [inputs]
    compared = None
    if right.path is not None and dump is not None and first.ran_through:
        compared = compare_outputs(open_dump(dump), right.outputs, right.path)
        yield compared.examined()
        if not compared.wrong:
            yield from unsure
            return  # all is well: the user only asked for the outputs, of which some may be NaN
    if right.dump is not None and dump is not None:
        yield _against(dump, right.dump)
    verification = None
    dumps = [piece.dump for piece in pieces if piece.dump is not None]
    if dumps:
        verification = _verify(arguments, dumps)
    if first.dump is not None:
        # A run with saved values says more: which elements they are, and what they were made from.
        verdicts = _with_nan(first if values is None else values, first)
        if first.skipped and not first.nonfinite:
            verdicts = ()  # a run of a few calls does not show that it recovers
        yield ruling.of_nonfinite(
            verdicts,
            verification,
            launches=open_dump(first.dump).launches,
            is_random=first.is_random,
            following=first.following(verdicts, selection),
        )
        yield Examined(notes=tuple(filter(None, [skipped_note(first.skipped)])))
    found = [*unsure, *_structure(dump, artifact)]
    calls: tuple[CallCheck, ...] = ()
    if verification is not None and dump is not None:
        whole = first.ran_through
        if whole:
            calls = _calls(arguments, dumps, verification)
        found += _values(arguments, dumps, verification, calls, whole=whole)
        right_too = any(x.outputs_agree for x in found)
        wrong = any(x.kind == "outputs" for part in found for x in part.findings)
        found = [
            ruling.without_effect(x, verification, right=right_too, wrong=wrong) for x in found
        ]
    if dump is not None and artifact is None:
        found += _plain_python(arguments, dump, verification, calls, ended=first.ran_through)
    yield from (part if compared is None else feeding(part, compared) for part in found)


def _with_nan(values: ProbedRun, first: ProbedRun) -> tuple[NonFiniteVerdict, ...]:
    """The verdicts about NaN, of the run with values where that has them, too."""
    if any(not verdict.absorbed for verdict in first.nonfinite) and all(
        verdict.absorbed for verdict in values.nonfinite
    ):
        return first.nonfinite
    return values.nonfinite or first.nonfinite


def _calls(
    arguments: Arguments, dumps: Sequence[Path], verification: Verification
) -> tuple[CallCheck, ...]:
    """Compare calls with their graphs as a whole, if no launch explains what is wrong."""
    if arguments.against != EAGER and verification.finding is not None:
        return ()
    from rewriter.diagnosis.verification.end_to_end import CallCheck, check_outputs

    if len(dumps) > 1:
        why = "its values did not fit into one run"
        return tuple(CallCheck.without(run, why) for run in open_dump(dumps[0]).runs)
    return check_outputs(dumps[0], verification.checks, given_graphs(arguments.graph))


def _plain_python(
    arguments: Arguments,
    dump: Path,
    verification: Verification | None,
    calls: Sequence[CallCheck],
    *,
    ended: bool,
) -> Iterator[Examined]:
    """What the program compared with plain Python, if it was asked to; `ended`: to its end."""
    compared = eager_calls.read(dump)
    if compared or arguments.against == EAGER:
        checks = verification.checks if verification is not None else ()
        wrong = {check.run for check in checks if check.outcome == "differs"}
        graphs = plain_python.Graphs(calls, wrong)
        yield plain_python.of_calls(compared, graphs, open_dump(dump), ended=ended)


def _values(
    arguments: Arguments,
    dumps: Sequence[Path],
    verification: Verification,
    calls: Sequence[CallCheck],
    *,
    whole: bool,
) -> Iterator[Examined]:
    """Examine the recorded values. In a run that was cut short, so not `whole`, unchecked launches
    are no suspects."""
    yield examine_corruption(open_dump(dumps[0]))
    if calls:
        is_asked = arguments.against == EAGER
        yield of_calls(calls, is_asked=is_asked, alone=verification.finding is None)
    evidence: dict[Key, tuple[str, ...]] = {}
    for dump in reversed(dumps):
        evidence |= _evidence(dump, verification)
    yield ruling.of_verification(verification, evidence, whole=whole)


def _against(dump: Path, reference: Path) -> Examined:
    from rewriter.comparison.dumps.compare import compare
    from rewriter.diagnosis.expected import of_comparison

    message("comparing with the correct run")
    with counting() as bar:
        comparison = compare(dump, reference, progress=bar)
    return of_comparison(comparison, open_dump(dump).runs[0].artifact)


def feeding(one: Examined, compared: ComparedCall) -> Examined:
    """The result without findings for launches that do not reach a wrong output."""
    feeds = compared.feeding
    if feeds is None:
        return one

    def reaches(run: str, launch: int | None, iteration: int) -> bool:
        return run != compared.run.name or launch is None or (launch, iteration) in feeds

    # Other findings stay: a missing launch, for one, has no results that could reach an output.
    kept = [x for x in one.findings if x.kind != "wrong" or reaches(x.run, x.launch, x.iteration)]
    dropped = [
        f"{x.headline}: it does not reach an output that is wrong"
        for x in one.findings
        if x not in kept
    ]
    suspects = tuple(replace(x, feeds=reaches(x.run, x.launch, x.iteration)) for x in one.suspects)
    return replace(one, findings=tuple(kept), suspects=suspects, notes=(*one.notes, *dropped))


def _structure(dump: Path | None, artifact: Artifact | None) -> Iterator[Examined]:
    """Examine the texts of the wrappers that were called, or else of the artifact's wrappers."""
    runs = {} if dump is None else {run.sha256: run for run in reversed(open_dump(dump).runs)}
    known = [(wrapper, run) for run in runs.values() if (wrapper := wrapper_of(run)) is not None]
    extra = artifact.models[0].kernels if isinstance(artifact, Package) and artifact.models else {}
    unknown = [] if artifact is None else [(wrapper, None) for wrapper in artifact.wrappers]
    if dump is not None:
        yield examine_operators(open_dump(dump))
    for wrapper, run in known or unknown:
        name, facts = "", dict[str, Any]()
        if run is not None:
            name, empty = run.name, launched.empty_variables(run)
            facts = {"empty": empty, "graph": run.graph, "lines": run.names.lines}
        lifetimes = examine_lifetimes(wrapper, run=name, extra=extra, **facts)
        yield lifetimes
        yield examine_kernels(wrapper, run=name, reads=lifetimes.findings)
        yield examine_races(wrapper, run=name)


def _evidence(dump: Path, verification: Verification) -> Mapping[Key, tuple[str, ...]]:
    """The inputs and results of the first launches that differ."""
    opened = open_dump(dump)
    runs = {run.name: run for run in opened.runs}
    differing = [check for check in verification.checks if check.outcome == "differs"]
    found = {
        (check.run, check.launch, check.iteration): evidence_of(
            opened, runs[check.run], check.launch, check.iteration
        )
        for check in differing[:_SHOWN]
        if check.run in runs
    }
    return {key: text for key, text in found.items() if text}


def _verify(arguments: Arguments, dumps: Sequence[Path]) -> Verification | None:
    from rewriter.diagnosis.verification.verify import verify

    dumps = [dump for dump in dumps if any(run.saves for run in open_dump(dump).runs)]
    if not dumps:
        return None
    register_operators(arguments.imports)
    message("checking each launch against what it claims to compute")
    graphs = given_graphs(arguments.graph)
    with counting() as bar:
        return ruling.merged([verify(dump, graphs=graphs, progress=bar) for dump in dumps])
