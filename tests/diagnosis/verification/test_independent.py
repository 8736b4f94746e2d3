"""Launches that are made again: what differs by more than rounding is a finding."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launch_facts import checked
from rewriter.diagnosis.verification.text import coverage, describe
from rewriter.diagnosis.verification.types import LaunchCheck, Verification
from rewriter.reproduction.independent import host
from rewriter.reproduction.independent.checks import _added

_CHECK = checked(launch=3, kernel="cpp_fused_sum_3", outcome="unchecked", route="")


def _result(folder: Path, **changes: float) -> LaunchCheck:
    """A launch of a sum of 4,096 numbers; `changes` are relative, by the name of the launch."""
    first = torch.linspace(1.0, 2.0, 8)
    results = {name: {"buf0": first * (1 + change)} for name, change in changes.items()}
    torch.save({"first": {"buf0": first}, **results}, folder / "results.pt")
    given = {"arg0_1": SimpleNamespace(file=folder, shape=(8, 4096))}
    made: Any = SimpleNamespace(directory=folder, recorded=SimpleNamespace(given=given))
    return _added(_CHECK, made)


def test_launches_that_are_the_same_but_for_rounding(tmp_path: Path) -> None:
    check = _result(tmp_path, again=0.0, scalar=1e-6)
    assert check.outcome == "unchecked"
    assert check.independent == ("deterministic", "scalar agrees")
    assert "1 launch again, with the same results" in coverage(Verification((check,)))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("again", "not deterministic"),
        ("scalar", "not the same without vectors and optimisation"),
        ("blocks", "not the same with smaller blocks and other warps"),
    ],
)
def test_launches_that_differ_from_themselves(name: str, reason: str, tmp_path: Path) -> None:
    check = _result(tmp_path, **{"again": 0.0, name: 1e-3})
    assert (check.outcome, check.route, check.reason) == ("differs", "itself", reason)
    verdict = "\n".join(describe(Verification((check,)), "D"))
    assert f"#3 cpp_fused_sum_3 is {reason}: 8 of 8 elements of buf0 differ" in verdict
    assert "sums of 4,096" in verdict


def test_a_launch_that_was_not_made_again_stays_as_it_is(tmp_path: Path) -> None:
    assert _added(_CHECK, None) == _CHECK
    torch.save({}, tmp_path / "results.pt")
    made: Any = SimpleNamespace(directory=tmp_path, recorded=SimpleNamespace(given={}))
    assert _added(_CHECK, made) == _CHECK


@pytest.mark.parametrize(
    ("kwargs", "warps", "expected"),
    [
        ({"XBLOCK": 1}, 1, ({"XBLOCK": 1}, 2)),  # it may have no mask
        ({"XBLOCK": 256}, 4, ({"XBLOCK": 128}, 2)),
        ({"XBLOCK": 2, "R0_BLOCK": 64}, 2, ({"XBLOCK": 1, "R0_BLOCK": 32}, 4)),
        ({"BLOCK_M": 64}, 8, ({"BLOCK_M": 64}, 4)),
    ],
)
def test_other_parameters_of_a_launch_are_no_larger(
    kwargs: dict[str, int], warps: int, expected: tuple[dict[str, int], int]
) -> None:
    config = SimpleNamespace(kwargs=kwargs, num_warps=warps)
    other = host.smaller(config)
    assert (other.kwargs, other.num_warps) == expected
    assert (config.kwargs, config.num_warps) == (kwargs, warps)


def test_without_triton_no_kernel_is_compiled_otherwise() -> None:
    with host._other_blocks() as changed:
        pass
    assert changed == []
