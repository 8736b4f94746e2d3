"""Runs in a process of its own, with torch alone: what a C++ kernel of a script is handed.

`python cpu_kernel.py SCRIPT FOLDER` executes a `repro.py` without compiling its kernel, writes the
memory that the launch hands over into FOLDER, and says in `launch.json` what goes where, and how
torch compiles such kernels here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch


def main(script: Path, folder: Path) -> None:
    from torch._inductor.async_compile import AsyncCompile

    calls: list[dict[str, Any]] = []
    memory: dict[int, dict[str, Any]] = {}

    def compiled(self: Any, types: list[str], source: str, *rest: Any, **more: Any) -> Any:
        def kernel(*given: Any) -> None:
            handed = [_handed(one, memory, folder) for one in given]
            calls.append({"types": list(types), "source": source, "args": handed})

        return kernel

    compiler: Any = AsyncCompile
    compiler.cpp_pybinding = compiled
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    tensors = names["arguments"]()
    names["launch"](**tensors)
    for name, tensor in tensors.items():
        if (kept := memory.get(tensor.untyped_storage().data_ptr())) is not None:
            kept["variable"] = name
    document = {"calls": calls, "memory": list(memory.values()), "build": _build()}
    (folder / "launch.json").write_text(json.dumps(document), encoding="utf-8")


def _handed(value: Any, memory: dict[int, dict[str, Any]], folder: Path) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"value": value}
    storage = value.untyped_storage()
    kept = memory.get(storage.data_ptr())
    if kept is None:
        file = folder / f"memory_{len(memory)}.bin"
        file.write_bytes(bytes(storage))
        kept = {"index": len(memory), "bytes": storage.nbytes(), "variable": ""}
        memory[storage.data_ptr()] = kept
    offset = value.data_ptr() - storage.data_ptr()
    return {"memory": kept["index"], "offset": offset, "item": value.element_size()}


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
    main(Path(sys.argv[1]), Path(sys.argv[2]))
