"""Loads packages in a process of its own: `script()`, which reads what to load from its input.

It imports torch at once, so that it is ready when the package is. The parent
(`rewriter/rebuild/check.py`) writes one line of JSON and reads one:

    {"package": path, "models": {name: device}, "imports": [modules or files]}
    {name: {"libraries": [paths]} or {"error": text} or {"lacking": device}}

The answer is {"": {"import": text}} where something cannot be imported.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from .wrapper import ProblemError, import_operators


def load(spec: dict[str, Any]) -> dict[str, Any]:
    """Load each model as `aoti_load_package` does, and say which libraries that mapped."""
    try:
        for name in spec["imports"]:
            import_operators(name)
    except ProblemError as problem:
        return {"": {"import": str(problem)}}
    answer: dict[str, Any] = {}
    for name, device in spec["models"].items():
        if device != "cpu" and not _has(device):
            answer[name] = {"lacking": device}
            continue
        before = _mapped()
        loader, error = _load(spec["package"], name)
        answer[name] = {"libraries": sorted(_mapped() - before)} if loader else {"error": error}
    return answer


def _load(package: str, model: str) -> tuple[Any, str]:
    """A loaded model, or why it does not load.

    `aoti_load_package` would hide that behind "Loading outdated pt2 file".
    """
    make = torch._C._aoti.AOTIModelPackageLoader
    try:
        try:
            return make(package, model, False, 1, -1), ""
        except TypeError:  # before torch 2.7
            return make(package, model), ""  # type: ignore[call-arg]
    except Exception as error:
        return None, f"{error}".partition("\nException raised from")[0].strip()


def _has(device: str) -> bool:
    module = getattr(torch, device, None)
    return bool(module is not None and module.is_available())


def _mapped() -> set[str]:
    """The shared objects in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {parts[-1] for parts in map(str.split, lines) if parts[-1].endswith(".so")}


def script() -> None:
    """Answer one request."""
    answer = load(json.loads(sys.stdin.readline()))
    print(json.dumps(answer), flush=True)
    # Whoever waits has the answer: taking all of torch down again is time for nothing.
    os._exit(0)
