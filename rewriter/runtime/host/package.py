"""Loads packages in a process of its own: `script()`, which reads what to load from its input.

Torch's loader is C++, and needs nothing of torch that is written in Python: importing that takes
five times as long as loading. So only the bindings are imported, if that is possible, before the
package is ready. The parent (`rewriter/rebuild/check.py`)
writes one line of JSON and reads one:

    {"package": path, "models": {name: device}, "imports": [modules or files]}
    {name: {"libraries": [paths]} or {"error": text} or {"lacking": device}}

The answer is {"": {"import": text}} if something cannot be imported. A package that does not load
with the bindings alone may load with all of torch, which registers operators from Python, too: then
the parent asks a process that has imported it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .package_loader import loader_of


def load(bindings: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """Load each model as `aoti_load_package` does, and say which libraries that mapped."""
    if spec["imports"]:
        from .wrapper import ProblemError, import_operators

        try:
            for name in spec["imports"]:
                import_operators(name)
        except ProblemError as problem:
            return {"": {"import": str(problem)}}
    answer: dict[str, Any] = {}
    for name, device in spec["models"].items():
        if device != "cpu" and not _has(bindings, device):
            answer[name] = {"lacking": device}
            continue
        before = _mapped()
        loader, error = _load(bindings, spec["package"], name)
        answer[name] = {"libraries": sorted(_mapped() - before)} if loader else {"error": error}
    return answer


def _load(bindings: Any, package: str, model: str) -> tuple[Any, str]:
    """A loaded model, or why it does not load.

    `aoti_load_package` would hide that behind "Loading outdated pt2 file".
    """
    try:
        return loader_of(bindings, package, model), ""
    except Exception as error:
        return None, f"{error}".partition("\nException raised from")[0].strip()


def _has(bindings: Any, device: str) -> bool:
    if _is_alone(sys.modules["torch"]):
        count = getattr(bindings, f"_{device}_getDeviceCount", None)
        return bool(count is not None and count())
    module = getattr(sys.modules["torch"], device, None)
    return bool(module is not None and module.is_available())


def _mapped() -> set[str]:
    """The shared objects in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {parts[-1] for parts in map(str.split, lines) if parts[-1].endswith(".so")}


def import_bindings() -> Any:
    """`torch._C` without the Python of torch: a package of that name that has its folder only.

    If torch was imported before, it is used as it is. Raises `ImportError` if a release of torch
    does not support that.
    """
    if "torch" not in sys.modules:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("no torch that is a package")
        alone = ModuleType("torch")
        alone.__path__ = list(spec.submodule_search_locations)
        sys.modules["torch"] = alone
    return importlib.import_module("torch._C")


def _is_alone(torch: ModuleType) -> bool:
    """Whether this is the package of `import_bindings`, and not torch."""
    return not hasattr(torch, "__version__")


def script(*, full_torch: bool) -> None:
    """Answer one request; with `full_torch`, after importing all of torch."""
    if full_torch:
        importlib.import_module("torch")
    bindings = import_bindings()
    answer = load(bindings, json.loads(sys.stdin.readline()))
    print(json.dumps(answer), flush=True)
    # The parent has the answer: finalising torch would only take time.
    os._exit(0)
