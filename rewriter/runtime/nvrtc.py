"""Compiles the kernels of the GPU beforehand, by NVRTC, which needs no GPU:

pip install nvidia-cuda-nvrtc-cu12==12.9.86
python -m rewriter.runtime.nvrtc 90 kernels-sm_90.cubin
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .build import Unavailable
from .bundle import kernels

# Their code runs on all later devices of the same major version.
TARGETS = (75, 80, 90, 100, 120)
_PLACES = ("nvidia.cuda_nvrtc", "nvidia.cu13")


def find() -> Any:
    """The library, as one of the packages of NVIDIA has it. Raises `Unavailable`."""
    for place in _PLACES:
        try:
            spec = importlib.util.find_spec(place)
        except ImportError:
            continue
        for folder in (spec and spec.submodule_search_locations) or ():
            # That of built-in functions comes first by its name, and has to be loaded first.
            for library in sorted(Path(folder).glob("lib/libnvrtc*.so.*[0-9]")):
                loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
                if hasattr(loaded, "nvrtcCreateProgram"):
                    return loaded
    raise Unavailable("no NVRTC: install nvidia-cuda-nvrtc-cu12")


def compiled(nvrtc: Any, target: int, options: Sequence[str] = ()) -> tuple[bytes, str]:
    """The machine code for a device such as 90, and what the compiler says. Raises
    `Unavailable` with that if it fails."""
    program = ctypes.c_void_p()
    source = kernels().encode()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"measure.cu", 0, None, None):
        raise Unavailable("NVRTC does not start")
    wanted = ["-std=c++17", "--fmad=false", f"--gpu-architecture=sm_{target}", *options]
    arguments = (ctypes.c_char_p * len(wanted))(*map(str.encode, wanted))
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(wanted), arguments)
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        said = log.rstrip(b"\0").decode()
        if failed:
            raise Unavailable(f"the kernels do not compile for sm_{target}: {said[:200]}")
        return _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), said
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, get_size: Any, get: Any) -> bytes:
    size = ctypes.c_size_t()
    get_size(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    get(program, text)
    return text.raw


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(compiled(find(), int(sys.argv[1]))[0])
