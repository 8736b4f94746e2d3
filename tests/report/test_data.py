"""`rewriter report -o`: a dump as a table and as a trace, in a browser and in a notebook."""

from __future__ import annotations

import html
import json
import webbrowser
from pathlib import Path

import pytest
from pyarrow import feather, parquet

import rewriter
from report_dumps import row, write_dump
from rewriter.cli import main


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        row(None, "inputs", "arg0_1", role="in", shape=[2, 3], min=-1.5, max=2.0),
        {"launch": 0, "phase": "after", "kernel": "kernel_0", "arg": "s0", "role": "in",
         "type": "int", "value": "7"},
        row(0, "after", "buf0", nan=1, min="-inf"),
    ]  # fmt: skip
    return write_dump(tmp_path / "dump", rows)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_table_has_a_row_for_each_value(suffix: str, dump: Path) -> None:
    assert main(["report", str(dump), "-o", f"dump.{suffix}"]) == 0
    read = parquet.read_table if suffix == "parquet" else feather.read_table
    made = read(f"dump.{suffix}")
    assert made.equals(rewriter.table(dump))
    inputs, scalar, result = made.to_pylist()
    assert (inputs["phase"], inputs["launch"], inputs["shape"]) == ("inputs", None, [2, 3])
    assert (inputs["arg"], inputs["min"], inputs["max"]) == ("arg0_1", -1.5, 2.0)
    assert (scalar["arg"], scalar["dtype"], scalar["value"], scalar["min"]) == (
        "s0", "int", "7", None
    )  # fmt: skip
    assert (result["launch"], result["kernel"], result["role"]) == (0, "kernel_0", "out")
    assert (result["nan"], result["min"], result["wrapper"]) == (1, float("-inf"), "model.py")


def test_a_log_for_tritonparse_has_kernels_and_launches(dump: Path) -> None:
    assert main(["report", str(dump), "-o", "dump.ndjson"]) == 0
    kernel, launch = map(json.loads, Path("dump.ndjson").read_text().splitlines())
    assert (kernel["event_type"], launch["event_type"]) == ("compilation", "launch")
    metadata = {"hash": launch["compilation_metadata"]["hash"], "name": "kernel_0"}
    assert kernel["payload"]["metadata"] == launch["compilation_metadata"] == metadata
    # What the schemas of tritonparse require.
    assert {"pid", "timestamp", "payload"} < kernel.keys()
    assert {"pid", "timestamp", "name", "grid"} < launch.keys()
    number, tensor = launch["extracted_args"]["s0"], launch["extracted_args"]["buf0"]
    assert number == {"type": "int", "value": 7}
    assert (tensor["dtype"], tensor["nan"], tensor["min"]) == ("torch.float32", 1, "-inf")


def test_without_pyarrow_it_is_named(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert main(["report", str(dump), "-o", "dump.parquet"]) == 3
    assert "pip install pyarrow" in capfd.readouterr().err
    assert not Path("dump.parquet").exists()


def test_a_trace_needs_times(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(dump), "-o", "dump.json"]) == 2
    assert "--probe time" in capfd.readouterr().err
    time = {"launch": 0, "phase": "after", "kernel": "kernel_0",
            "time": {"start_us": 2.5, "duration_us": 4.0, "clock": "host"}}  # fmt: skip
    with (dump / "rank0/run0/events.jsonl").open("a") as events:
        events.write(json.dumps(time) + "\n")
    assert main(["report", str(dump), "-o", "dump.json"]) == 0
    traced = json.loads(Path("dump.json").read_text())["traceEvents"]
    (event,) = [event for event in traced if event["ph"] == "X"]
    assert (event["name"], event["ts"], event["dur"]) == ("kernel_0", 2.5, 4.0)


def test_what_a_table_does_not_need_is_refused(
    dump: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(dump), "-o", "dump.arrow", "--open", "--trend", "std"]) == 2
    assert "--trend, --open given, but dump.arrow is no page" in capfd.readouterr().err
    assert main(["report", str(dump), "--json", "--open"]) == 2
    assert "no page is written" in capfd.readouterr().err
    assert main(["report", str(dump), "-o", "dump.csv"]) == 2
    assert "no report is written as .csv" in capfd.readouterr().err
    assert not Path("dump.csv").exists()
    Path("dump.arrow").write_text("mine")
    assert main(["report", str(dump), "-o", "dump.arrow"]) == 2
    assert Path("dump.arrow").read_text() == "mine"


@pytest.mark.parametrize("found", [True, False])
def test_the_page_is_opened(
    found: bool, dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or found)
    assert main(["report", str(dump), "--open"]) == 1
    assert opened == [Path("dump.html").absolute().as_uri()]
    assert ("no browser was found" in capfd.readouterr().err) != found


def test_a_notebook_shows_the_page(dump: Path) -> None:
    page = rewriter.page(dump)
    assert main(["report", str(dump)]) == 1
    written = Path("dump.html").read_text()
    verdict = "NaN first appears at #0 kernel_0"
    assert verdict in page.html
    assert verdict in written
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert page.html in html.unescape(shown)
