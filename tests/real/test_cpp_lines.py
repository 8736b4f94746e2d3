"""Lines of C++ wrappers in either format, their times, and what prints nothing."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cpp_driver import (
    MARKS,
    Both,
    Native,
    handle_of,
    options_of,
    row_of,
)

pytestmark = MARKS


def test_upstream_format_is_what_the_shim_prints(
    library: ctypes.CDLL, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = Native(library, options_of("names", "print", format="upstream"), [row_of()])
    native.begin()
    native.before(12)
    assert capfd.readouterr().out == "[ before_launch: triton_poi_fused_0 ]\n"
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(4, 8, generator=generator),
        torch.randn(2, 3, 4, 2, generator=generator),
        torch.randn(3, generator=generator) * 1e6,
        torch.randn(3, 4, generator=generator) * 1e-9,
        torch.tensor([1.0, 1e9, 1e-9]),
        torch.tensor([1.5, -1e6]),
        torch.tensor([-1e6, 1.5]),
        torch.tensor([-1e6, 1.5e5, 2e5]),
        torch.rand(3, 21, generator=generator),
        torch.rand(2, 2, 12, generator=generator),
        torch.rand(2, 2, 3, generator=generator) * 1e-7,
        torch.tensor([[1e6, 2.5e6], [3.0e6, 1.25e6]]),
        torch.tensor([math.nan, math.inf, 1.5]),
        torch.tensor([math.nan]),
        torch.tensor([1e300], dtype=torch.float64),
        torch.arange(64).view(2, 32),
        torch.arange(64).view(2, 32) / 7,
        torch.arange(60).view(3, 4, 5),
        torch.tensor([1e12, 3.0]),
        torch.tensor(2.5),
        torch.tensor(True),
        torch.ones(65, dtype=torch.bfloat16),
        torch.ones(3, 2, dtype=torch.float16).t(),
        torch.zeros(2, 2, dtype=torch.uint8),
        torch.zeros(0, 3),
        torch.zeros(0),
        torch.ones(2, dtype=torch.float8_e4m3fn),
        torch.ones(3, dtype=torch.uint16),
    ]
    for tensor in tensors:
        handle = ctypes.c_void_p(handle_of(tensor))
        message = b"before_launch - triton_poi_fused_0 - view(x0, 2L)"
        library.aoti_torch_print_tensor_handle(handle, message)
        ctypes.CDLL(None).fflush(None)
        expected = capfd.readouterr().out.splitlines()
        native.before(12, tensor)
        found = capfd.readouterr().out.splitlines()
        # Their mean is rounded, and with a NaN all of theirs are NaN.
        ours = "Mean value: " if tensor.float().isfinite().all() else " value: "
        expected, found = (
            [line for line in lines if ours not in line] for lines in (expected, found)
        )
        assert found[1:] == expected
    native.end()


def test_scalars_in_upstream_format(library: ctypes.CDLL, capfd: Any) -> None:
    row = row_of(before=[["in", "6L"], ["in", "x"]])
    native = Native(library, options_of("print", format="upstream"), [row], [["in", "arg0_1"]])
    native.begin()
    native.before(12, 6, 0.5)
    native.inputs(torch.ones(2))
    native.end()
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == [
        "[  before_launch - triton_poi_fused_0 - 6L: 6  ]",
        "[  before_launch - triton_poi_fused_0 - x: 0.5  ]",
        "[  aoti_model_inputs - arg0_1  ]:",
    ]
    assert lines[-1] == ""


def test_times_are_rows_of_their_own(both: Callable[..., Both]) -> None:
    runtimes = both("names", "print", "time", rows=[row_of(), row_of(13, repeats=True)])
    said = runtimes.each(
        lambda runtime: [
            (runtime.before(launch, torch.ones(3)), runtime.after(launch, torch.ones(3)))
            for launch in (12, 13, 13)
        ]
    )
    numbers = re.compile(r"\d+\.\d us")
    assert numbers.sub("T us", said[0]) == numbers.sub("T us", said[1])
    assert re.findall(r"^.* us$", numbers.sub("T us", said[1]), re.MULTILINE) == [
        "[rewriter 0] #12 triton_poi_fused_0  T us",
        "[rewriter 0] #13 triton_poi_fused_0  T us",
        "[rewriter 0] #13.1 triton_poi_fused_0  T us",
    ]
    python, native = runtimes.rows()
    for row in (*python, *native):
        if "time" in row:
            time = row["time"]
            assert list(time) == ["start_us", "duration_us", "clock"]
            assert 0 <= time["duration_us"] < 1e6
            assert 0 < time["start_us"] < 1e9
            row["time"] = {"clock": time["clock"]}
    assert python == native
    times = [(row["launch"], row.get("iteration")) for row in native if "time" in row]
    assert times == [(12, None), (13, 0), (13, 1)]
    assert all(
        row.keys() <= {"launch", "phase", "kernel", "iteration", "time"}
        for row in native
        if "time" in row
    )
