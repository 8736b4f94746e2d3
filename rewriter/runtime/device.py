"""Devices: waiting for what was issued to them, and whether they record instead of running it."""

from __future__ import annotations

from collections.abc import Iterable

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


def first_line(error: BaseException) -> str:
    """What an error of torch's says before its advice."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
