"""The kernels of the GPU, compiled by NVRTC for what they run on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rewriter.runtime import nvrtc
from rewriter.runtime.build import Unavailable

pytestmark = [pytest.mark.exhaustive, pytest.mark.programs]  # the compiler: 20 seconds for each
# A block has 256 threads, and two blocks are to fit on a processor of 65,536 registers.
MOST_REGISTERS = 128
KERNELS = {
    "inductor_rewriter_measure",
    "inductor_rewriter_measure_quickly",
    "inductor_rewriter_measure_and_act",
    "inductor_rewriter_merge",
    "inductor_rewriter_memory",
    "inductor_rewriter_memory_few",
}
# What each launch of the model waits behind.
QUICK = KERNELS - {"inductor_rewriter_measure", "inductor_rewriter_merge"}


@pytest.fixture(scope="module")
def compiler() -> Any:
    try:
        return nvrtc.find()
    except Unavailable as problem:
        pytest.skip(f"{problem}")


@pytest.mark.parametrize("target", [70, *nvrtc.TARGETS])
def test_kernels_compile_and_keep_their_values_in_registers(compiler: Any, target: int) -> None:
    code, log = nvrtc.compiled(compiler, target, ["--ptxas-options=-v"])
    assert code.startswith(b"\x7fELF")
    of_kernel = re.findall(
        r"Function properties for (\w+)\n.*?(\d+) bytes spill stores.*?\n.*?Used (\d+) registers",
        log,
    )
    assert {name for name, _, _ in of_kernel} == KERNELS
    for name, spilled, registers in of_kernel:
        print(f"sm_{target} {name}: {registers} registers, {spilled} bytes spilled")
        assert int(registers) <= MOST_REGISTERS, name
        if name in QUICK:
            assert spilled == "0", name
