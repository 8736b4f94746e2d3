"""The kernels of the GPU, compiled by NVRTC for what they run on. That needs no GPU:

pip install nvidia-cuda-nvrtc-cu12==12.9.86
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

from rewriter.runtime.bundle import SOURCES, together

pytestmark = [pytest.mark.exhaustive, pytest.mark.programs]  # the compiler: 20 seconds for each
PLACES = ("nvidia.cuda_nvrtc", "nvidia.cu13")
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
def nvrtc() -> ctypes.CDLL:
    for place in PLACES:
        try:
            spec = importlib.util.find_spec(place)
        except ImportError:
            continue
        for folder in (spec and spec.submodule_search_locations) or ():
            libraries = sorted(Path(folder).glob("lib/libnvrtc*.so.*[0-9]"))
            for library in libraries:  # that of built-in functions comes first by its name
                loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
                if hasattr(loaded, "nvrtcCreateProgram"):
                    return loaded
    pytest.skip("no NVRTC")


def compiled(nvrtc: ctypes.CDLL, target: str) -> tuple[bytes, str]:
    """The machine code, and what the assembler says of each kernel."""
    text = (SOURCES / "engine/gpu.h").read_text()
    declared = re.search(r"integers =\n((?: +\".*\"\n?)+);", text)
    assert declared is not None
    integers = "".join(re.findall(r'"(.*?)(?:\\n)?"', declared[1]))
    source = f"{integers}\n{together(SOURCES / 'engine/kernel.h')}"
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    create = nvrtc.nvrtcCreateProgram
    assert create(ctypes.byref(program), source.encode(), b"measure.cu", 0, None, None) == 0
    options = [b"-std=c++17", b"--fmad=false", b"--ptxas-options=-v"]
    options.append(f"--gpu-architecture={target}".encode())
    code = nvrtc.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert code == 0, log.value.decode()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw, log.value.decode()


@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90", "sm_100"])
def test_kernels_compile_and_keep_their_values_in_registers(
    nvrtc: ctypes.CDLL, target: str
) -> None:
    code, log = compiled(nvrtc, target)
    assert code.startswith(b"\x7fELF")
    of_kernel = re.findall(
        r"Function properties for (\w+)\n.*?(\d+) bytes spill stores.*?\n.*?Used (\d+) registers",
        log,
    )
    assert {name for name, _, _ in of_kernel} == KERNELS
    for name, spilled, registers in of_kernel:
        print(f"{target} {name}: {registers} registers, {spilled} bytes spilled")
        assert int(registers) <= MOST_REGISTERS, name
        if name in QUICK:
            assert spilled == "0", name
