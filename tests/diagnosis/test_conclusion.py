"""The command that tells more than a verdict: never the one that left the record."""

from __future__ import annotations

from pathlib import Path

import pytest

import dumps
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict_text import OPTIONS, next_command
from rewriter.instrumentation.types import Selection

ALL = ("print", "save")


@pytest.mark.parametrize(
    ("ran", "asks"),
    [
        pytest.param(Selection(("names", "print")), True, id="fewer"),
        pytest.param(Selection(ALL, launches=(range(1, 2),)), True, id="launch"),
        pytest.param(Selection(ALL, kernels=("cpp_*",)), True, id="kernels"),
        pytest.param(Selection(ALL, when="after"), True, id="when"),
        pytest.param(Selection(ALL, calls="3"), True, id="calls"),
        pytest.param(None, True, id="unknown"),
        pytest.param(Selection(ALL), True, id="results"),
        pytest.param(Selection(ALL, args="all"), False, id="all"),
        pytest.param(Selection((*ALL, "sync"), launches=(range(3),)), False, id="more"),
        pytest.param(
            Selection(ALL, launches=(range(1), range(1, 2)), args="all"), False, id="same"
        ),
    ],
)
def test_what_is_recorded_is_not_asked_for_again(
    ran: Selection | None, asks: bool, tmp_path: Path
) -> None:
    after = {"after": [["out", "buf1"]]}
    launches = [
        dumps.launch(0, "cpp_fused_a_0", [dumps.value("x")], [dumps.value("buf0", "out")]),
        dumps.launch(1, "cpp_fused_b_1", [dumps.value("buf0")], when="before", **after),
    ]
    (verdict,) = examine(dumps.write(tmp_path, launches), ExitStatus(None, 6))
    command = next_command(f"rewriter run x.py {OPTIONS}", verdict, ran)
    assert command == (
        "rewriter run x.py --launches 0,1 --probe print,save --args all" if asks else ""
    )


@pytest.mark.parametrize(
    "message",
    [
        "AttributeError: '_OpNamespace' 'audio' object has no attribute 'soft_clip'",
        "RuntimeError: Could not find schema for audio::soft_clip.",
    ],
)
def test_no_probe_tells_more_of_an_operator_that_nobody_registered(
    message: str, tmp_path: Path
) -> None:
    launch = dumps.launch(
        0, "cpp_fused_a_0", [dumps.value("x")], when="before", after=[["out", "b"]]
    )
    dump = dumps.write(tmp_path, [launch])
    for text, asks in ((message, False), ("RuntimeError: something else", True)):
        (verdict,) = examine(dump, ExitStatus(1, message=text))
        assert bool(next_command(f"rewriter run x.py {OPTIONS}", verdict)) == asks
