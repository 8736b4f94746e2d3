"""Makes a report of a comparison of two dumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.types import (
    DIFFERS,
    Comparison,
    LaunchComparison,
    RunComparison,
)
from rewriter.core.errors import RewriterError
from rewriter.core.text import counted
from rewriter.diagnosis.next_commands import after_comparison
from rewriter.dump.reading import RunDump, open_dump
from rewriter.execution.dumped_wrappers import flow_of
from rewriter.report.findings import sentence
from rewriter.report.flow import Place, places
from rewriter.report.histogram import error_tiles
from rewriter.report.model import facts
from rewriter.report.sources import of_dump
from rewriter.report.types import (
    NextCommand,
    Report,
    ReportedFinding,
    ReportedLaunch,
    ReportedRun,
    ReportedValue,
    Sources,
)

_LISTED = 5

_Calls = tuple[Mapping[str, RunDump], Mapping[str, RunDump]]  # of both dumps, by name


def report(comparison: Comparison, verdict: str = "", *, tiled: bool = True) -> Report:
    """The report of a comparison; sources of kernels come from the wrappers that the dumps hold.

    `verdict` replaces that of the comparison; if `tiled`, the tensors of culprits have heat maps.
    """
    calls, sources = (_calls(comparison.a), _calls(comparison.b)), of_dump()
    runs = tuple(_run(run, calls, sources, tiled=tiled) for run in comparison.runs)
    findings = tuple(finding for run in runs for finding in run.findings)
    findings += tuple(
        ReportedFinding("limit", "note", sentence(x)) for x in describe.limits(comparison)
    )
    if comparison.unpaired:
        text = f"Runs of one dump alone: {', '.join(comparison.unpaired)}."
        findings += (ReportedFinding("unpaired", "note", text),)
    findings = tuple(sorted(findings, key=lambda finding: finding.severity != "finding"))
    return Report(
        title=f"A {comparison.a.absolute().name} and B {comparison.b.absolute().name}",
        path=f"{comparison.a}, {comparison.b}",
        verdict=sentence(verdict or describe.verdict(comparison)),
        facts=_both(comparison, calls),
        findings=findings,
        runs=runs,
        compares=True,
        next=(following := after_comparison(comparison)) and NextCommand(*following),
    )


def _calls(dump: Path) -> dict[str, RunDump]:
    """The calls of a dump by name; none if it is not there any more."""
    try:
        return {run.name: run for run in open_dump(dump).runs}
    except RewriterError:
        return {}


def _both(comparison: Comparison, calls: _Calls) -> tuple[tuple[str, str], ...]:
    """What the manifests say: once where both say the same."""
    called_a = [calls[0][run.a] for run in comparison.runs if run.a in calls[0]]
    called_b = [calls[1][run.b] for run in comparison.runs if run.b in calls[1]]
    a = dict(facts(comparison.manifest_a, called_a))
    b = dict(facts(comparison.manifest_b, called_b))
    lines = [("Dump A", str(comparison.a)), ("Dump B", str(comparison.b))]
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) == b.get(name):
            lines.append((name, a[name]))
        else:
            lines += [
                (f"{name}, {side}", of[name]) for side, of in (("A", a), ("B", b)) if name in of
            ]
    return tuple(lines)


def _run(run: RunComparison, calls: _Calls, sources: Sources, *, tiled: bool) -> ReportedRun:
    name = run.a if run.a == run.b else f"{run.a} and {run.b}"
    a, b = calls[0].get(run.a), calls[1].get(run.b)
    kernels = [{} if call is None else sources(call) for call in (a, b)]
    launches = _placed(
        [
            _launch(launch, at, kernels[0 if launch.a else 1])
            for at, launch in enumerate(run.launches)
        ],
        a,
    )
    called = dict.fromkeys(call.artifact for call in (a, b) if call is not None)
    artifact = " and ".join(filter(None, called))
    if tiled and a is not None and b is not None:
        launches = tuple(_tiled(launch, (a.path, b.path)) for launch in launches)
    return ReportedRun(name, artifact, "", launches, tuple(_findings(name, launches)))


def _tiled(launch: ReportedLaunch, paths: tuple[Path, Path]) -> ReportedLaunch:
    """With heat maps of the errors of what a culprit wrote, where tensors were compared."""
    how = launch.difference
    if how is None or how.blame != "culprit":
        return launch
    found = {}
    for tensor in how.results:
        if tensor.basis == "tensors" and tensor.tensors is not None and tensor.tolerance:
            (a, b), tolerance = zip(paths, tensor.tensors, strict=True), tensor.tolerance
            found[id(tensor.a)] = error_tiles(a, b, tolerance.atol, tolerance.rtol)
    values = (replace(value, tiles=found.get(id(value.row))) for value in launch.values)
    return replace(launch, values=tuple(values))


def _placed(launches: list[ReportedLaunch], run: RunDump | None) -> tuple[ReportedLaunch, ...]:
    """With layers and edges as in dump A, as far as that is still there."""
    nodes = [] if run is None else flow_of(run).nodes
    found = () if run is None else places(run, nodes)
    steps = {node.step.position: place for node, place in zip(nodes, found, strict=True)}
    pairs = [(x, x.difference.a if x.difference else None) for x in launches]
    where = {place.step: x.position for x, place in pairs if place}
    made = []
    for launch, place in pairs:
        of = steps.get(place.step, Place()) if place else Place()
        given = tuple((name, where[at], made) for name, at, made in of.given if at in where)
        made.append(replace(launch, layer=of.layer, given=given))
    return tuple(made)


def _findings(name: str, launches: tuple[ReportedLaunch, ...]) -> list[ReportedFinding]:
    findings = []
    both = [(launch, launch.difference) for launch in launches if launch.difference]
    culprits = [(launch, how) for launch, how in both if how.blame == "culprit"]
    for launch, how in culprits[:_LISTED]:
        findings.append(
            ReportedFinding("culprit", "finding", sentence(_blamed(launch, how)), name, launch)
        )
    if len(culprits) > _LISTED:
        text = f"{len(culprits) - _LISTED:,} further launches begin to differ."
        findings.append(ReportedFinding("culprits", "finding", text, name, culprits[_LISTED][0]))
    ran = [launch for launch in launches if launch.is_launch]
    differing = [
        (launch, how)
        for launch, how in both
        if launch.is_launch and how.matched and (how.state in DIFFERS or how.inputs in DIFFERS)
    ]
    if differing:
        downstream = sum(how.blame == "downstream" for _, how in differing)
        text = f"{len(differing):,} of {counted(len(ran), 'launch', grouped=True)} differ"
        if downstream:
            text += f", {downstream:,} of them because of what they were given"
        text += f"; the first is {differing[0][0]}."
        findings.append(ReportedFinding("differs", "finding", text, name, differing[0][0]))
    if alone := [launch for launch, how in both if not how.matched]:
        number = counted(len(alone), "launch has", "launches have", grouped=True)
        text = f"{number} no counterpart in the other dump, the first {alone[0]}."
        findings.append(ReportedFinding("unmatched", "note", text, name, alone[0]))
    return findings


def _blamed(launch: ReportedLaunch, how: LaunchComparison) -> str:
    """A sentence about a launch that went wrong, or about the inputs or outputs of the call."""
    if not launch.is_launch:
        differ = f"{launch} of the call differ"
        why = "; ".join(reason for reason in how.reasons if reason != differ)
        return f"{differ} ({how.state})" + (f": {why}" if why else "")
    # An error may begin within the tolerance: then the launch itself is equal.
    differs = f"{launch} differs ({how.state})" if how.state in DIFFERS else f"{launch}"
    return f"{differs}: {'; '.join(how.reasons) or 'what it read is equal'}"


def _launch(
    compared: LaunchComparison, position: int, sources: Mapping[str, str]
) -> ReportedLaunch:
    values = (
        ReportedValue(row, dump=dump)
        for tensor in compared.tensors
        for row, dump in ((tensor.a, "A"), (tensor.b, "B"))
    )
    source = sources.get(compared.place.kernel, "")
    return ReportedLaunch(position, compared.place, tuple(values), compared, source=source)
