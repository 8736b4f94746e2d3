"""Puts a report into one HTML file that fetches nothing.

What comes from a dump is untrusted: the template escapes it, JSON cannot end its `<script>`, and
the page's own policy allows this style sheet and this script, by their hashes, and nothing else.
Marks of the writing direction, which would put sentences and sources out of order, are shown as
escapes; words from right to left stand by themselves.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from rewriter.core import json_text
from rewriter.core.text import figure
from rewriter.core.types import Json
from rewriter.diagnosis import verdict_text
from rewriter.diagnosis.history import ordinal
from rewriter.diagnosis.next_commands import alone
from rewriter.diagnosis.verdict import Verdict, VerdictArgument
from rewriter.dump.dataflow import RecordedLaunch
from rewriter.dump.rows import known
from rewriter.report import findings, page_data
from rewriter.report.findings import sentence
from rewriter.report.tensor_error import error_of
from rewriter.report.types import CallOverview, Report, ReportedLaunch, ReportedRun, ReportedValue
from rewriter.version import __version__

_ASSETS = Path(__file__).parent / "assets"
_STATIC = 50  # rows in the page itself, for readers without JavaScript
_SCRIPTS = ("dom.js", "data.js", "flow.js", "charts.js", "details.js", "page.js")
# What a launch is marked with that a finding of this kind is about.
_MARKED = {
    "nan": "first NaN",
    "nan-again": "NaN begins anew",
    "inf": "first infinities",
    "inf-again": "infinities begin anew",
    "fault": "device fault",
    "unexpected": "unexpected inputs",
    "unfinished": "the record ends here",
    "cut": "the record ends here",
    "wrong": "computes something else",
    "culprit": "differs here",
    "parts": "parts here",
}
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
_MANY = 3  # calls of a wrapper from which on they are drawn together
_WRAPPERS = 4  # of which the calls are drawn
_TRENDS = 200  # rows of the table of trends
_SOURCE = 200  # lines shown of the source of the launch in question
_GIVEN = "an input of the call"
_OPENING = 3  # lines of the model that a page begins with

# Unicode's explicit marks of direction, and the blocks of scripts from right to left.
_MARKS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEFTWARDS = re.compile(
    r"((?<!\S)\S*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]\S*)"
)


class Column(NamedTuple):
    """A column of the table of launches; `key` is what the script calls it."""

    key: str
    label: str
    numeric: bool = False


_COLUMNS = (
    Column("order", "#"),
    Column("kernel", "Kernel"),
    Column("kind", "Kind"),
    Column("nodes", "Source nodes"),
    Column("name", "Writes"),
    Column("type", "Type"),
    *(Column(x.lower(), x, True) for x in ("Min", "Max", "Mean", "Std", "NaN", "Inf")),
)
_COMPARED = (
    *_COLUMNS[:6],
    Column("state", "State"),
    Column("error", "Max |a - b|", True),
    Column("allowed", "Allowed", True),
    Column("mismatched", "Mismatched", True),
)


def page(report: Report, *, command: str = "") -> str:
    """The page. `command` is the command line that made it."""
    columns = _COMPARED if report.compares else _COLUMNS
    charts = any(run.count for run in report.runs) and report.measured
    style, scripts = _style(charts), _scripts(charts)
    calls = _calls(report) if charts else []
    allowed = " ".join(f"'{_hash(script)}'" for script in scripts)
    shown = next((finding.run for finding in report.findings if finding.run), "")
    at = next((at for at, run in enumerate(report.runs) if run.name == shown), 0)
    tables = page_data.Tables()
    parts = [_verdict(report, *verdict) for verdict in report.verdicts] or _culprit(report)
    text = _template().render(
        report=report,
        runs=[_run(run) for run in report.runs],
        charts=charts,
        calls=calls,
        trends=_trends(report),
        names={run.name: number for number, run in enumerate(report.runs)},
        first=at,
        columns=columns,
        rows=_rows(report.runs[at], columns) if report.runs else [],
        opening=parts[0]["opening"] if parts else [],
        parts=parts,
        data=[_script(page_data.compact(run, tables)) for run in report.runs],
        shared=_script({**tables.json(), "calls": calls, **_of_runs(report)}),
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src {allowed}; "
            "base-uri 'none'; form-action 'none'"
        ),
        summary=_summary(report),
        command=command,
        version=__version__,
    )
    # A name may hold half of a surrogate pair, which no file can.
    text = text.encode("utf-8", "replace").decode()
    return _MARKS.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)


def _summary(report: Report) -> str:
    """What and how much, in one line."""
    facts = dict(report.facts)
    count = sum(x.launches for x in report.calls) or sum(run.count for run in report.runs)
    called = {run.artifact for run in (report.calls or report.runs) if run.artifact}
    runs = len(report.calls or report.runs)
    parts = [
        facts.get("Artifact", "") if len(called) < 2 else f"{len(called):,} wrappers",
        f"torch {facts['torch']}" if "torch" in facts else "",
        facts.get("Device", ""),
        findings.counted(count, "launch", "launches"),
        findings.counted(runs, "run", "runs") if runs > 1 else "",
    ]
    return " · ".join(filter(None, parts))


def _calls(report: Report) -> list[Json]:
    """What is drawn over the calls of a wrapper, where there are many."""
    if report.compares:
        return []
    calls = report.calls or [_overview(run) for run in report.runs]
    by_wrapper: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        by_wrapper.setdefault(call.artifact, []).append(number)
    often = sorted(by_wrapper.items(), key=lambda item: -len(item[1]))[:_WRAPPERS]
    titles = {run.artifact: run.names.of_model or run.artifact for run in report.runs}
    found = []
    for name, numbers in often:
        of = [calls[number] for number in numbers]
        if len(of) >= _MANY and any(x.magnitude is not None or x.nan or x.inf for x in of):
            found.append(
                {
                    "title": f"Magnitude over the calls of {titles.get(name) or name}",
                    "labels": [
                        f"{ordinal(x.call or at)} call, {x.run}" for at, x in enumerate(of, 1)
                    ],
                    "values": [x.magnitude for x in of],
                    "nan": [at for at, x in enumerate(of) if x.nan],
                    "inf": [at for at, x in enumerate(of) if x.inf],
                    "runs": [] if report.calls else numbers,
                }
            )
    return found


def _trends(report: Report) -> Json | None:
    """A statistic of each launch over calls."""
    found = report.trends
    if found is None or not found.rows:
        return None
    head, *rows = found.table(_TRENDS)
    summary = list(found.summary(len(rows)))
    return {"title": found.title, "summary": summary, "head": head, "rows": rows}


def _overview(run: ReportedRun) -> CallOverview:
    results = [result for launch in run.launches if launch.is_launch for result in launch.results]
    return CallOverview(
        run.name,
        run.artifact,
        run.call,
        launches=run.count,
        magnitude=findings.magnitude(findings.floating(results)),
        nan=findings.total(results, "nan"),
        inf=findings.total(results, "inf"),
    )


def _run(run: ReportedRun) -> Json:
    first = next((found for found in run.findings if found.severity == "finding"), None)
    call = _overview(run)
    return {
        "name": run.name,
        "artifact": run.artifact,
        "graph": run.names.of_model,
        "started": run.started,
        "count": run.count,
        "magnitude": "-" if call.magnitude is None else f"{call.magnitude:.4g}",
        "nan": call.nan,
        "inf": call.inf,
        "first": first,
    }


def _of_runs(report: Report) -> Json:
    """What the script knows of each run beside its launches, and the commands that come next."""
    runs = report.runs
    numbers = {run.name: number for number, run in enumerate(runs)}
    dump = report.path.split(", ")[0]
    followed = [(x.launch, x.iteration, numbers.get(x.run), then) for x, then in report.verdicts]
    return {
        # What stands before and after the number of a launch; of a pair, of dump A.
        "repro": [alone(dump, run.name.split()[0], "{}").rsplit("{}", 1) for run in runs],
        "next": [[*where, then] for *where, then in followed if then],
        "names": [run.name for run in runs],
        "wrappers": [run.artifact for run in runs],
        "marks": [_marks(run) for run in runs],
    }


def _marks(run: ReportedRun) -> dict[int, str]:
    """What findings say of launches, by position."""
    marks: dict[int, str] = {}
    for found in run.findings:
        if found.severity == "finding" and found.kind in _MARKED and found.launch is not None:
            marks.setdefault(found.launch.position, _MARKED[found.kind])
    return marks


def _culprit(report: Report) -> list[Json]:
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
            part["arguments"] = [{**_value(x), **_from(x, launch, steps)} for x in values]
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
        **({} if argument.row is None else _value(ReportedValue(argument.row))),
        **named,
        "model": argument.model,
        "from": verdict_text.origin(argument),
        "before": verdict_text.history(argument.earlier, argument.row),
    }
    if argument.after:
        after = _value(ReportedValue(argument.after))
        yield {**after, "role": "afterwards", "from": ""}


def _rows(run: ReportedRun, columns: tuple[Column, ...]) -> list[list[tuple[Column, str]]]:
    """The first rows of the table, as the script makes them."""
    rows: list[list[tuple[Column, str]]] = []
    for launch in run.launches:
        for cells in _launch_rows(launch):
            rows.append([(column, cells.get(column.key, "")) for column in columns])
        if len(rows) >= _STATIC:
            break
    return rows[:_STATIC]


def _launch_rows(launch: ReportedLaunch) -> list[dict[str, str]]:
    facts = {
        "order": launch.label,
        "kernel": launch.kernel,
        "kind": launch.place.kind,
        "nodes": ", ".join(launch.place.source_nodes),
    }
    results, difference = launch.results, launch.difference
    if not launch.is_launch:
        values = results if difference is None else difference.tensors
        cells = {**facts, "name": findings.counted(len(values), "value", "values")}
        return [cells if difference is None else {**cells, "state": difference.state}]
    if difference is None:
        return [{**facts, **_value(result)} for result in results] or [facts]
    return [
        {
            **facts,
            "name": tensor.name,
            "type": ReportedValue(tensor.a).type,
            "state": tensor.state,
            "error": number(how.error),
            "allowed": number(how.allowed),
            "mismatched": number(None if tensor.metrics is None else tensor.metrics.mismatched),
        }
        for tensor, how in ((result, error_of(result)) for result in difference.results)
    ] or [{**facts, "state": difference.state}]


def _value(value: ReportedValue) -> dict[str, str]:
    cells = {
        "dump": value.dump,
        "phase": value.row.phase,
        "role": value.row.role,
        "name": value.row.arg,
        "expr": value.expr,
        "type": value.type,
        "value": value.value,
    }
    if (row := value.measured) is not None:
        cells |= {
            "min": number(known(row.min)),
            "max": number(known(row.max)),
            "mean": number(known(row.mean)),
            "std": number(known(row.std)),
            "nan": f"{row.count('nan'):,}",
            "inf": f"{row.count('inf'):,}",
        }
    return cells


def number(value: float | int | None) -> str:
    """Integers in full, in groups of three digits; floats with four significant ones."""
    return figure(value, grouped=True)


def isolated(text: object) -> Markup:
    """Text in which a word from right to left leaves the order of the others alone."""
    parts = _LEFTWARDS.split(str(text))
    marked = (Markup('<bdi dir="ltr">{}</bdi>').format(word) for word in parts[1::2])
    parts[1::2] = marked
    return Markup("").join(parts)


def _script(value: Any) -> Markup:
    """JSON that may stand in a `<script>`: nothing in it can end that, or begin a comment."""
    text = json_text.encode(value, compact=True)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # What the script reads is an escape, too.
    return Markup(_MARKS.sub(lambda mark: f"\\\\u{ord(mark[0]):04x}", text))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def _scripts(charts: bool) -> tuple[str, ...]:
    """The libraries that are used, each with its licence, as that asks for; then our own."""
    libraries = (
        f"/*\n{_asset(f'vendor/{name}.LICENSE')}*/\n"
        # Tools for developers would fetch the map of a source.
        f"{_asset(f'vendor/{name}.min.js').partition('//# sourceMappingURL')[0]}"
        for name in ("dagre", "uPlot")[: 2 if charts else 1]
    )
    return (*libraries, "".join(_asset(name) for name in _SCRIPTS if charts or name != "charts.js"))


def _style(charts: bool) -> str:
    return (_asset("vendor/uPlot.min.css") if charts else "") + _asset("page.css")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "isolated": isolated}
    return environment.get_template("page.html.j2")
