"""Loads packages in a separate process: `script()` reads a request from standard input.

Torch's loader is C++ and needs no Python code of torch, whose import takes five times as long as
loading. So only the bindings `torch._C` are imported, if that is possible, and the CUDA context is
created, before the request comes. The parent
(`rewriter/instrumentation/rebuild/check.py`) writes one line of JSON and reads one:

    {"package": path, "models": {name: {"device": device, "library": path or ""}}, "imports": […]}
    {name: {"libraries": [paths]} or {"error": text} or {"lacking": device}}

The answer is {"": {"import": text}} if something cannot be imported. Some operators are registered
by torch's Python code. So if a package does not load with the bindings alone, the parent tries
again with a process that has imported all of torch.

A `library` is loaded in place of the package: torch's loader would unpack all of the weights.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from . import ProblemError, import_operators


def load(bindings: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """Load each model as `aoti_load_package` does. Returns the answer: the mapped libraries."""
    if spec["imports"]:
        try:
            for name in spec["imports"]:
                import_operators(name)
        except ProblemError as problem:
            return {"": {"import": str(problem)}}
    answer: dict[str, Any] = {}
    for name, about in spec["models"].items():
        device, library = about["device"], about["library"]
        if device != "cpu" and not _has(bindings, device):
            answer[name] = {"lacking": device}
            continue
        before = _mapped()
        loader, error = _load(bindings, spec["package"], name, library, device)
        answer[name] = {"libraries": sorted(_mapped() - before)} if loader else {"error": error}
    return answer


def _load(bindings: Any, package: str, model: str, library: str, device: str) -> tuple[Any, str]:
    """Load a model. Returns its loader and "", or None and why it does not load.

    `aoti_load_package` would hide the reason behind "Loading outdated pt2 file".
    """
    try:
        if library:
            return runner_of(bindings, library, device), ""
        return loader_of(bindings, package, model), ""
    except Exception as error:
        return None, f"{error}".partition("\nException raised from")[0].strip()


def loader_of(bindings: Any, package: str, model: str) -> Any:
    """Torch's own loader of a model in a package, without the checks that `load_package` does
    first. `bindings` is `torch._C`."""
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


def _has(bindings: Any, device: str) -> bool:
    if not hasattr(sys.modules["torch"], "__version__"):  # the empty package of `import_bindings`
        count = getattr(bindings, f"_{device}_getDeviceCount", None)
        return bool(count is not None and count())
    module = getattr(sys.modules["torch"], device, None)
    return bool(module is not None and module.is_available())


def _mapped() -> set[str]:
    """The paths of the shared objects that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {parts[-1] for parts in map(str.split, lines) if parts[-1].endswith(".so")}


def import_bindings() -> Any:
    """Import `torch._C` without torch's Python code, through an empty package named `torch`.

    If torch was imported before, its `_C` is used. Raises `ImportError` if the installed release
    cannot be imported like this.
    """
    if "torch" not in sys.modules:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("no torch that is a package")
        alone = ModuleType("torch")
        alone.__path__ = list(spec.submodule_search_locations)
        sys.modules["torch"] = alone
    return importlib.import_module("torch._C")


def script(*, full_torch: bool, cuda: bool) -> None:
    """Answer one request; with `full_torch`, after importing all of torch. `cuda` is whether it
    will be about a model for CUDA."""
    if full_torch:
        importlib.import_module("torch")
    bindings = import_bindings()
    if cuda and _has(bindings, "cuda"):
        with contextlib.suppress(RuntimeError):  # if the device cannot be used, loading says why
            bindings._cuda_synchronize()  # makes the context, which takes a third of a second
    answer = load(bindings, json.loads(sys.stdin.readline()))
    print(json.dumps(answer), flush=True)
    # Exit at once: finalising torch would take time, and the parent has its answer.
    os._exit(0)
