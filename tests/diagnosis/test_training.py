"""A NaN in a backward: its forward is named, and what that kept is followed to who wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dumps
from rewriter.core.documents import as_json
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.training import Forward
from rewriter.diagnosis.verdict_text import describe
from rewriter.dump import names as dumped
from rewriter.dump.names import Input, Names, SourceLine
from rewriter.dump.reading import open_dump

LINE = SourceLine("/home/user/model.py", 9, "model", "gate = linear(x).sqrt()")
FORWARD = Names(
    graph="model (model.py:9)", direction="forward", partner="bw.py", lines={0: (LINE,)}
)
BACKWARD = Names(
    inputs={"sqrt": Input("", "model.py:9"), "primals_1": Input("x", "model.py:9")},
    lines={0: (LINE,)},
    computes={0: ("div = aten.div.Tensor(tangents_1, sqrt)",)},
    graph="model (model.py:9)",
    direction="backward",
    partner="fw.py",
    saved={"sqrt": "buf1", "primals_1": "primals_1"},
)


def forward(dump: Path, run: int, mean: float, **facts: int) -> None:
    """A call of the forward, which keeps `buf1`."""
    given = dumps.value("primals_1", mean=mean)
    launches = [dumps.launch(0, "cpp_fused_sqrt_0", [given], [dumps.value("buf1", "out", mean)])]
    more: dict[str, Any] = {"sha256": "f" * 64, "outputs": ["buf1", "primals_1"], **facts}
    dumps.write(dump, launches, inputs=[given], run=run, artifact="fw.py", **more)


def backward(dump: Path, run: int, given: list[Any], nan: int) -> None:
    """A call of the backward, which is given what a call of the forward kept."""
    launches = [dumps.launch(0, "cpp_fused_div_0", given, [dumps.value("buf3", "out", nan=nan)])]
    dumps.write(dump, launches, inputs=given, run=run, artifact="bw.py", sha256="b" * 64)


def kept(mean: float) -> list[Any]:
    return [dumps.value("sqrt", mean=mean), dumps.value("primals_1", mean=mean)]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two steps whose forwards both come before the backwards, which come in the other order."""
    forward(tmp_path, 0, 1.0)
    forward(tmp_path, 1, 2.0)
    backward(tmp_path, 2, kept(2.0), nan=0)
    backward(tmp_path, 3, kept(1.0), nan=5)
    dumped.write(tmp_path, {"f" * 64: FORWARD, "b" * 64: BACKWARD})
    return tmp_path


def test_the_verdict_names_the_forward_and_who_wrote_what_it_kept(dump: Path) -> None:
    (verdict,) = nonfinite.search(dump).verdicts
    text = describe(verdict, next_command="")
    assert "  backward of model (model.py:9), its forward is fw.py\n" in text
    assert "  at model.py:9 in model: gate = linear(x).sqrt()\n" in text
    # Not the call of the forward that was last, but the one with the same values.
    written = "buf1 of its forward (rank0/run0), written by #0 cpp_fused_sqrt_0 (line 100)"
    assert f"an input of the call: {written}\n" in text
    assert "an input of the call: primals_1 of its forward (rank0/run0), an input of that" in text
    assert "not measured" not in text
    document = as_json(verdict)
    assert (document["model"], document["partner"]) == ("model (model.py:9)", "fw.py")
    assert [*document["computes"]] == ["div = aten.div.Tensor(tangents_1, sqrt)"]
    assert document["lines"][0]["line"] == 9
    (saved,) = (x["saved"] for x in document["arguments"] if x["arg"] == "sqrt")
    assert (saved["run"], saved["variable"]) == ("rank0/run0", "buf1")
    assert saved["producer"]["kernel"] == "cpp_fused_sqrt_0"
    assert not any("saved" in x for x in document["arguments"] if x["arg"] == "buf3")


def test_a_forward_of_other_values_is_none(dump: Path) -> None:
    backward(dump, 4, kept(3.0), nan=0)
    opened = open_dump(dump)
    (run,) = (one for one in opened.runs if one.number == 4)
    found = Forward(opened, run)
    assert found.run is None
    assert found.saved("sqrt") is None
    assert not found.is_missing


def test_a_forward_of_another_process_is_none(tmp_path: Path) -> None:
    forward(tmp_path, 0, 1.0, pid=2)
    backward(tmp_path, 1, kept(1.0), nan=5)
    dumped.write(tmp_path, {"f" * 64: FORWARD, "b" * 64: BACKWARD})
    (verdict,) = nonfinite.search(tmp_path).verdicts
    assert all(argument.saved is None for argument in verdict.arguments)


def test_a_nan_that_comes_in_says_that_the_forward_was_not_recorded(tmp_path: Path) -> None:
    backward(tmp_path, 0, [dumps.value("sqrt", nan=3)], nan=0)
    dumped.write(tmp_path, {"b" * 64: BACKWARD})
    (verdict,) = nonfinite.search(tmp_path).verdicts
    assert verdict.state == "given"
    assert any("Its forward, fw.py, has no record here" in note for note in verdict.notes)
