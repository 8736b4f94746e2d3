"""Keeps the choice of configurations for a wrapper's Triton kernels from one run to the next.

Inductor times the configurations of a kernel at its first call and takes the quickest. With its
caches off, the next process may choose another one, whose sums differ in their last bits. So that
runs can be compared, the choices of the first run are kept in a file for later ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

Choice = dict[str, Any]  # the members of a configuration, or which kernel was picked


def pin(module: ModuleType, path: Path) -> None:
    """Make the kernels of a wrapper use the choices in the file `path`, if it exists.

    A kernel that does not have its chosen configuration any more is left as it is.
    """
    if not path.is_file():
        return
    choices = json.loads(path.read_text(encoding="utf-8"))
    for name, kernel in _kernels(module):
        choice = choices.get(name)
        if choice is None:
            continue
        if "picked" in choice:
            kernel.picked_kernel = choice["picked"]
            continue
        for candidates in (kernel.compile_results, kernel.launchers):
            chosen = [x for x in candidates if _described(x.config) == choice]
            if chosen:
                candidates[:] = chosen[:1]


def keep(module: ModuleType, path: Path) -> None:
    """Write the choices of the kernels that ran to the file `path`, unless it exists."""
    if path.exists():
        return
    choices: dict[str, Choice] = {}
    for name, kernel in _kernels(module):
        if hasattr(kernel, "picked_kernel"):
            if kernel.picked_kernel is not None:
                choices[name] = {"picked": kernel.picked_kernel}
        elif len(kernel.launchers) == 1:
            choices[name] = _described(kernel.launchers[0].config)
    if choices:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        partial.write_text(json.dumps(choices, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)


def _kernels(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the kernels of a wrapper with their names, and the candidates of multi-kernels."""
    for name, value in sorted(vars(module).items()):
        if hasattr(value, "picked_kernel"):
            yield name, value
            for place, kernel in enumerate(value.kernels):
                if hasattr(kernel, "launchers"):
                    yield f"{name}.{place}", kernel
        elif hasattr(value, "launchers") and hasattr(value, "compile_results"):
            yield name, value


def _described(config: Any) -> Choice:
    """The members of a `triton.Config`, as JSON can hold them."""
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    facts = {name: getattr(config, name, None) for name in names} | {"kwargs": config.kwargs}
    described: Choice = json.loads(json.dumps(facts, default=str))
    return described
