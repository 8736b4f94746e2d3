"""What the recorder measures, held to exact arithmetic and to another measurement."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from exact_statistics import check, contents, decode
from fingerprints import of_bytes
from rewriter.runtime import attach, extension
from tables import options

# The statistics and the fingerprint of a tensor, by their names in a row of a dump. What cannot be
# read has none.
Measurement = dict[str, Any]
_NAMES = ("numel", "min", "max", "mean", "std", "nan", "inf", "near_limit", "of", "fingerprint")


@cache
def _recorder() -> tuple[Any, Path]:
    folder = Path(tempfile.mkdtemp())
    return attach(options("hash", quiet=True, directory=str(folder)), [], ["x"]), folder


def measure(tensors: Iterable[torch.Tensor]) -> list[Measurement]:
    """Have a recorder measure tensors: what the rows of its dump say."""
    recorder, folder = _recorder()
    recorder.begin()
    recorder.inputs(list(tensors))
    recorder.end()
    extension.finish_writing()
    (path,) = folder.glob("rank*/run*")
    rows = (path / "events.jsonl").read_text().splitlines()
    for run in folder.glob("rank*"):
        shutil.rmtree(run)
    return [measured(json.loads(row)) for row in rows]


def measured(row: dict[str, Any]) -> Measurement:
    """What a row says of the elements of a tensor."""
    number = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    return {
        name: number.get(value, value) if name in ("min", "max", "mean", "std") else value
        for name, value in row.items()
        if name in _NAMES
    }


def check_measurement(found: Measurement, tensor: torch.Tensor) -> None:
    data = contents(tensor)
    check(found, decode(data, tensor.dtype), tensor.dtype)
    assert found["fingerprint"] == of_bytes(data)


def check_close(found: Measurement, expected: Measurement) -> None:
    """The same counts, extremes and fingerprint, and the same moments up to rounding."""
    spread = expected.get("std") or 0
    near = {
        "min": {"rel": 4e-16, "abs": 0},
        "max": {"rel": 4e-16, "abs": 0},
        "mean": {"rel": 1e-12, "abs": 1e-13 * spread},
        "std": {"rel": 1e-11, "abs": 0},
    }
    assert found == {
        name: pytest.approx(value, **near[name]) if isinstance(value, float) else value
        for name, value in expected.items()
    }


def large() -> list[torch.Tensor]:
    """Tensors of several tiles, and of parts of one."""
    torch.manual_seed(1)
    noise = torch.randn(150_000)
    return [
        noise,
        (noise + 1000).to(torch.bfloat16),
        noise.to(torch.float16).view(300, 500).t(),
        noise.double()[1:] * 1e200,
        torch.cat([torch.tensor([1e30]), noise[:60_000] + 1e4]),
        torch.cat([torch.full((9000,), -math.inf), noise[:40_000].double() * 1e-3 + 1e6]),
        (noise * 20).to(torch.int8),
        noise > 0.3,
        noise.to(torch.float8_e5m2),
        (noise.double() * 2.0**62).long()[:20_000],
    ]
