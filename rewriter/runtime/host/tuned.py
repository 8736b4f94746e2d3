"""Which configurations of its Triton kernels a wrapper runs with.

Inductor measures the configurations of a kernel when it is first called, and takes the quickest:
another one in the next process, if its caches are off, and its sums then differ in their last bits.
So that runs can be compared, the choices of the first one are kept in a file for the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

Choice = dict[str, Any]  # what a configuration consists of, or which kernel was picked


def pin(module: ModuleType, path: Path) -> None:
    """Have kernels run as they did when the file was written, if it is there. A kernel that has no
    such configuration now is left as it is."""
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
    """Write the choices of what ran, unless they are there."""
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
    """The kernels of a wrapper by their names, those behind a choice among several included."""
    for name, value in sorted(vars(module).items()):
        if hasattr(value, "picked_kernel"):
            yield name, value
            for place, kernel in enumerate(value.kernels):
                if hasattr(kernel, "launchers"):
                    yield f"{name}.{place}", kernel
        elif hasattr(value, "launchers") and hasattr(value, "compile_results"):
            yield name, value


def _described(config: Any) -> Choice:
    """A `triton.Config`, as far as JSON has it."""
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    facts = {name: getattr(config, name, None) for name in names} | {"kwargs": config.kwargs}
    described: Choice = json.loads(json.dumps(facts, default=str))
    return described
