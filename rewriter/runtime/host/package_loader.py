"""Torch's own loader of packages, without the checks that `load_package` does first."""

from __future__ import annotations

from typing import Any


def loader_of(bindings: Any, package: str, model: str) -> Any:
    """Load a model of a package. Returns torch's loader object. `bindings` is `torch._C`."""
    make = bindings._aoti.AOTIModelPackageLoader
    try:
        return make(package, model, False, 1, -1)
    except TypeError:  # before torch 2.7
        return make(package, model)
