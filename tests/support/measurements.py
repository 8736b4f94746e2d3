"""What the engine measures, held to exact arithmetic and to another measurement."""

from __future__ import annotations

import math

import pytest
import torch

from exact_statistics import check, contents, decode
from rewriter.runtime import engine
from rewriter.runtime.engine import Measurement


def fingerprint(tensor: torch.Tensor) -> str:
    return engine.measure([tensor])[0].fingerprint


def check_measurement(found: Measurement, tensor: torch.Tensor) -> None:
    assert found.statistics is not None
    check(found.statistics, decode(contents(tensor), tensor.dtype), tensor.dtype)
    assert found.fingerprint == fingerprint(
        tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    )


def check_close(found: Measurement, expected: Measurement) -> None:
    assert found.fingerprint == expected.fingerprint
    a, b = found.statistics, expected.statistics
    assert a is not None
    assert b is not None
    assert (a.numel, a.nan, a.positive_inf, a.negative_inf, a.near_limit) == (
        b.numel,
        b.nan,
        b.positive_inf,
        b.negative_inf,
        b.near_limit,
    )
    if a.mean is None or b.mean is None:
        assert (a.minimum, a.maximum, a.mean, a.std) == (b.minimum, b.maximum, b.mean, b.std)
        return
    assert a.minimum == pytest.approx(b.minimum, rel=4e-16, abs=0)
    assert a.maximum == pytest.approx(b.maximum, rel=4e-16, abs=0)
    assert a.mean == pytest.approx(b.mean, rel=1e-12, abs=1e-13 * (b.std or 0))
    assert a.std == (b.std if b.std is None else pytest.approx(b.std, rel=1e-11, abs=0))


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
