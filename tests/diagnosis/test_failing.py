"""What `sanitize` says of a program that fails in its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dumps
from launch_facts import crashed
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis import failing, triage
from rewriter.diagnosis.fill_patterns import pattern
from rewriter.runtime.tensors import fingerprint

DIED = ExitStatus(1, message="IndexError: index 1515870810 is out of bounds")
WELL = ExitStatus(0)
STOPPED = crashed(ended=DIED, launch=4, step=4, kernel="topk", kind="fallback")


def test_what_ends_well_everywhere_is_nothing() -> None:
    assert failing.of_ends([WELL, WELL], WELL) == failing.Examined()


def test_what_fails_only_where_memory_is_filled_is_a_finding() -> None:
    (finding,) = failing.of_ends([DIED, WELL], WELL).findings
    assert "fails where uninitialised memory is filled" in finding.headline
    (finding,) = failing.of_ends([DIED, WELL], DIED).findings
    assert "runs with another filling" in finding.what


def test_what_fails_without_filling_too_is_named() -> None:
    examined = failing.of_ends([DIED, DIED], DIED)
    assert examined.findings[0].headline.startswith("the program fails, also without filling")
    examined = failing.of_ends([DIED, DIED], DIED, [STOPPED])
    (finding,) = examined.findings
    assert (finding.kind, finding.launch, finding.certainty) == ("crash", 4, "likely")
    assert "launch #4 topk (line 30 of c) fails, also without filling" in finding.headline
    assert "nothing behind the failure was checked" in examined.notes[0]


@pytest.mark.parametrize(
    ("filling", "kind", "said"),
    [
        ("stale", "stale", "receives freed memory (buf3), and fails"),
        ("poison", "unwritten", "receives uninitialised memory (buf3), and fails"),
    ],
)
def test_what_it_was_given_is_said(filling: failing.Filling, kind: str, said: str) -> None:
    for plain in (DIED, WELL):
        (finding,) = failing.of_ends([DIED, DIED], plain, [STOPPED], {"buf3": filling}).findings
        assert (finding.kind, finding.launch) == (kind, 4)
        assert said in finding.what


def test_a_variable_that_was_deleted_is_no_fault_of_the_launch_before() -> None:
    text = "UnboundLocalError: cannot access local variable 'buf9' where it is not associated"
    died = ExitStatus(1, message=text)
    (finding,) = failing.of_ends([died, died], died, [STOPPED]).findings
    assert (finding.launch, finding.certainty) == (None, "shown")
    assert finding.headline.startswith("the program fails, also without filling: UnboundLocalError")


def test_what_fails_behind_the_last_launch_is_not_that_launch() -> None:
    died = ExitStatus(None, signal=11)
    over = replace(STOPPED, state="over", ended=died)
    (finding,) = failing.of_ends([died, died], WELL, [over]).findings
    assert (finding.kind, finding.launch) == ("crash", None)
    assert finding.headline.startswith("the program fails where uninitialised memory is filled")
    assert "outside of launches, after launch #4 topk" in finding.text[0]
    assert "no guard bands: directly behind an input" in finding.text[1]
    (finding,) = failing.of_ends([died, died], WELL, [replace(over, state="begun")]).findings
    assert finding.headline.startswith("likely: launch #4 topk (line 30 of c) fails where")


def filled(probe: str, fill: int, dtype: str) -> str:
    """The fingerprint of eight elements that hold a filling."""
    size = 8 * getattr(torch, dtype).itemsize
    data = torch.frombuffer(bytearray(pattern(probe, fill, dtype) * size)[:size], dtype=torch.uint8)
    return fingerprint(data)


@pytest.mark.parametrize(
    ("dtype", "probe", "fill", "expected"),
    [
        pytest.param("bool", "stale", 0, {}, id="false, as a program may have it"),
        pytest.param("int64", "stale", 1, {}, id="three, as a program may have it"),
        pytest.param("float32", "bounds", 0, {}, id="the bands beside a buffer"),
        pytest.param("float32", "stale", 0, {"buf1": "stale"}, id="freed"),
        pytest.param("int64", "poison", 0, {"buf1": "poison"}, id="never written"),
        pytest.param("bfloat16", "poison", 1, {"buf1": "poison"}, id="with the second filling"),
    ],
)
def test_arguments_that_hold_nothing_but_a_filling(
    tmp_path: Path, dtype: str, probe: str, fill: int, expected: dict[str, str]
) -> None:
    shape = {"shape": [2, 4], "stride": [4, 1], "dtype": dtype}
    held = dumps.value("buf1", fingerprint=filled(probe, fill, dtype), **shape)
    other = dumps.value("buf0", fingerprint=f"{1:032x}", **shape)
    updated = dumps.value("buf2", "inout", fingerprint=held["fingerprint"], **shape)
    dumps.write(tmp_path / "d", [dumps.launch(0, "k", [other, held, updated], when="before")])
    (verdict,) = triage.examine(tmp_path / "d", DIED)
    assert failing.filled_arguments(verdict, fill) == expected
