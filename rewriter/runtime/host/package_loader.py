"""Torch's own loader of packages, without what `load_package` does before."""

from __future__ import annotations

from typing import Any


def loader_of(bindings: Any, package: str, model: str) -> Any:
    """The loader of a model of a package, which has loaded it. `bindings` are `torch._C`."""
    make = bindings._aoti.AOTIModelPackageLoader
    try:
        return make(package, model, False, 1, -1)
    except TypeError:  # before torch 2.7
        return make(package, model)
