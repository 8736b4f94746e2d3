"""`rewriter sanitize` of a compiled wrapper, as it is and with a store beyond a buffer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from capture import Compiled

pytestmark = pytest.mark.usefixtures("warm_python")

# The kernel's first output is buf0, of eight elements.
ALLOCATION = "buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)"
END = "\n}\n''')"


def sanitized(name: str, source: str, code: int = 1) -> dict[str, Any]:
    Path(name).write_text(source)
    return programs.document("sanitize", name, "--args", "inputs.pt", code=code)


def test_a_store_beyond_a_buffer_is_named_and_a_clean_wrapper_is_clean(
    compiled: Callable[[str], Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = compiled("mutate").graphs[0]
    assert ALLOCATION in graph.source
    assert graph.source.count(END) == 1
    torch.save(graph.args, "inputs.pt")

    clean = sanitized("clean.py", graph.source, code=0)
    assert (clean["findings"], clean["notes"]) == ([], [])
    assert len(clean["runs"]) == 2

    beyond = graph.source.replace(END, "\n    out_ptr0[8] = 2.5f;" + END)
    planted = sanitized("planted.py", beyond)
    finding = planted["finding"]
    assert planted["findings"] == [finding]
    assert (finding["kind"], finding["launch"], finding["certainty"]) == ("bounds", 0, "shown")
    assert "stores 2.5 out of bounds: directly behind buf0" in finding["headline"]
    (note,) = planted["notes"]
    assert note.startswith("outputs unchanged")


def test_a_wrapper_that_is_ended_by_a_signal_is_not_clean(
    compiled: Callable[[str], Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = compiled("mutate").graphs[0]
    torch.save(graph.args, "inputs.pt")
    aborts = graph.source.replace(END, "\n    std::abort();" + END)
    finding = sanitized("aborts.py", aborts)["finding"]
    assert (finding["kind"], finding["launch"]) == ("crash", 0)
    assert "fails, also without filling" in finding["headline"]
    assert "signal SIGABRT" in finding["headline"]


def test_a_run_without_bands_that_never_ends_is_stopped(
    compiled: Callable[[str], Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    torch.save(graph.args, "inputs.pt")
    document = sanitized("waits.py", graph.source.replace(END, waits + END))
    assert (document["finding"]["kind"], document["finding"]["launch"]) == ("bounds", 0)
    *filled, plain = document["runs"]
    assert [run["outcome"] for run in filled] == ["ran to its end"] * 2
    assert plain["outcome"] != "ran to its end"
    assert any("without filling it ends differently" in note for note in document["notes"])
