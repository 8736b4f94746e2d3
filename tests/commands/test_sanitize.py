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


@pytest.mark.parametrize(
    ("variable", "value", "error"),
    [("REWRITER_FILL", "nan", "bad-fill"), ("REWRITER_GUARD", "4K", "bad-size")],
)
def test_run_refuses_variables_that_its_probes_cannot_use(
    variable: str,
    value: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    for words in ([MLP], ["--", "python", "x.py"]):
        assert main(["run", "--probe", "poison", *words]) == 2
        assert f"error[{error}]: {variable} is '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "probe", "error"),
    [
        ("REWRITER_CALLS", "zz", "hash", "bad-calls"),
        ("REWRITER_KEEP", "-3", "hash", "bad-number"),
        ("REWRITER_MAX_BYTES", "much", "save", "bad-size"),
        ("REWRITER_RECORD_BYTES", "much", "record", "bad-size"),
    ],
)
def test_run_refuses_variables_that_would_leave_a_program_without_probes(
    variable: str,
    value: str,
    probe: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    for words in ([MLP], ["--", "python", "x.py"]):
        assert main(["run", "--probe", probe, *words]) == 2
        said = capsys.readouterr().err
        assert f"error[{error}]: {variable}" in said
        assert repr(value) in said


@pytest.mark.parametrize("words", [[MLP], ["--", "python", "x.py"]])
def test_a_width_of_bands_by_the_variable_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_GUARD", "4K")
    assert main(["sanitize", *words]) == 2
    assert "error[bad-size]: REWRITER_GUARD is '4K'" in capsys.readouterr().err


def test_races_need_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", STREAMS, "--only", "race"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("sanitize: launch #1 triton_poi_fused_1 (line 188 of output_code")
    assert main(["sanitize", STREAMS, "--only", "race", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in document["findings"]] == ["race", "race"]
    assert (document["directory"], document["runs"]) == ("", [])
    assert main(["sanitize", MLP, "--only", "race"]) == 0
