"""What a reproduction's script says of results that are not those that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.reproduction import script

RECORDED = [2.40820956, -1.0, 1e-8]


@pytest.mark.parametrize(
    ("got", "gpu", "says"),
    [
        (RECORDED, False, "equal bit for bit, 3 elements"),
        ([2.4082098, -1.0, 1e-8], False, "DIFFERS: 1 of 3 elements, by 2.38419e-07"),
        ([2.4082098, -1.0, 1e-8], True, "close: 1 of 3 elements, by 2.38419e-07"),
        ([2.40820956, -1.0, 2e-7], True, "close: 1 of 3 elements"),  # what is left of a sum
        ([2.40830956, -1.0, 1e-8], True, "DIFFERS: 1 of 3 elements"),
        ([2.40820956, -1.0, float("nan")], True, "DIFFERS: 1 of 3 elements, by inf"),
    ],
)
def test_what_is_close(
    got: list[float], gpu: bool, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(torch.tensor(RECORDED), torch.tensor(got), gpu, says, tmp_path, capsys)


@pytest.mark.parametrize(
    ("recorded", "got", "gpu", "says"),
    [
        ([1 + 2j, 3j], [1 + 2j, 3j], False, "equal bit for bit, 2 elements"),
        (
            [1 + 2j, 3j],
            [1 + 2j, 8j],
            False,
            "DIFFERS: 1 of 2 elements, by 5 at most; first at [1, 1]",
        ),
        (
            [1 + 2j, 3j],
            [2 + 4j, 3j],
            False,
            "DIFFERS: 1 of 2 elements, by 2 at most; first at [0, 0]",
        ),
        ([1 + 2j, 3j], [1 + 2.000001j, 3j], True, "close: 1 of 2 elements"),
        ([0.0, 1.0], [-0.0, 1.0], False, "DIFFERS: only in the signs of zeros"),
        ([0.0, 1.0], [-0.0, 1.0], True, "close: only in the signs of zeros"),
        (
            [0.0, 1.0],
            [0, 1],
            True,
            "DIFFERS: only in the signs of zeros, the bits of NaN, or the type",
        ),
    ],
)
def test_complex_numbers_and_what_is_equal_in_other_bits(
    recorded: list[complex],
    got: list[complex],
    gpu: bool,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said(torch.tensor(recorded), torch.tensor(got), gpu, says, tmp_path, capsys)


def said(
    recorded: torch.Tensor,
    got: torch.Tensor,
    gpu: bool,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Hold what the script says of a result to the beginning of a line."""
    torch.save(recorded, tmp_path / "x.pt")
    names: dict[str, Any] = {
        "torch": torch, "HERE": tmp_path, "EXPECTED": {"buf0": "x.pt"}, "RANDOM": False
    }  # fmt: skip
    exec(script._CHECK, names)
    names["on_gpu"] = lambda tensor: gpu
    differ = names["check"]({"buf0": got})
    assert capsys.readouterr().out.startswith(f"buf0: {says}")
    assert differ == says.startswith("DIFFERS")
