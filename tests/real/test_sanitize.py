"""`rewriter sanitize` of a compiled wrapper, as it is and with a store beyond a buffer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capture import Compiled
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")

# The kernel's first output is buf0, of eight elements.
ALLOCATION = "buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)"
END = "\n}\n''')"


def test_a_store_beyond_a_buffer_is_named_and_a_clean_wrapper_is_clean(
    compiled: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = compiled("mutate").graphs[0]
    assert ALLOCATION in graph.source
    assert graph.source.count(END) == 1
    torch.save(graph.args, "inputs.pt")

    def sanitize(name: str, source: str) -> tuple[int, dict[str, Any]]:
        Path(name).write_text(source)
        code = main(["sanitize", name, "--args", "inputs.pt", "--json"])
        document: dict[str, Any] = json.loads(capfd.readouterr().out)
        return code, document

    code, clean = sanitize("clean.py", graph.source)
    assert (code, clean["findings"], clean["notes"]) == (0, [], [])
    assert len(clean["runs"]) == 2

    beyond = graph.source.replace(END, "\n    out_ptr0[8] = 2.5f;" + END)
    code, planted = sanitize("planted.py", beyond)
    assert code == 1
    finding = planted["finding"]
    assert planted["findings"] == [finding]
    assert (finding["kind"], finding["launch"], finding["certainty"]) == ("bounds", 0, "shown")
    assert "stores 2.5 out of bounds: directly behind buf0" in finding["headline"]
    (note,) = planted["notes"]
    assert note.startswith("outputs unchanged")


def test_a_wrapper_that_is_ended_by_a_signal_is_not_clean(
    compiled: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = compiled("mutate").graphs[0]
    Path("aborts.py").write_text(graph.source.replace(END, "\n    std::abort();" + END))
    torch.save(graph.args, "inputs.pt")
    assert main(["sanitize", "aborts.py", "--args", "inputs.pt", "--json"]) == 1
    finding = json.loads(capfd.readouterr().out)["finding"]
    assert (finding["kind"], finding["launch"]) == ("crash", 0)
    assert "fails, also without filling" in finding["headline"]
    assert "signal SIGABRT" in finding["headline"]


def test_a_run_without_bands_that_never_ends_is_stopped(
    compiled: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As where the store damages what the program itself waits for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rewriter.commands._sanitize.PATIENCE", 2.0)
    monkeypatch.setattr("rewriter.commands._sanitize.LONGER", 1)
    waits = """
    out_ptr0[8] = 2.5f;
    const char* fill = std::getenv("REWRITER_FILL");
    for (volatile int turn = 0; fill && fill[1] == 'f'; turn = turn + 1) {}"""
    graph = compiled("mutate").graphs[0]
    Path("waits.py").write_text(graph.source.replace(END, waits + END))
    torch.save(graph.args, "inputs.pt")
    assert main(["sanitize", "waits.py", "--args", "inputs.pt", "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert (document["finding"]["kind"], document["finding"]["launch"]) == ("bounds", 0)
    *filled, plain = document["runs"]
    assert [run["outcome"] for run in filled] == ["ran to its end"] * 2
    assert plain["outcome"] != "ran to its end"
    assert any("without filling it ends differently" in note for note in document["notes"])
