"""Runs in a process of its own, with torch alone: the launch of a `repro.py`.

`python launches.py MODE SCRIPT FOLDER` executes the script.

- `addresses` launches once, and prints `argument NAME ADDRESS BYTES ITEM`
- `handed` compiles no C++ kernel, but writes the memory that the launch hands over into FOLDER, and
  says in `launch.json` what goes where, and how torch compiles such kernels here
- `trials` leaves the arguments in `base.pt`, and answers each line of JSON on its input by one on
  its output: it launches on other values, and leaves what was written in `results.pt`
- `handed-trials` does so, and leaves what a C++ kernel is handed
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch


def main(mode: str, script: Path, folder: Path) -> None:
    calls = captured(folder) if mode.startswith("handed") else None
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    if mode.endswith("trials"):
        os.dup2(2, 1)  # what the script prints is no answer
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    tensors = names["arguments"]()
    if mode.endswith("trials"):
        torch.save(tensors, folder / "base.pt")
        print(json.dumps({"ready": True}), file=answers)
        for line in sys.stdin:
            print(json.dumps(_answer(names, json.loads(line), folder, calls)), file=answers)
        return
    for name, tensor in tensors.items() if mode == "addresses" else ():
        size = tensor.untyped_storage().nbytes()
        print(f"argument {name} {tensor.data_ptr():#x} {size} {tensor.element_size()}", flush=True)
    names["launch"](**tensors)
    if calls is None:
        names["wait"]()
    else:
        leave(calls, tensors)


def _answer(
    names: Mapping[str, Any], wanted: dict[str, Any], folder: Path, calls: Calls | None
) -> dict[str, Any]:
    """Launch on the values of a file, and leave what it wrote, or what it was handed."""
    tensors = torch.load(wanted["given"], weights_only=True)
    try:
        results = names["launch"](**tensors, **wanted["sizes"])
        if calls is None:
            kept = {name: value.detach().cpu().clone() for name, value in results.items()}
            torch.save(kept, folder / "results.pt")
        else:
            leave(calls, tensors)
    except Exception as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
    return {"ok": True}


@dataclass
class Calls:
    """What kernels were handed since the last `leave`."""

    folder: Path
    made: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[int, dict[str, Any]] = field(default_factory=dict)


def captured(folder: Path) -> Calls:
    """Have C++ kernels not compiled from now on, but what they are handed written into a folder."""
    from torch._inductor.async_compile import AsyncCompile

    calls = Calls(folder)

    def compiled(self: Any, types: list[str], source: str, *rest: Any, **more: Any) -> Any:
        def kernel(*given: Any) -> None:
            handed = [_handed(argument, calls.memory, folder) for argument in given]
            calls.made.append({"types": list(types), "source": source, "args": handed})

        return kernel

    compiler: Any = AsyncCompile
    compiler.cpp_pybinding = compiled
    return calls


def leave(calls: Calls, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write the calls so far into their folder, and forget them."""
    for name, tensor in tensors.items():
        if (kept := calls.memory.get(tensor.untyped_storage().data_ptr())) is not None:
            kept["variable"] = name
    document = {"calls": calls.made, "memory": list(calls.memory.values()), "build": _build()}
    (calls.folder / "launch.json").write_text(json.dumps(document), encoding="utf-8")
    calls.made, calls.memory = [], {}


def _handed(value: Any, memory: dict[int, dict[str, Any]], folder: Path) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"value": value}
    storage = value.untyped_storage()
    kept = memory.get(storage.data_ptr())
    if kept is None:  # the tensors live as long as the call
        file = folder / f"memory_{len(memory)}.bin"
        file.write_bytes(bytes(storage))
        kept = {"index": len(memory), "bytes": storage.nbytes(), "variable": ""}
        memory[storage.data_ptr()] = kept
    offset = value.data_ptr() - storage.data_ptr()
    return {"memory": kept["index"], "offset": offset, "item": value.element_size()}


@cache
def _build() -> dict[str, Any]:
    from torch._inductor.cpp_builder import CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    options = CppTorchOptions(vec_isa=pick_vec_isa())
    return {
        "compiler": options.get_compiler(),
        "flags": [
            *(f"-D{x}" for x in options.get_definitions()),
            *(f"-I{x}" for x in options.get_include_dirs()),
            *(f"-{x}" for x in options.get_cflags()),
            *options.get_passthrough_args(),
        ],
        "libraries": [
            *(f"-{x}" for x in options.get_ldflags() if x != "shared"),
            *(f"-L{x}" for x in options.get_libraries_dirs()),
            *(f"-Wl,-rpath,{x}" for x in options.get_libraries_dirs()),
            *(f"-l{x}" for x in options.get_libraries()),
        ],
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
