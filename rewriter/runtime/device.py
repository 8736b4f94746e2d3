"""Devices: waiting for what was issued to them, and whether they record instead of running it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .gpu_kinds import GPU_KINDS


def is_capturing() -> bool:
    """Whether the current stream records a CUDA graph: then nothing may be waited for."""
    # Asking would otherwise start CUDA in a process that has not used it.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def of_values(values: Iterable[object], kind: str) -> list[torch.device]:
    """The devices that a launch touches, other than the CPU: those of its tensors.

    Where it was handed no tensors, it is the current CUDA device, unless its kind says that it runs
    on the CPU.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    devices = {tensor.device for tensor in tensors} - {torch.device("cpu"), torch.device("meta")}
    if (kind in GPU_KINDS or not (tensors or kind == "cpp")) and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices.add(torch.device("cuda", torch.cuda.current_device()))
    return sorted(devices, key=str)


def synchronize(device: torch.device) -> None:
    """Wait for everything that was issued to a device. Raises what went wrong there."""
    module = torch.get_device_module(device)
    if device.type == "mps":
        module.synchronize()
    else:
        module.synchronize(device)


def tf32() -> list[str]:
    """The products of float32 that CUDA's libraries may compute in TF32: `matmul`, `conv`."""
    backends: dict[str, Any] = {"matmul": torch.backends.cuda.matmul}
    backends["conv"] = getattr(torch.backends.cudnn, "conv", torch.backends.cudnn)
    allowed = []
    for name, backend in backends.items():
        precision = getattr(backend, "fp32_precision", None)  # since torch 2.9
        if precision is None:
            precision = "tf32" if backend.allow_tf32 else "ieee"
        elif precision == "none":
            precision = getattr(torch.backends, "fp32_precision", "ieee")
        if precision == "tf32":
            allowed.append(name)
    return allowed


def first_line(error: BaseException) -> str:
    """What an error of torch's says before its advice."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
