"""Runs in a process of its own, with torch and Triton: the kernel of a script, without tuning.

`python triton_kernel.py SCRIPT FOLDER MODE` executes a `repro.py`. Its Triton kernel is not given
to Inductor's launcher but run as plain Triton, with blocks chosen here. Mode `interpret` runs it on
the CPU (TRITON_INTERPRET=1) and checks each address; `sanitize` has triton-viz do so; `fpsan` runs
it with blocks of two sizes on the GPU. What was found is `result.json` in FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def main(script: Path, folder: Path, mode: str) -> None:
    from rewriter.runtime.host.interpreter import Kernel, Memory, watch

    memory = Memory()
    kernels: list[Kernel] = []
    if mode == "interpret":
        watch(memory)
    if mode != "fpsan" and not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        native: Any = torch._C
        native._cuda_getCurrentRawStream = lambda index: 0
    from torch._inductor.async_compile import AsyncCompile

    def compiled(self: Any, name: str, source: str, *rest: Any, **more: Any) -> Kernel:
        kernels.append(Kernel((folder / "kernel.py").resolve(), memory, source))
        return kernels[-1]

    compiler: Any = AsyncCompile
    compiler.triton = compiled
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    if mode != "fpsan":
        saved, empty = names["saved"], names["empty"]
        names["saved"] = lambda file, stride, device: saved(file, stride, "cpu")
        names["empty"] = lambda shape, stride, dtype, device: empty(shape, stride, dtype, "cpu")
    tensors = names["arguments"]()
    results = names["launch"](**tensors)
    document: dict[str, Any] = {"kernels": len(kernels), "faults": memory.faults, "results": []}
    if mode == "fpsan":
        for kernel in kernels:
            kernel.scale = 2
        again = names["launch"](**names["arguments"]())
        document["results"] = [
            {"name": name, "same": names["same_bits"](value.cpu(), again[name].cpu())}
            for name, value in results.items()
        ]
    else:
        document["results"] = [_compared(names, name, value) for name, value in results.items()]
    document["variables"] = {
        parameter: next((k for k, v in tensors.items() if _holds(v, start)), "")
        for start, _, parameter, _ in memory.ranges
    }
    (folder / "result.json").write_text(json.dumps(document), encoding="utf-8")


def _holds(tensor: torch.Tensor, address: int) -> bool:
    storage = tensor.untyped_storage()
    return storage.data_ptr() <= address < storage.data_ptr() + max(1, storage.nbytes())


def _compared(names: Mapping[str, Any], name: str, value: torch.Tensor) -> dict[str, Any]:
    """How far a result is from what was recorded, in roundings of its largest element."""
    expected = torch.load(
        Path(names["__file__"]).parent / names["EXPECTED"][name], weights_only=True
    )
    result = value.detach().cpu().reshape(expected.shape)
    a, b = result.double(), expected.double()
    apart = ~((a == b) | (a.isnan() & b.isnan()))
    error = float((a - b).abs().where(apart, torch.zeros_like(a)).max()) if a.numel() else 0.0
    scale = float(b.abs().nan_to_num(0, 0, 0).max()) if b.numel() else 0.0
    eps = torch.finfo(expected.dtype).eps if expected.dtype.is_floating_point else 0.0
    # Half of the digits of the type: functions and orders of addition differ by less.
    differs = not error <= max(eps**0.5 * scale, 0.0)
    return {"name": name, "differs": differs, "wrong": int(apart.sum()), "of": a.numel(),
            "error": str(error), "scale": str(scale)}  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[4]))
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
