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
    torch.save(torch.tensor(RECORDED), tmp_path / "x.pt")
    names: dict[str, Any] = {
        "torch": torch, "HERE": tmp_path, "EXPECTED": {"buf0": "x.pt"}, "RANDOM": False
    }  # fmt: skip
    exec(script._CHECK, names)
    names["on_gpu"] = lambda tensor: gpu
    differ = names["check"]({"buf0": torch.tensor(got)})
    assert capsys.readouterr().out.startswith(f"buf0: {says}")
    assert differ == says.startswith("DIFFERS")
