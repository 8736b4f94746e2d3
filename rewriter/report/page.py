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
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from rewriter.core import json_text
from rewriter.core.text import counted
from rewriter.core.types import Json
from rewriter.diagnosis.history import ordinal
from rewriter.diagnosis.next_commands import alone
from rewriter.report import cells, findings, page_data
from rewriter.report.sections import sections
from rewriter.report.types import CallOverview, Report, ReportedRun
from rewriter.version import __version__

_ASSETS = Path(__file__).parent / "assets"
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
_MANY = 3  # calls of a wrapper from which on they are drawn together
_WRAPPERS = 4  # of which the calls are drawn
_TRENDS = 200  # rows of the table of trends

# Unicode's explicit marks of direction, and the blocks of scripts from right to left.
_MARKS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEFTWARDS = re.compile(
    r"((?<!\S)\S*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]\S*)"
)


def page(report: Report, *, command: str = "") -> str:
    """The page. `command` is the command line that made it."""
    columns = cells.COMPARED if report.compares else cells.COLUMNS
    charts = any(run.count for run in report.runs) and report.measured
    style, scripts = _style(charts), _scripts(charts)
    calls = _calls(report) if charts else []
    allowed = " ".join(f"'{_hash(script)}'" for script in scripts)
    shown = next((finding.run for finding in report.findings if finding.run), "")
    at = next((at for at, run in enumerate(report.runs) if run.name == shown), 0)
    tables = page_data.Tables()
    parts = sections(report)
    text = _template().render(
        report=report,
        runs=[_run(run) for run in report.runs],
        charts=charts,
        calls=calls,
        trends=_trends(report),
        names={run.name: number for number, run in enumerate(report.runs)},
        first=at,
        columns=columns,
        rows=cells.rows(report.runs[at], columns) if report.runs else [],
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
        counted(count, "launch", grouped=True),
        counted(runs, "run", grouped=True) if runs > 1 else "",
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
    environment.filters |= {"number": cells.number, "isolated": isolated}
    return environment.get_template("page.html.j2")
