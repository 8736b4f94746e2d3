"""A statistic of each launch over the calls of a dump, as text, in the page, and as JSON."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from report_dumps import row, step, write_dump
from rewriter import cli
from rewriter.dump import names
from rewriter.dump.names import Input, Names, SourceLine
from rewriter.dump.reading import open_dump
from rewriter.report import trends
from rewriter.report.trends import levels, sparkline


def _time(launch: int, duration: float) -> dict[str, Any]:
    time = {"start_us": 0.0, "duration_us": duration, "clock": "host"}
    return {"launch": launch, "phase": "after", "kernel": f"kernel_{launch}", "time": time}


def _dump(root: Path, calls: int) -> Path:
    """Values that stay, that grow, and of which one call has NaN."""
    return write_dump(
        root,
        *(
            [
                *step(0, size=2.0),
                *step(1, size=1.01**n, nan=int(n == 5)),
                row(2, "after", "buf2", std="nan" if n == 5 else math.sin(n) + 2),
                _time(2, 10.0 + n % 3),
            ]
            for n in range(calls)
        ),
    )


def test_what_varies_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = _dump(tmp_path / "x.dump", 8)
    assert cli.main(["report", str(dump), "--trend", "std"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model.py: 8 calls, the 1st to the 8th"
    assert lines[1] == "1 value the same in all calls"
    head = "launch kernel model value std over calls first last min max"
    assert lines[2].split() == head.split()
    assert lines[3].split()[:4] == ["#1", "kernel_1", "buf1", "▁▂▃▄▅▆▇█"]
    assert lines[4].split()[3][5] == "x"
    assert not list(tmp_path.glob("*.html"))
    assert cli.main(["report", str(dump), "--trend", "time"]) == 1
    assert "▁▅█▁▅█▁▅" in capsys.readouterr().out
    assert cli.main(["report", str(dump), "--trend", "nan"]) == 1
    assert "▁▁▁▁▁█▁▁" in capsys.readouterr().out


def test_the_model_s_names_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the part, the calls and the launches; the page begins with the line of the first NaN."""
    dump = _dump(tmp_path / "x.dump", 8)
    library = SourceLine("/usr/lib/python3/site-packages/torch/nn/f.py", 7, "f", "return x")
    lines = {1: (library, SourceLine("/home/user/net.py", 9, "forward", "y = x.log()"))}
    known = Names(lines=lines, graph="net (net.py:3)", direction="forward")
    (sha256,) = {run.sha256 for run in open_dump(dump).runs}
    names.write(dump, {sha256: known})
    assert cli.main(["report", str(dump), "--trend", "std"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "forward of net (net.py:3): 8 calls, the 1st to the 8th"
    assert out[3].split()[:4] == ["#1", "kernel_1", "net.py:9", "f.py:7"]
    cli.main(["report", str(dump), "-o", str(tmp_path / "page.html")])
    text = (tmp_path / "page.html").read_text()
    assert "Magnitude over the calls of forward of net (net.py:3)" in text
    assert '"8th call, rank0/run7"' in text
    opening = text[text.index('<p class="verdict') : text.index("</header>")]
    assert "at <code>net.py:9 in forward: y = x.log()</code>" in opening
    assert "f.py:7" not in opening


def test_an_input_with_nan_is_called_as_in_the_model(tmp_path: Path) -> None:
    given = row(None, "inputs", "arg0_1", role="in", nan=7)
    dump = write_dump(tmp_path / "x.dump", [given, *step(0)])
    (sha256,) = {run.sha256 for run in open_dump(dump).runs}
    names.write(dump, {sha256: Names(inputs={"arg0_1": Input("net.weight")})})
    cli.main(["report", str(dump), "-o", str(tmp_path / "page.html")])
    said = "NaN is in the inputs of the call: 7 of 256 elements of net.weight."
    assert said in (tmp_path / "page.html").read_text()


def test_two_calls_have_no_trend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = _dump(tmp_path / "x.dump", 2)
    assert cli.main(["report", str(dump), "--trend", "std"]) == 0
    assert "no statistic of a launch over several calls" in capsys.readouterr().out
    assert cli.main(["report", str(dump), "-o", str(tmp_path / "page.html")]) == 0
    assert "Trends" not in (tmp_path / "page.html").read_text()


def test_the_page_and_the_document_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = _dump(tmp_path / "x.dump", 6)
    cli.main(["report", str(dump), "-o", str(tmp_path / "page.html")])
    text = (tmp_path / "page.html").read_text()
    assert "Trends: std over calls" in text
    assert re.findall(r'<span class="trend"[^>]*>(.*?)</span>', text) == ["▁▂▄▅▇█", "▄██▅▁x"]
    capsys.readouterr()
    cli.main(["report", str(dump), "--json"])
    assert "trends" not in json.loads(capsys.readouterr().out)
    cli.main(["report", str(dump), "--json", "--trend", "magnitude"])
    found = json.loads(capsys.readouterr().out)["trends"]
    assert (found["statistic"], found["rank"], found["total"]) == ("magnitude", 0, {"model.py": 6})
    assert [one["arg"] for one in found["rows"]] == ["buf0", "buf1", "buf2"]
    assert found["rows"][1]["values"] == [1.01**n for n in range(6)]


def test_of_many_calls_some_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "SAMPLES", 10)
    dump = open_dump(_dump(tmp_path / "x.dump", 91))
    found = trends.trends(dump.runs, "std")
    assert found.calls["model.py"] == tuple(f"rank0/run{n}" for n in range(0, 91, 10))
    assert found.total == {"model.py": 91}
    assert [row.values[-1] for row in found.rows[:2]] == [1.0, 1.01**90 / 2]


def test_levels() -> None:
    assert levels([], 4) == []
    assert levels([2.0, 2.0], 4) == [0.0, 0.0]
    assert levels([1.0, None, 3.0], 4) == [0.0, None, 1.0]
    assert levels([1.0, 10.0, 1000.0], 4) == pytest.approx([0.0, 1 / 3, 1.0])  # logarithm
    assert levels([-1.0, 0.0, 1000.0], 4) == pytest.approx([0.0, 1 / 1001, 1.0])
    assert levels([0.0, 5.0, 1.0, 2.0], 2) == [1.0, 0.4]  # of neighbours the largest
    assert levels([-1.7e308, 0.0, 1.7e308], 4) == [0.0, 0.5, 1.0]  # no number is as large as that
    assert sparkline([None, None]) == "xx"
