"""`rewriter report`: what it finds in a dump, the JSON, and the page as text."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from msgspec import structs

import schemas
from artifacts import get
from imports import imported_by
from report_dumps import Row, beginnings, compared, entry, many, row, step, write_dump, write_run
from rewriter import cli
from rewriter.commands._documents.report import ReportDocument
from rewriter.comparison.dumps.compare import compare
from rewriter.core.documents import as_json
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.findings import Diagnosis, Finding
from rewriter.diagnosis.next_commands import after_comparison
from rewriter.dump.reading import open_dump
from rewriter.execution.conclusion import Conclusion, write_conclusion
from rewriter.instrumentation.instrument import instrument
from rewriter.instrumentation.select import select
from rewriter.report import launch_log, model, sources
from rewriter.report.compared import report as compared_report
from rewriter.report.page import isolated, page
from rewriter.report.tensor_error import error_of
from rewriter.report.types import Report

SCHEMA = schemas.schema("report")
HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&\u2028\"'"


def report_of(folder: Path, *runs: list[Row]) -> Report:
    return model.report(open_dump(write_dump(folder / "model.dump", *runs)))


def texts(report: Report, severity: str = "finding") -> list[str]:
    return [finding.text for finding in report.findings if finding.severity == severity]


QUIET: dict[str, list[Row]] = {
    "finite": [*step(0), *step(1)],
    "names only": [{"launch": 0, "phase": "before", "kernel": "kernel_0"}],
    "scalar": [
        {"launch": 0, "phase": "after", "kernel": "k", "arg": "s", "role": "in", "type": "int",
         "value": "3"}
    ],
    "empty tensor": [row(0, "after", "y", numel=0, min=None, max=None, mean=None, std=None)],
}  # fmt: skip


@pytest.mark.parametrize("rows", QUIET.values(), ids=QUIET.keys())
def test_no_fault_is_found(tmp_path: Path, rows: list[Row]) -> None:
    report = model.report(open_dump(write_run(tmp_path / "rank0/run0", rows, table=[])))
    assert texts(report) == []
    assert not report.found


def test_the_sentence_is_about_nan_rather_than_infinities_of_an_earlier_call(
    tmp_path: Path,
) -> None:
    write_run(
        tmp_path / "rank0/run0", [row(7, "before", "x", role="in"), row(7, "after", "y", inf=2)]
    )
    write_run(tmp_path / "rank0/run1", [*step(0), *step(1, nan=5)])
    assert model.report(open_dump(tmp_path)).verdict == "NaN first appears at #1 kernel_1."


FAULTS: dict[str, tuple[list[Row], str]] = {
    "NaN out of nothing": (
        [*step(0), *step(1, nan=5), *step(2, given=5, nan=256)],
        "NaN first appears at #1 kernel_1: 5 of 256 elements of buf1; what it read had none. "
        "1 later launch wrote it, too.",
    ),
    "NaN handed on": (
        step(1, given=2, nan=5),
        "NaN first appears at #1 kernel_1: 5 of 256 elements of buf1; its inputs hold NaN, "
        "2 of 256 elements of buf0.",
    ),
    "NaN from infinity": (
        [row(1, "before", "buf0", role="in", inf=1), row(1, "after", "buf1", nan=1)],
        "NaN first appears at #1 kernel_1: 1 of 256 elements of buf1; what it read had none, but "
        "infinities (1 of 256 elements of buf0).",
    ),
    "nothing known of what it read": (
        [row(0, "after", "buf0"), row(1, "after", "buf1", role="inout", nan=1)],
        "NaN first appears at #1 kernel_1: 1 of 256 elements of buf1; what it read was not "
        "recorded, and nothing recorded earlier had any.",
    ),
    "NaN in the inputs": (
        [row(None, "inputs", "arg0_1", role="in", nan=7), *step(0)],
        "NaN is in the inputs of the call: 7 of 256 elements of arg0_1.",
    ),
    "NaN whose write was not recorded": (
        [row(4, "before", "x", role="in", nan=1)],
        "NaN is first seen in what #4 kernel_4 reads: 1 of 256 elements of x; what wrote it was "
        "not recorded.",
    ),
    "infinity": (
        [row(0, "before", "x", role="in"), row(0, "after", "y", inf=2)],
        "Infinity first appears at #0 kernel_0: 2 of 256 elements of y; what it read had none.",
    ),
    "a loop": (
        [*step(3, iteration=0), *step(3, iteration=1, nan=1)],
        "NaN first appears at #3.1 kernel_3: 1 of 256 elements of buf3; what it read had none.",
    ),
    "stopped in a launch": (
        [*step(0), step(1)[0]],
        "The record ends inside #1 kernel_1: it was running when the program stopped.",
    ),
}


@pytest.mark.parametrize(("rows", "text"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_with_its_launch(tmp_path: Path, rows: list[Row], text: str) -> None:
    table = [] if "not recorded" in text else None
    run = write_run(tmp_path / "rank0/run0", rows, table)
    report = model.report(open_dump(run))
    assert texts(report)[0] == text
    assert report.found
    assert text.startswith(report.verdict.rstrip("."))


MASKS: dict[str, list[Row]] = {
    "a constant": [row(0, "after", "buf0", inf=9), *step(1)],
    "made of booleans": [
        row(0, "before", "arg0_1", role="in", dtype="bool"),
        row(0, "after", "buf0", inf=9),
    ],
    "an input": [row(None, "inputs", "arg0_1", role="in", inf=9), *step(0)],
}


@pytest.mark.parametrize("rows", MASKS.values(), ids=MASKS.keys())
def test_infinities_that_nobody_computed_are_a_note(tmp_path: Path, rows: list[Row]) -> None:
    report = report_of(tmp_path, rows)
    assert not report.found
    assert "Infinity" in texts(report, "note")[0]
    assert report.verdict.startswith("No NaN in what was recorded of ")
    assert "Infinity" in report.verdict


def overflow() -> list[Row]:
    half = {"dtype": "float16"}
    return [
        *step(0),
        row(1, "before", "buf0", role="in"),
        row(1, "after", "buf1", inf=2, size=65000.0, **half),
        row(2, "before", "buf1", role="in", inf=2, size=65000.0, **half),
        row(2, "after", "buf2", nan=4),
    ]


def test_an_overflow_comes_before_the_nan_that_it_becomes(tmp_path: Path) -> None:
    report = report_of(tmp_path, overflow())
    assert report.verdict == "Infinities of #1 kernel_1 become NaN at #2 kernel_2."
    assert [finding.kind for finding in report.findings[:2]] == ["inf", "nan"]
    assert texts(report)[0].endswith("#2 kernel_2 read them, and no NaN, and wrote the first NaN.")
    assert [verdict.launch for verdict, _ in report.verdicts] == [1, 2]
    text = page(report)
    assert text.index("Where the infinities begin") < text.index("Where the NaN begin")


def test_the_page_of_what_a_launch_updates(tmp_path: Path) -> None:
    """An argument that is updated has a second row, with what it was afterwards."""
    rows = [
        row(0, when, "buf1", role="inout", nan=nan) for when, nan in (("before", 0), ("after", 3))
    ]
    text = page(report_of(tmp_path, rows))
    assert "Where the NaN begin" in text
    assert "<td>afterwards</td>" in text


def test_the_page_of_a_crash_has_what_the_terminal_had(tmp_path: Path) -> None:
    rows = [*step(0), step(1)[0]]
    root = write_dump(tmp_path / "x.dump", rows)
    again = "rewriter run --wrapper '{wrapper}*' '{options}' -- python train.py"
    write_conclusion(root, Conclusion(ExitStatus(None, signal=11), again=again))
    report = model.report(open_dump(root))
    assert report.verdict == ("The program ended in launch #1 kernel_1 (line 101): signal SIGSEGV.")
    text = page(report)
    for said in ("written by #0 kernel_0 (line 100)", "1st call of the wrapper, rank0/run0"):
        assert said in text
    following = (
        "--wrapper &#39;model*&#39; --launches 0,1 --probe print,save --args all -- python train.py"
    )
    assert following in text
    write_conclusion(root, Conclusion(ExitStatus(0)))
    assert model.report(open_dump(root)).verdicts == ()


def test_a_report_says_how_a_program_ended_in_a_call_without_rows(tmp_path: Path) -> None:
    root = write_dump(tmp_path / "x.dump", [*step(0), *step(1)], [])
    well = model.report(open_dump(root)).verdict
    write_conclusion(root, Conclusion(ExitStatus(None, signal=9)))
    ended = "No launch was recorded as running when the program ended: signal SIGKILL."
    assert model.report(open_dump(root)).verdict == f"{ended} {well}"
    write_conclusion(root, Conclusion(ExitStatus(0)))
    assert model.report(open_dump(root)).verdict == well


@pytest.mark.parametrize("probes", ["print", "print,save"])
def test_a_report_asks_for_nothing_that_is_recorded(probes: str, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "x.dump", [*step(0), step(1)[0]])
    instrumented = instrument(get("cpu-torch2.13/mlp").path, select(probes, args="all"))
    (root / "model.py").write_bytes(instrumented.source)
    write_conclusion(
        root, Conclusion(ExitStatus(None, signal=11), again="rewriter run x.py {options}")
    )
    ((_, following),) = model.report(open_dump(root)).verdicts
    asks = "rewriter run x.py --launches 0,1 --probe print,save --args all"
    assert following == ("" if probes == "print,save" else asks)


def truncated(folder: Path, rows: list[Row], less: int, table: list[Row] | None = None) -> Report:
    """The report of a run whose events lost their last bytes."""
    run = write_run(folder / "rank0/run0", rows, table)
    events = run / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-less])
    return model.report(open_dump(run))


def test_a_record_that_ends_before_what_a_launch_wrote_is_unfinished(tmp_path: Path) -> None:
    rows = [*step(0), *step(1)[:2]]  # of the last launch, what it read is there, after it too
    report = model.report(open_dump(write_dump(tmp_path / "whole line", rows)))
    text = "The record ends inside #1 kernel_1: what it wrote is not there in full."
    assert texts(report) == [text]
    assert texts(truncated(tmp_path / "half a line", [*step(0), *step(1, nan=1)], 9)) == [text]


def test_one_of_several_results_may_be_missing(tmp_path: Path) -> None:
    after = [["out", "x"], ["in", "y"], ["out", "z"], ["in", "w"]]
    table = [{**entry(0, "kernel_0"), "after": after}]
    for number, (names, unfinished) in enumerate(
        [("xyz", False), ("xy", True), ("yz", False), (["x", "z[0]"], False)]
    ):
        rows = [row(0, "after", name) for name in names]
        report = model.report(open_dump(write_run(tmp_path / f"rank0/run{number}", rows, table)))
        assert report.runs[0].launches[-1].unfinished == unfinished, names


def test_a_last_line_that_was_cut_is_told(tmp_path: Path) -> None:
    report = truncated(tmp_path / "a", [*step(0), *step(1)[:1]], 5)
    assert texts(report) == [
        "The record is cut short in the line after #0 kernel_0: what followed is lost."
    ]
    report = truncated(tmp_path / "b", step(0)[:1], 5)
    assert texts(report) == ["The record is cut short in its first line: what followed is lost."]
    assert page(report)


def test_names_alone_are_no_good_news(tmp_path: Path) -> None:
    run = write_run(tmp_path / "rank0/run0", QUIET["names only"], table=[])
    report = model.report(open_dump(run))
    assert report.verdict == "1 launch, no values recorded."
    assert 'class="verdict open"' in page(report)


def test_nan_that_begins_twice_is_named_twice(tmp_path: Path) -> None:
    report = report_of(tmp_path, [*step(0, nan=1), *step(1), *step(2, nan=4)])
    assert texts(report)[1] == "NaN begins anew, from finite inputs, at #2 kernel_2."


def test_growth_is_a_note_and_no_fault(tmp_path: Path) -> None:
    rows = [row(0, "before", "x", role="in"), row(0, "after", "y", size=5e4, dtype="float16")]
    report = report_of(tmp_path, rows)
    assert texts(report, "note") == [
        "y of #0 kernel_0 comes to 76% of the largest f16, 65504.",
        "The largest jump in magnitude is at #0 kernel_0: from max |x| 1 in what it read to "
        "5e+04 in what it wrote.",
    ]
    assert not report.found


def test_what_many_runs_share_is_said_once(tmp_path: Path) -> None:
    report = report_of(tmp_path, step(0), *[[*step(0), *step(1, nan=n)] for n in (1, 2, 3)])
    (finding,) = report.findings
    assert (finding.run, finding.times) == ("rank0/run1", 3)
    assert finding.launch is not None
    assert finding.launch.place.launch == 1


def test_what_is_only_read_is_shown_once_on_the_page(tmp_path: Path) -> None:
    launches, shared = scripts(page(report_of(tmp_path, step(1))))
    labels = [shared["labels"][reading[0]] for reading in launches[0][2]]
    phases = [shared["strings"][label[0]] for label in labels]
    assert phases == ["before", "after"]


def test_a_number_among_the_arguments_of_a_fault_has_no_statistics(tmp_path: Path) -> None:
    number = {"launch": 1, "kernel": "kernel_1", "phase": "before", "arg": "s77", "role": "in"}
    rows = [*step(0), {**number, "type": "int", "value": "8"}, *step(1, nan=4)]
    assert "<code>int</code> = <code>8</code>" in page(report_of(tmp_path, rows))


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("rewriter run -d d -- python train.py --size 3", "python train.py --size 3"),
        (f"rewriter diagnose -- python train.py {'x' * 80}", "python train.py …"),
        ("python serve.py", "dump"),
        ("", "dump"),
    ],
)
def test_the_title_is_the_program(command: str, title: str, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump", [row(0, "after", "buf0")], command=command)
    assert model.report(open_dump(dump)).title == title


def test_only_the_runs_named(tmp_path: Path) -> None:
    dump = open_dump(write_dump(tmp_path / "model.dump", step(0), step(0, nan=1)))
    assert [run.name for run in model.report(dump, runs=["rank0/run0"]).runs] == ["rank0/run0"]
    with pytest.raises(RewriterError, match="no run rank0/run7") as caught:
        model.report(dump, runs=["rank0/run7"])
    assert caught.value.slug == "no-such-run"
    assert "rank0/run0, rank0/run1" in caught.value.hint


@pytest.mark.parametrize(
    "wrong",
    [{"numel": "many"}, {"shape": 3}, {"nan": None}, {"min": "least"}, {"inf": math.inf}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_damaged_event_is_an_error(tmp_path: Path, wrong: Row) -> None:
    with pytest.raises(RewriterError) as caught:
        report_of(tmp_path, [{**row(0, "after", "y"), **wrong}])
    assert caught.value.slug == "corrupt-dump"


def test_an_event_without_its_role_is_an_error(tmp_path: Path) -> None:
    event = row(0, "after", "y")
    del event["role"]
    with pytest.raises(RewriterError, match="line 1: a row without 'role'"):
        report_of(tmp_path, [event])


@pytest.mark.parametrize(
    "extreme",
    [{"min": -(10**400)}, {"max": 10**400}, {"std": "inf"}, {"min": "-inf", "max": "nan"}],
)
def test_numbers_beyond_every_type_are_shown_as_unknown(tmp_path: Path, extreme: Row) -> None:
    report = report_of(tmp_path, [*step(0), {**row(1, "after", "y"), **extreme}])
    assert not report.found
    assert "#1" in page(report)
    printed = as_json(ReportDocument(report=report))
    jsonschema.validate(json.loads(json.dumps(printed, allow_nan=False)), SCHEMA)


@pytest.mark.parametrize("started", [1e30, -1e30, 10**400, "yesterday", None])
def test_a_moment_outside_the_calendar_is_unknown(tmp_path: Path, started: object) -> None:
    run = write_run(tmp_path / "rank0/run0", step(0))
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "started": started}))
    assert model.report(open_dump(run)).runs[0].started == ""
    (_, launch) = launch_log.events(open_dump(run).runs, sources.of_dump())
    assert launch["timestamp"].startswith("1970-01-01")


def test_a_file_of_something_else_is_a_note(tmp_path: Path) -> None:
    rows = [row(0, "after", name, file=f"{name}.pt") for name in ("x", "y")]
    dump = write_dump(tmp_path / "x.dump", rows)
    torch.save(torch.zeros(3), dump / "rank0/run0/x.pt")
    torch.save(torch.zeros(8, 32), dump / "rank0/run0/y.pt")
    report = model.report(open_dump(dump))
    assert texts(report, "note") == [
        "x of #0 kernel_0 has no histogram: its file holds f32[3], not f32[8, 32]."
    ]
    printed = json.loads(json.dumps(as_json(ReportDocument(report=report))))
    jsonschema.validate(printed, SCHEMA)
    x, y = printed["runs"][0]["launches"][0]["values"]
    assert "histogram" not in x
    assert "note" not in y
    assert sum(y["histogram"]["counts"]) == 256


def test_a_comparison_of_numbers_beyond_every_type(tmp_path: Path) -> None:
    comparison = compared(4, 2)
    (run,) = comparison.runs
    (result,) = run.launches[2].results
    huge = structs.replace(result.a, max=10**400, min="-inf")
    result = replace(result, basis="statistics", metrics=None, a=huge, b=huge)
    launches = (*run.launches[:2], replace(run.launches[2], results=(result,)))
    text = page(compared_report(replace(comparison, runs=(replace(run, launches=launches),))))
    assert "cpp_fused_add_2" in text


def test_an_impossible_name_of_an_artifact_gives_no_sources(tmp_path: Path) -> None:
    root = write_dump(tmp_path / "x.dump", step(0), artifact="x" * 5000)
    (folder,) = root.glob("rank0/run0")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "artifact": "x" * 5000}))
    assert sources.of_dump()(open_dump(root).runs[0]) == {}


class Elements(HTMLParser):
    """The elements of a page, and the text in each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            tag = self.tags[-1][0]
            self.texts[tag] = self.texts.get(tag, "") + data


def scripts(text: str) -> list[Any]:
    """What the page holds as JSON: the runs, then what they share."""
    found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    return [json.loads(data) for data in found]


def hostile_report(folder: Path) -> Report:
    rows = [
        row(0, "before", HOSTILE, role="in", kernel=HOSTILE),
        row(0, "after", HOSTILE, kernel=HOSTILE, nan=1, device=HOSTILE, file=HOSTILE),
    ]
    root = folder / "hostile.dump"
    table = [{**entry(0, HOSTILE), "scope": HOSTILE, "source_nodes": [HOSTILE]}]
    write_run(root / "rank0/run0", rows, table)
    (root / "manifest.json").write_text(json.dumps({"artifact": HOSTILE, "command": HOSTILE}))
    kernels = {HOSTILE: HOSTILE + "\ud800"}
    return model.report(open_dump(root), sources=lambda run: kernels)


def test_nothing_of_a_dump_becomes_markup(tmp_path: Path) -> None:
    text = page(hostile_report(tmp_path), command=HOSTILE)
    elements = Elements(text)
    kinds = [tag for tag, _ in elements.tags]
    assert kinds.count("script") == 5  # the run, the sources, two libraries, the script
    assert not {"img", "iframe", "object", "link"} & set(kinds)
    assert not [name for _, attributes in elements.tags for name in attributes if name[:2] == "on"]
    assert HOSTILE.split("\u2028")[0] in elements.texts["code"]
    _, shared = scripts(text)
    assert HOSTILE in shared["strings"]
    assert shared["sources"] == ["", HOSTILE + "?"]


MARKS = "\u202e\u2066\u2069\u200f\u061c"


def test_marks_of_direction_are_shown_as_escapes(tmp_path: Path) -> None:
    kernel = f"k{MARKS}k"
    rows = step(0, kernel=kernel, nan=1, device=kernel)
    dump = open_dump(write_dump(tmp_path / "model.dump", rows))
    report = model.report(dump, sources=lambda run: {kernel: f"x = 1  # {kernel}"})
    report = replace(report, title=kernel)
    text = page(report, command=kernel)
    assert not set(MARKS) & set(text)
    shown = r"k\u202e\u2066\u2069\u200f\u061ck"
    assert shown in Elements(text).texts["bdi"]
    _, shared = scripts(text)
    assert shown in shared["strings"]
    assert shared["sources"] == ["", f"x = 1  # {shown}"]


def test_words_from_right_to_left_are_isolated(tmp_path: Path) -> None:
    text = page(report_of(tmp_path, step(0, kernel="\u05d0\u05d1", nan=1)))
    words = '<bdi dir="ltr">\u05d0\u05d1:</bdi> 1 of 256 elements of buf0'
    assert f"NaN first appears at #0 {words}" in text
    assert isolated("<b> \u0627\u2028&") == ('&lt;b&gt; <bdi dir="ltr">\u0627</bdi>\u2028&amp;')
    assert isolated("plain <text>") == "plain &lt;text&gt;"


def test_the_page_refers_to_nothing_outside(tmp_path: Path) -> None:
    text = page(report_of(tmp_path, step(0)))
    elements = Elements(text)
    for tag, attributes in elements.tags:
        assert not {"src", "srcset", "data", "action", "style"} & set(attributes), tag
        assert attributes.get("href", "#").startswith("#")
    policy = next(a["content"] for tag, a in elements.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_is_of_use_without_javascript(tmp_path: Path) -> None:
    text = page(report_of(tmp_path, many(60, 40)))
    elements = Elements(text)
    for tag, attributes in elements.tags:
        classes = (attributes.get("class") or "").split()
        if {"controls", "show", "choose"} & set(classes):
            assert "hidden" in attributes, tag
    assert "NaN first appears at #40" in elements.texts["h1"] + elements.texts["span"]
    assert text.count('<th scope="row">#') == 50


def test_the_same_dump_gives_the_same_page(tmp_path: Path) -> None:
    report = report_of(tmp_path, many(30, 20))
    assert page(report) == page(report)


def test_sources_are_stored_once_and_only_of_kernels_that_ran(tmp_path: Path) -> None:
    rows = [r for index in range(50) for r in step(index, kernel="again")]
    dump = open_dump(write_dump(tmp_path / "model.dump", rows))
    kernels = {"again": "int twelve;", "never": "int thirteen;"}
    report = model.report(dump, sources=lambda run: kernels)
    assert page(report).count("int twelve;") == 1
    assert "int thirteen;" not in page(report)


WRAPPER = """\
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_log_0 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
// {what}
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {{}}
''')
async_compile.wait(globals())
del async_compile

def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((8, 32), (32, 1), torch.float32)
    cpp_fused_log_0(arg0_1, buf0)
    return (buf0, )
"""


def two_wrappers(root: Path, names: Sequence[str], *, hashed: bool = True) -> Path:
    """A dump of two wrappers that both hold `cpp_fused_log_0`, each called once."""
    rows = step(0, kernel="cpp_fused_log_0", nan=1)
    write_dump(root, rows, rows, artifact=names[0])
    for number, name in enumerate(names):
        source = WRAPPER.format(what=f"source {number}").encode()
        (root / name).write_bytes(source)
        file = root / f"rank0/run{number}/run.json"
        facts = {**json.loads(file.read_text()), "artifact": name}
        if hashed:
            facts["sha256"] = hashlib.sha256(source).hexdigest()
        file.write_text(json.dumps(facts))
    return root


@pytest.mark.parametrize("hashed", [True, False], ids=["hashed", "of an early version"])
def test_sources_belong_to_the_wrapper_that_was_called(tmp_path: Path, hashed: bool) -> None:
    dump = open_dump(two_wrappers(tmp_path / "x.dump", ["a.py", "b.py"], hashed=hashed))
    report = model.report(dump)
    for number, run in enumerate(report.runs):
        assert f"// source {number}" in run.launches[0].source
    assert dict(report.facts)["Artifact"] == "a.py, b.py"
    assert "2 wrappers" in page(report)
    assert "// source 0" in page(report)
    assert "// source 1" in page(report)
    report = model.report(dump, runs=["rank0/run1"])
    assert dict(report.facts)["Artifact"] == "b.py"
    assert "// source 0" not in page(report)


def test_of_two_wrappers_with_one_name_the_hash_tells(tmp_path: Path) -> None:
    dump = open_dump(two_wrappers(tmp_path / "x.dump", ["a.py", "a.py"]))
    found = [sources.of_dump()(run) for run in dump.runs]
    assert found[0] == {}  # the copy is of the other one
    assert "// source 1" in found[1]["cpp_fused_log_0"]


def test_a_comparison_has_the_sources_of_the_wrappers_that_were_called(tmp_path: Path) -> None:
    a = two_wrappers(tmp_path / "a.dump", ["a.py", "b.py"])
    b = two_wrappers(tmp_path / "b.dump", ["a.py", "b.py"])
    text = page(compared_report(compare(a, b)))
    *runs, shared = scripts(text)
    shown = [shared["sources"][shared["facts"][run[0][0]][7]] for run in runs]
    assert ["// source 0" in shown[0], "// source 1" in shown[1]] == [True, True]
    assert "2 wrappers" in text


def run_report(*arguments: object) -> int:
    return cli.main(["report", *map(str, arguments)])


def test_the_command_writes_a_page_and_tells_of_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = write_dump(tmp_path / "there/good.dump", step(0))
    bad = write_dump(tmp_path / "there/bad.dump", step(0, nan=1))
    assert run_report(good) == 0
    assert run_report(bad, "-o", "bad.html") == 1
    assert "NaN first appears at #0 kernel_0." in capsys.readouterr().out
    assert (tmp_path / "good.dump.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "bad.html").is_file()
    before = (tmp_path / "bad.html").read_bytes()
    assert run_report(good, "-o", "bad.html") == 2
    assert (tmp_path / "bad.html").read_bytes() == before
    assert run_report(good, "-o", "bad.html", "--overwrite") == 0
    assert (tmp_path / "bad.html").read_bytes() != before


def test_a_name_cannot_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = step(0, nan=1, kernel="k\x1b[2J\r\u202e\x9b\ud800é")
    assert run_report(write_dump(tmp_path / "x.dump", rows), "-o", tmp_path / "x.html") == 1
    out, err = capsys.readouterr()
    assert all(line.isprintable() for told in (out, err) for line in told.splitlines())
    assert r"#0 k\x1b[2J\r\u202e\x9b\ud800é." in out


def test_the_page_on_standard_output(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    dump = write_dump(tmp_path / "good.dump", step(0))
    assert run_report(dump, "-o", "-") == 0
    assert capsysbinary.readouterr().out.startswith(b"<!DOCTYPE html>")
    assert run_report(dump, "-o", "-", "--json") == 2


def test_json_is_what_the_schema_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        row(None, "inputs", "arg0_1", role="in"),
        {"launch": 0, "phase": "before", "kernel": "k", "arg": "s", "role": "in", "type": "int",
         "value": "3"},
        *step(0, kernel="k", std="inf", sha256="0" * 64),
        row(1, "after", "c", of="magnitude", min=None, max=None, mean=None, std=None, nan=256),
        step(2)[0],
    ]  # fmt: skip
    assert run_report(write_dump(tmp_path / "x.dump", rows, rows), "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(printed, SCHEMA)
    assert [finding["kind"] for finding in printed["findings"]] == ["unfinished", "nan"]
    assert {finding["times"] for finding in printed["findings"]} == {2}
    assert len(printed["runs"]) == 2
    launches = printed["runs"][0]["launches"]
    assert [launch["launch"] for launch in launches] == [None, 0, 1, 2]
    assert launches[1]["values"][1]["std"] == "inf"
    assert not list(tmp_path.glob("*.html"))


def test_a_comparison_names_the_culprit() -> None:
    report = compared_report(compared(40, 14))
    assert report.verdict == "Different: the runs diverge at #14 cpp_fused_add_14 (line 14)."
    assert texts(report) == [
        "#14 cpp_fused_add_14 differs (numeric): its inputs are equal within tolerance.",
        "26 of 41 launches differ, 25 of them because of what they were given; "
        "the first is #14 cpp_fused_add_14.",
    ]
    assert texts(report, "note") == [
        "1 launch has no counterpart in the other dump, the first #40 cpp_fused_add_40.",
        "Runs of one dump alone: A rank0/run1.",
    ]
    facts = dict(report.facts)
    assert (facts["torch, A"], facts["torch, B"], facts["Device"]) == ("2.14.0", "2.13.0", "cpu")


def test_culprits_of_every_kind_are_named() -> None:
    assert texts(compared_report(beginnings()))[:5] == [
        "The inputs of the call differ (numeric).",
        "#2 cpp_fused_add_2: an error begins here.",
        "#4 cpp_fused_add_4 differs (numeric): its inputs are equal within tolerance.",
        "#5 cpp_fused_add_5 differs (numeric): what reads it differs.",
        "The outputs of the call differ (numeric).",
    ]


def test_equal_dumps_have_no_finding() -> None:
    report = compared_report(compared(10, 99))
    assert not report.found
    assert report.verdict.startswith("Equal: 10 ")


def test_the_page_of_a_comparison_shows_the_errors() -> None:
    text = page(compared_report(compared(40, 14)), command="rewriter compare a b --html c.html")
    elements = Elements(text)
    _, shared = scripts(text)
    assert shared["marks"] == [{"14": "differs here"}]
    assert "[1, 7]: 1.001 in A, 1 in B" in text
    assert "rewriter compare a b --html c.html" in elements.texts["code"]


def test_a_comparison_says_what_wrote_the_inputs_in_each_dump(tmp_path: Path) -> None:
    dumps = [tmp_path / "a.dump", tmp_path / "b.dump"]
    for number, dump in enumerate(dumps):
        made = row(number, "after", f"buf{number}", kernel="k")
        before = row(5 + number, "before", f"buf{8 + number}", role="inout", kernel="f")
        after = {**before, "phase": "after", "max": 2.0 + number}
        weight = row(5 + number, "before", "w", role="in", kernel="f")
        table = [
            {"launch": number, "kernel": "k", "scope": "call", "line": 7 + number},
            {"launch": 5 + number, "kernel": "f", "scope": "call",
             "buffers": {f"buf{8 + number}": f"buf{number}"}},
        ]  # fmt: skip
        inputs = row(None, "inputs", "w", role="in")
        write_run(dump / "rank0/run0", [inputs, made, weight, before, after], table)
        write_dump(dump)
    text = page(compared_report(compare(*dumps)))
    shown = re.findall(r'<td class="from">(.*?)</td>', text)
    assert shown == [
        *["an input of the call"] * 2,
        "written by #0 k (line 7) as buf0",
        "written by #1 k (line 8) as buf1",
        *[""] * 2,
    ]
    assert "<h1>A a.dump and B b.dump</h1>" in text
    assert "expected" not in text.partition("<script")[0]


def test_statistics_alone_give_an_estimate() -> None:
    comparison = compared(4, 2)
    (run,) = comparison.runs
    launch = run.launches[2]
    (result,) = launch.results
    a = structs.replace(result.a, max=1.5)
    by_statistics = replace(result, basis="statistics", metrics=None, a=a)
    launch = replace(launch, results=(by_statistics,))
    launches = (*run.launches[:2], launch, *run.launches[3:])
    report = compared_report(replace(comparison, runs=(replace(run, launches=launches),)))
    difference = report.runs[0].launches[2].difference
    assert difference is not None
    (how,) = map(error_of, difference.results)
    assert how.estimated
    assert how.error == pytest.approx(0.5)
    assert how.allowed == pytest.approx(1.13e-5)


def test_without_histograms_no_torch_is_imported(tmp_path: Path) -> None:
    dump, output = write_dump(tmp_path / "x.dump", step(0)), tmp_path / "x.html"
    modules = imported_by(["report", dump, "-o", output])
    assert modules.isdisjoint({"torch", "numpy", "libcst"})
    assert output.is_file()


def test_what_a_diagnosis_found_is_a_finding_with_its_command(tmp_path: Path) -> None:
    dump = open_dump(write_dump(tmp_path / "model.dump", [*step(0), *step(1)]))
    about = {"run": "rank0/run0", "launch": 1, "kernel": "kernel_1", "text": ("  expected 1",)}
    wrong = Finding("wrong", "does not compute what it claims", "shown by its graph", **about)
    again = replace(wrong, run="rank0/run7")
    report = model.report(dump, diagnosis=Diagnosis((wrong, again), (), next="rewriter repro x"))
    (finding,) = report.findings
    assert finding.launch is not None
    assert finding.launch.position == 1
    assert finding.text.endswith(" expected 1")
    assert "kernel_1 does not compute what it claims" in report.verdict
    text = page(report)
    assert "<code>rewriter repro x</code>" in text
    assert "computes something else" in text
    # What no values show is a finding, too: the page does not say that all is well.
    outputs = Finding(
        "outputs", "the call returns something else", "", whole=True, run="rank0/run0"
    )
    report = model.report(dump, diagnosis=Diagnosis((outputs,), ()))
    assert report.found
    assert report.verdict.startswith("The call returns something else")
    assert model.report(dump, diagnosis=Diagnosis((), ())).verdict.startswith(
        "No launch was checked"
    )
    possible = replace(wrong, certainty="possible")
    assert not model.report(dump, diagnosis=Diagnosis((possible,), ())).found


def test_what_to_type_next(tmp_path: Path) -> None:
    """For values that nothing judges, how they are checked."""
    dump = open_dump(write_dump(tmp_path / "model.dump", [*step(0)]))
    told = replace(dump, manifest=structs.replace(dump.manifest, command="rewriter run -- a b"))
    assert model.report(dump).next is None
    following = model.report(told).next
    assert following is not None
    assert following.command == "rewriter diagnose -- a b"
    # A NaN is what its verdict says; where the values are there, how to look at the launch alone.
    dump = open_dump(write_dump(tmp_path / "nan.dump", [*step(0, nan=1)]))
    assert model.report(dump).next is None
    saved = step(0, nan=1, file="x.pt")
    for runs, call in (([saved], ""), ([step(0), saved], " --run rank0/run1")):
        path = write_dump(tmp_path / f"saved {len(runs)}.dump", *runs)
        following = model.report(open_dump(path)).next
        assert following == (f"rewriter repro '{path}' --launch 0{call}", "this launch alone")


def test_what_to_type_after_a_comparison() -> None:
    comparison = compared(8, 3)
    assert compared_report(comparison).next is None  # the programs are not known
    a, b = (structs.replace(comparison.manifest_a, command=f"rewriter run -- {x}") for x in "ab")
    told = replace(comparison, manifest_a=a, manifest_b=b)
    following = compared_report(told).next
    assert following is not None
    again = "rewriter run --probe save --args all --launches 3 -d"
    assert following.command.splitlines() == [
        f"{again} a-3.dump -- a",
        f"{again} b-3.dump -- b",
        "rewriter compare a-3.dump b-3.dump",
    ]
    assert f"<code>{following.command}</code>" in page(compared_report(told))
    # Ranks are in one dump.
    ranks = replace(told, a=Path("x.dump/rank1"), b=Path("x.dump/rank0"), manifest_b=a)
    commands, _ = after_comparison(ranks) or ("", "")
    assert commands.splitlines() == [
        f"{again} ranks-3.dump -- a",
        "rewriter compare ranks-3.dump --ranks",
    ]
    (run,) = told.runs
    launch = run.launches[3]
    saved = [
        replace(x, a=structs.replace(x.a, file="x.pt"), b=structs.replace(x.b, file="x.pt"))
        for x in launch.reads
    ]
    launches = (*run.launches[:3], replace(launch, reads=tuple(saved)))
    assert after_comparison(replace(told, runs=(replace(run, launches=launches),))) == (
        "rewriter repro dumps/new.dump --launch 3 -o repro-a\n"
        "rewriter repro dumps/expected.dump --launch 3 -o repro-b",
        "this launch alone, from each dump",
    )
