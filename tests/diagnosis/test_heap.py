"""A launch that a damaged heap ends is a victim: the C++ launches before it are suspects."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.diagnosis.heap import _ARRAY, is_suspicious


@pytest.mark.parametrize(
    ("number", "kind", "on_gpu", "suspicious"),
    [
        (signal.SIGABRT, "cpp", False, True),
        (signal.SIGABRT, "extern_out", False, True),
        (signal.SIGSEGV, "extern_out", False, True),
        (signal.SIGSEGV, "cpp", False, False),
        (signal.SIGSEGV, "extern_out", True, False),
        (signal.SIGKILL, "extern_out", False, False),
    ],
)
def test_which_crashes_may_be_anothers_fault(
    number: int, kind: str, on_gpu: bool, suspicious: bool
) -> None:
    verdict: Any = SimpleNamespace(
        ended=SimpleNamespace(signal=number), launch=1, kind=kind, on_gpu=on_gpu
    )
    assert is_suspicious(verdict) == suspicious
    verdict.launch = None
    assert not is_suspicious(verdict)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("auto buf = std::make_unique<float []>(1024L);", True),
        ("float tmp_buf[32];", True),
        ("alignas(64) int64_t tmp[16];", True),
        ("auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];", False),
        ("out_ptr0[x0] = tmp1;", False),
    ],
)
def test_arrays_of_a_kernels_own(source: str, found: bool) -> None:
    assert (_ARRAY.search(source) is not None) == found
