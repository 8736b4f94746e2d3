"""Torch's own loader of packages, without the checks that `load_package` does first."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def loader_of(bindings: Any, package: str, model: str) -> Any:
    """Load a model of a package. Returns torch's loader object. `bindings` is `torch._C`."""
    make = bindings._aoti.AOTIModelPackageLoader
    try:
        return make(package, model, False, 1, -1)
    except TypeError:  # before torch 2.7
        return make(package, model)


def runner_of(bindings: Any, library: str, device: str) -> Any:
    """Load the library of a model, as that loader does once it has unpacked a package."""
    if device == "cpu":
        return bindings._aoti.AOTIModelContainerRunnerCpu(library, 1)
    make = getattr(bindings._aoti, f"AOTIModelContainerRunner{device.capitalize()}")
    return make(library, 1, device, str(Path(library).parent))
