"""What a reproduction's script says of results that are not those that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.reproduction import script

RECORDED = [2.40820956, -1.0, 1e-8]
COMPLEX = [1 + 2j, 3j]
ONE = "1 of 2 elements"
BITS = "only in the signs of zeros, the bits of NaN, or the type"


@pytest.mark.parametrize(
    ("recorded", "got", "gpu", "says"),
    [
        (RECORDED, RECORDED, False, "equal bit for bit, 3 elements"),
        (RECORDED, [2.4082098, -1.0, 1e-8], False, "DIFFERS: 1 of 3 elements, by 2.38419e-07"),
        (RECORDED, [2.4082098, -1.0, 1e-8], True, "close: 1 of 3 elements, by 2.38419e-07"),
        # What is left of a sum.
        (RECORDED, [2.40820956, -1.0, 2e-7], True, "close: 1 of 3 elements"),
        (RECORDED, [2.40830956, -1.0, 1e-8], True, "DIFFERS: 1 of 3 elements"),
        (RECORDED, [2.40820956, -1.0, float("nan")], True, "DIFFERS: 1 of 3 elements, by inf"),
        (COMPLEX, COMPLEX, False, "equal bit for bit, 2 elements"),
        (COMPLEX, [1 + 2j, 8j], False, f"DIFFERS: {ONE}, by 5 at most; first at [1, 1]"),
        (COMPLEX, [2 + 4j, 3j], False, f"DIFFERS: {ONE}, by 2 at most; first at [0, 0]"),
        (COMPLEX, [1 + 2.000001j, 3j], True, f"close: {ONE}"),
        ([0.0, 1.0], [-0.0, 1.0], False, f"DIFFERS: {BITS}"),
        ([0.0, 1.0], [-0.0, 1.0], True, f"close: {BITS}"),
        ([0.0, 1.0], [0, 1], True, f"DIFFERS: {BITS}"),
    ],
)
def test_what_is_said_of_a_result(
    recorded: list[complex],
    got: list[complex],
    gpu: bool,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.save(torch.tensor(recorded), tmp_path / "x.pt")
    names: dict[str, Any] = {
        "torch": torch, "HERE": tmp_path, "EXPECTED": {"buf0": "x.pt"}, "RANDOM": False
    }  # fmt: skip
    exec(script._CHECK, names)
    names["on_gpu"] = lambda tensor: gpu
    differ = names["check"]({"buf0": torch.tensor(got)})
    assert capsys.readouterr().out.startswith(f"buf0: {says}")
    assert differ == says.startswith("DIFFERS")
