"""What a page says of the launches in question: those of verdicts, or of the first fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewriter.core.types import Json
from rewriter.diagnosis import verdict_text
from rewriter.diagnosis.verdict import Verdict
from rewriter.diagnosis.verdict_values import VerdictArgument
from rewriter.dump.launched import RecordedLaunch
from rewriter.report import page_data
from rewriter.report.cells import of_value
from rewriter.report.findings import sentence
from rewriter.report.tensor_error import error_of
from rewriter.report.types import Report, ReportedLaunch, ReportedValue

_BEGINS = {
    "fault": "Where the device faults",
    "unexpected": "Its inputs",
    "unfinished": "Where it ended",
    "cut": "Where it ended",
    "culprit": "Where the runs diverge",
}
_TITLES = {
    "faulted": "Where the device faults",
    "overflowed": "Where the infinities begin",
    "made": "Where the NaN begin",
    "wrote": "Where the NaN begin",
    "read": "Where NaN are first seen",
    "given": "Where the NaN came in",
    "passed": "Where NaN are not allowed any more",
    "infinite": "Where the infinities begin",
}
_SOURCE = 200  # lines shown of the source of the launch in question
_GIVEN = "an input of the call"
_OPENING = 3  # lines of the model that a page begins with


def sections(report: Report) -> list[Json]:
    """A section for each verdict; without any, one for the launch of the first fault."""
    return [_verdict(report, *verdict) for verdict in report.verdicts] or _first_fault(report)


def _verdict(report: Report, verdict: Verdict, following: str) -> Json:
    """A verdict as the terminal says it, in parts."""
    which = (verdict.launch, verdict.iteration)
    launches = (x for run in report.runs if run.name == verdict.run for x in run.launches)
    launch = next((x for x in launches if (x.place.launch, x.place.iteration) == which), None)
    facts = {
        "Call": f"{verdict.call}, {verdict.run}" if verdict.call else verdict.run,
        "Wrapper": verdict.artifact,
        "Graph": verdict.names.part,
    }
    followed = ", ".join(map(str.strip, verdict_text.followed(verdict))).replace(" of, ", " of ")
    return {
        **_part(verdict, launch, facts),
        "title": _TITLES.get(verdict.state, "Where it ended"),
        "name": verdict.label,
        "headline": sentence(verdict.headline),
        "arguments": [row for argument in verdict.arguments for row in _argument(argument)],
        "notes": [
            *verdict_text.places(verdict),
            *filter(None, [followed]),
            *verdict_text.passed_on(verdict),
            *verdict.notes,
        ],
        "next": following,
        "tells": verdict.wants[1],
    }


def _argument(argument: VerdictArgument) -> Iterator[Json]:
    """The row of an argument before the launch; if it is updated in place, also after it."""
    role = "afterwards" if verdict_text.is_after(argument) else argument.role
    named = {"name": argument.name, "role": role}
    yield {
        **({} if argument.row is None else of_value(ReportedValue(argument.row))),
        **named,
        "model": argument.model,
        "from": verdict_text.origin(argument),
        "before": verdict_text.history(argument.earlier, argument.row),
    }
    if argument.after:
        after = of_value(ReportedValue(argument.after))
        yield {**after, "role": "afterwards", "from": ""}


def _first_fault(report: Report) -> list[Json]:
    """The launch that the first fault is about, with everything known of it."""
    for finding in report.findings:
        if finding.severity == "finding" and (launch := finding.launch) is not None:
            steps = next(run.launches for run in report.runs if run.name == finding.run)
            errors = launch.difference.tensors if launch.difference else ()
            values = page_data.distinct(launch.values)
            part = _part(launch.place, launch, {})
            part["title"] = _BEGINS.get(finding.kind, "Where it begins")
            part["name"] = str(launch)
            part["errors"] = [(tensor, error_of(tensor)) for tensor in errors]
            part["arguments"] = [{**of_value(x), **_from(x, launch, steps)} for x in values]
            return [part]
    return []


def _part(of: Verdict | RecordedLaunch, launch: ReportedLaunch | None, facts: Json) -> Json:
    """What a section says of a launch: it begins with the lines of the model, and these facts."""
    facts = {
        "Model": "; ".join(verdict_text.model_lines(of.lines)),
        **facts,
        "Kind": of.kind,
        "Where": f"{of.scope}, line {of.line}" if of.scope else "",
        "Source nodes": ", ".join(of.source_nodes),
        "Original ATen": ", ".join(of.origins),
    }
    own = [line for line in of.lines if not line.is_of_library] or of.lines
    return {
        "facts": {name: value for name, value in facts.items() if value},
        "opening": verdict_text.model_lines(own)[:_OPENING],
        "run": of.run,
        "launch": launch,
        **_source(launch),
    }


def _from(value: ReportedValue, launch: ReportedLaunch, steps: Sequence[ReportedLaunch]) -> Json:
    """The role of a value of a launch, and what wrote it, in the dump that it is from."""
    if value.row.role == "out" or (value.row.role == "inout" and value.row.phase == "after"):
        return {"role": "afterwards" if value.row.role == "inout" else "out", "from": ""}
    how = launch.difference if value.dump == "B" else None
    name = {x.b.arg: x.a.arg for x in (how.reads if how else ())}.get(value.row.arg, value.row.arg)
    found = []
    for maker, made in ((steps[at], was) for given, at, was in launch.given if given == name):
        both = maker.difference if how else None
        place = (both and both.b) or maker.place
        made = {x.a.arg: x.b.arg for x in both.results}.get(made, made) if both else made
        renamed = f" as {made}" if made != value.row.arg else ""
        found.append(f"written by {place.with_line}{renamed}" if maker.is_launch else _GIVEN)
    inputs = (x.row.arg for step in steps[:1] if not step.is_launch for x in step.values)
    return {"from": "; ".join(found) or (_GIVEN if name in inputs else "not recorded")}


def _source(launch: ReportedLaunch | None) -> Json:
    """The beginning of the source of a kernel."""
    lines = [] if launch is None else launch.source.splitlines()
    cut = max(0, len(lines) - _SOURCE)
    how = None if launch is None else launch.difference
    dump = "" if how is None else f" in dump {'A' if how.a else 'B'}"
    return {"source": "\n".join(lines[:_SOURCE]), "cut": cut, "lines": len(lines), "dump": dump}
