"""`rewriter sanitize`: what it refuses, and what it says without a run."""

from __future__ import annotations

import json

import pytest

from artifacts import get
from rewriter.cli import main

STREAMS, MLP = str(get("cuda-torch2.15/streams").path), str(get("cpu-torch2.13/mlp").path)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([MLP, "--only", "bound"], "bad-check"),
        ([MLP, MLP], "several-artifacts"),
        ([MLP, "--guard", "wide"], "bad-size"),
        ([MLP, "--guard", "100M"], "bad-size"),
        (["--guard", "1T", "--", "python", "x.py"], "bad-size"),
        (["--only", "race", "--", "python", "x.py"], "bad-check"),
        (["no.py"], "unreadable"),
    ],
)
def test_what_is_refused(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", *words]) == 2
    assert f"error[{error}]" in capsys.readouterr().err


@pytest.mark.parametrize("target", [[MLP], ["--", "python", "x.py"]], ids=["file", "program"])
@pytest.mark.parametrize(
    ("command", "variable", "value", "error"),
    [
        ("run --probe poison", "REWRITER_FILL", "nan", "bad-fill"),
        ("run --probe poison", "REWRITER_GUARD", "4K", "bad-size"),
        ("sanitize", "REWRITER_GUARD", "4K", "bad-size"),
        # These would leave a program without probes.
        ("run --probe hash", "REWRITER_CALLS", "zz", "bad-calls"),
        ("run --probe hash", "REWRITER_KEEP", "-3", "bad-number"),
        ("run --probe save", "REWRITER_MAX_BYTES", "much", "bad-size"),
        ("run --probe record", "REWRITER_RECORD_BYTES", "much", "bad-size"),
    ],
)
def test_variables_that_probes_cannot_use_are_refused(
    command: str,
    variable: str,
    value: str,
    error: str,
    target: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    assert main([*command.split(), *target]) == 2
    said = capsys.readouterr().err
    assert f"error[{error}]: {variable}" in said
    assert repr(value) in said


def test_races_need_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", STREAMS, "--only", "race"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("sanitize: launch #1 triton_poi_fused_1 (line 188 of output_code")
    assert main(["sanitize", STREAMS, "--only", "race", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in document["findings"]] == ["race", "race"]
    assert (document["directory"], document["runs"]) == ("", [])
    assert main(["sanitize", MLP, "--only", "race"]) == 0
