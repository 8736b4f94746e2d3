"""Dumps with more than a page can show: all is looked through, some is shown in full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from report_dumps import row, step, write_dump
from rewriter import cli
from rewriter.dump.reading import open_dump
from rewriter.report import model, overview
from rewriter.report.page import page

CALLS = 240


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of many calls one has NaN, one a mask with infinities, and one ends early."""
    monkeypatch.setattr(overview, "_IN_FULL", 1000)
    monkeypatch.setattr(overview, "_SHOWN", 12_000)
    runs = []
    for number in range(CALLS):
        rows = [*step(0, size=number + 1), *step(1, nan=3 if number == 177 else 0)]
        if number == 33:
            rows[5] = row(1, "after", "buf1", inf=7)
        runs.append(rows[:3] if number == 101 else rows)
    return write_dump(tmp_path / "x.dump", *runs)


def test_calls_with_something_to_see_are_shown(dump: Path) -> None:
    report = model.report(open_dump(dump))
    shown = [run.name for run in report.runs]
    assert {"rank0/run177", "rank0/run101", "rank0/run33", "rank0/run0"} <= set(shown)
    assert shown == sorted(shown, key=lambda name: int(name[9:]))
    assert 4 <= len(shown) < 12
    assert len(report.calls) == CALLS
    assert "NaN" in report.verdict
    assert report.found
    assert (report.calls[177].nan, report.calls[33].inf, report.calls[5].magnitude) == (3, 7, 6.0)
    text = page(report)
    assert "240 calls with 479 launches were looked through" in text
    assert "Magnitude over the calls of" in text
    assert "479 launches" in text
    assert "240 runs" in text


def test_what_is_named_is_shown_however_much_that_is(dump: Path) -> None:
    names = [f"rank0/run{number}" for number in range(60)]
    report = model.report(open_dump(dump), runs=names)
    assert [run.name for run in report.runs] == names
    assert not report.calls


def test_the_verdict_is_about_all_calls(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (33, 101, 177):
        (dump / f"rank0/run{number}/events.jsonl").write_bytes(
            (dump / "rank0/run1/events.jsonl").read_bytes()
        )
    assert cli.main(["report", str(dump), "-o", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().out
    assert "No NaN and no infinity in what was recorded of 480 launches in 240 runs." in said
    assert cli.main(["report", str(dump), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["kind"] for one in found] == ["sampled"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"phase": 5}\n', id="type"),
        pytest.param(b'{"x": ' + b"[" * 99_999 + b"]" * 99_999 + b"}\n", id="depth"),
    ],
)
def test_a_line_that_is_none_is_an_error_as_in_a_small_dump(
    line: bytes, dump: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_SHOWN", 1_000_000)
    file = dump / "rank0/run200/events.jsonl"
    file.write_bytes(line + file.read_bytes())
    assert cli.main(["report", str(dump), "--json"]) == 2
    assert "error[corrupt-dump]" in capsys.readouterr().err


def test_hosts_and_ranks_without_a_record_are_named(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "x.dump", step(0), step(0), ranks=4)
    (dump / "rank0/run1").rename(tmp_path / "run1")
    for rank, host in ((0, "one"), (2, "two")):
        run = dump / f"rank{rank}/run0"
        if rank:
            run.parent.mkdir()
            (tmp_path / "run1").rename(run)
        facts = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**facts, "host": host}))
    shown = dict(model.report(open_dump(dump)).facts)
    assert shown["Hosts"] == "one, two"
    assert shown["Ranks"] == "2 of 4; no record of 1, 3"
    shown = dict(model.report(open_dump(dump), runs=["rank0/run0"]).facts)
    assert not {"Hosts", "Ranks"} & set(shown)
    shown = dict(model.report(open_dump(dump / "rank2")).facts)
    assert not {"Hosts", "Ranks"} & set(shown)
