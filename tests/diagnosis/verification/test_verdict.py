"""The verdict of `rewriter verify`, and the command that it ends in."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from launch_facts import checked
from rewriter.diagnosis.verification import text
from rewriter.diagnosis.verification.types import (
    Checked,
    Comparison,
    LaunchCheck,
    Outcome,
    Verification,
)
from rewriter.diagnosis.verification.verify import surest

WRONG = Comparison(5, 32, at=(1, 2), expected=1.0, got=1.5, allowed=1e-6, why="sums")
AGREES = checked()
DIFFERS = replace(
    AGREES, launch=2, outcome="differs", results=(Checked("buf1", "log = aten.log(x)", WRONG),)
)


def test_the_command_that_checks_more_can_be_pasted() -> None:
    left = replace(AGREES, outcome="unchecked", reason="no graph of the wrapper is known: …")
    user = replace(left, kernel="add_k_0", reason="a user wrote this kernel: …")
    assert text.more_checked(Path("my dump"), [AGREES]) == ""
    command = text.more_checked(Path("my dump"), [left, left, user])
    assert shlex.split(command, comments=True) == [
        *("rewriter", "verify", "my dump", "--graph", "torch_compile_debug"),
        *("--reference", "add_k_0=references:add_k_0"),
    ]
    assert command.endswith(
        "  # which TORCH_COMPILE_DEBUG=1 leaves where the model is compiled, and a function "
        "add_k_0 in references.py that computes the same"
    )


@pytest.mark.parametrize(
    ("checks", "command"),
    [
        pytest.param((AGREES, DIFFERS), "'my dump' --launch 2", id="one-call"),
        pytest.param(
            (AGREES, replace(DIFFERS, run="rank0/run3", iteration=1)),
            "'my dump' --launch 2.1 --run rank0/run3",
            id="a-loop-in-another-call",
        ),
    ],
)
def test_a_verdict_ends_in_the_command_that_cuts_the_launch_out(
    checks: tuple[LaunchCheck, ...], command: str
) -> None:
    *_, following, why = text.describe(Verification(checks), "my dump")
    assert following == f"  next: rewriter repro {command}"
    assert why == "        (this launch alone)"


@pytest.mark.parametrize(
    ("graph", "fragment", "expected"),
    [
        pytest.param(("differs", "buf1"), ("agrees", "buf1"), "fragment", id="one-agrees"),
        pytest.param(("agrees", "buf1"), ("differs", "buf1"), "graph", id="the-other-agrees"),
        # It agrees in another result, and says nothing of this one.
        pytest.param(("agrees", "buf0"), ("differs", "buf1"), "fragment", id="silent"),
        pytest.param(("agrees", "buf1"), ("agrees", "buf1"), "fragment", id="both"),
    ],
)
def test_the_surest_of_several_ways_holds(
    graph: tuple[Outcome, str], fragment: tuple[Outcome, str], expected: str
) -> None:
    right = Comparison(0, 32)
    ways = []
    for route, (outcome, arg) in (("graph", graph), ("fragment", fragment)):
        result = Checked(arg, "log", right if outcome == "agrees" else WRONG)
        ways.append(replace(AGREES, route=route, outcome=outcome, results=(result,)))
    assert surest(ways).route == expected


def test_coverage_is_in_words() -> None:
    assert text.coverage(Verification((AGREES, DIFFERS))) == (
        "2 of 2 launches checked (100%): 1 agrees, 1 differs"
    )
