"""Devices: synchronisation, CUDA graph capture, and which ones a launch uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .gpu_kinds import GPU_KINDS


def is_capturing() -> bool:
    """Whether the current stream is capturing a CUDA graph: then nothing may synchronise."""
    # Without the first check the second one would initialise CUDA in a process that never used it.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def of_values(values: Iterable[object], kind: str) -> list[torch.device]:
    """The devices, other than the CPU, that a launch with these values may use, sorted.

    They are the devices of its tensors. The current CUDA device is added for a launch whose `kind`
    always runs on a GPU, and for one without tensors unless its kind is "cpp".
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    devices = {tensor.device for tensor in tensors} - {torch.device("cpu"), torch.device("meta")}
    if (kind in GPU_KINDS or not (tensors or kind == "cpp")) and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices.add(torch.device("cuda", torch.cuda.current_device()))
    return sorted(devices, key=str)


def synchronize(device: torch.device) -> None:
    """Wait for all work that was issued to a device. Raises torch's error if the device failed."""
    module = torch.get_device_module(device)
    if device.type == "mps":
        module.synchronize()
    else:
        module.synchronize(device)


def tf32() -> list[str]:
    """Which of the float32 operations `matmul` and `conv` CUDA's libraries may run in TF32."""
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
    """The first line of an error of torch's: its message without the advice that follows."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
