"""The probe `nan` from the command line: where a NaN came in, which elements, and how `--stop` ends
a run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dump_schemas
import programs
import rewriter
from capture import Compiled
from harness import events
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def broken(mlp_wrapper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of the model with a NaN in one of its inputs, the largest weight: where that is."""
    monkeypatch.chdir(tmp_path)
    inputs = torch.load(mlp_wrapper.parent / "inputs.pt")
    place = max(range(len(inputs)), key=lambda n: inputs[n].numel())
    with torch.no_grad():
        inputs[place].view(-1)[7] = float("nan")
    torch.save(inputs, "broken.pt")
    return [str(mlp_wrapper), "--args", "broken.pt"]


def test_a_nan_that_came_in_and_where_it_is(broken: list[str], tmp_path: Path) -> None:
    printed = programs.document("run", *broken, "--probe", "nan", "-d", "D", code=1)
    (verdict,) = printed["verdicts"]
    assert (verdict["origin"], verdict["launch"]) == ("came in", None)
    (held,) = verdict["held"]
    assert (held["count"], held["where"]) == (1, "")
    assert verdict["passed_on"]
    # The values are saved by the command that it suggests.
    again = shlex.split(printed["next"])[1:]
    found = programs.document(*again, "-d", "E", "--quiet", code=1)
    (saved,) = found["verdicts"][0]["held"]
    assert saved["where"].startswith("the first at [0, 7]")
    assert not any("fingerprint" in row or "file" in row for row in events(tmp_path / "D"))
    dump_schemas.check(tmp_path / "D")


def test_a_run_that_is_stopped(
    broken: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = programs.rewriter("run", *broken, "--stop", "-d", "D", code=1)
    assert "verdict: the first NaN is in the inputs of the call: 1 of" in ran.stdout
    assert "stopped at the inputs: 1 of" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "crashed" not in ran.stderr
    stopped = json.loads((tmp_path / "D/stopped.json").read_text())
    (row,) = (x for x in _rows(tmp_path / "D") if x["nan"])
    assert (stopped["launch"], stopped["arg"]) == (None, row["arg"])
    allow = ["--allow", f"inputs:{row['arg']}", "--allow", "*:*"]
    assert main(["run", *broken, "--stop", *allow, "-d", "E"]) == 0
    assert "verdict" not in capfd.readouterr().out


def test_of_an_instrumented_wrapper_no_command_with_other_probes_is_suggested(
    broken: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """`run` refuses probe options for it."""
    wrapper, *inputs = broken
    assert main(["instrument", wrapper, "-o", "probed.py", "--probe", "print"]) == 0
    assert main(["run", "probed.py", *inputs]) == 1
    printed = capfd.readouterr().out
    assert "verdict: the first NaN is in the inputs" in printed
    assert "next:" not in printed


@pytest.mark.exhaustive
def test_a_cpp_wrapper_ends_its_program(
    compiled_cpp: Callable[[str], Compiled], tmp_path: Path
) -> None:
    graph = compiled_cpp("mlp").graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    args = list(graph.args)
    weight = max(range(len(args)), key=lambda n: args[n].numel())
    args[weight] = torch.full_like(args[weight], float("nan"))
    torch.save(args, tmp_path / "args.pt")
    path.write_bytes(rewriter.instrument(path, rewriter.select("nan", stop=True)).source)
    program = (
        "import sys, torch\n"
        "from torch._inductor.codecache import PyCodeCache\n"
        f"module = PyCodeCache.load_by_key_path('k', {str(path)!r})\n"
        "print('of the program')\n"
        f"module.call(torch.load({str(tmp_path / 'args.pt')!r}))\n"
        "print('not reached')\n"
    )
    ran = programs.run(sys.executable, "-c", program, code=1, cwd=tmp_path)
    assert "of the program\n" in ran.stdout
    assert "not reached" not in ran.stdout
    assert ran.stderr.startswith("[rewriter 0] stopped at the inputs: ")
    assert "Traceback" not in ran.stderr


def _rows(dump: Path) -> list[dict[str, Any]]:
    text = (dump / "rank0/run0/events.jsonl").read_text()
    return [row for row in map(json.loads, text.splitlines()) if "nan" in row]
