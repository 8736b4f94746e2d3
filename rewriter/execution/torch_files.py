"""Checks the installed torch without importing it, which takes seconds.

Its libraries are loaded, as that fails if an installation is broken; the GPU's name comes from the
driver, as in torch.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_LIBRARY = "libtorch_python.so"  # needs all of the others
_DRIVER = "libcuda.so.1"
_NAME = 256  # bytes


def loads(root: Path) -> bool:
    """Whether the libraries of the torch in this directory load.

    If they do not, importing torch may still succeed, as it looks for some in other places.
    """
    if "torch" in sys.modules:
        return True
    try:
        ctypes.CDLL(str(root / "lib" / _LIBRARY))
    except OSError:
        return False
    return True


def gpu() -> str:
    """The name of the first NVIDIA GPU that this process may use; empty if there is none."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return ""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return ""
    if driver.cuDeviceGetName(name, _NAME, device):
        return ""
    return name.value.decode("utf-8", "replace")
