"""What is asked of CUDA."""

from __future__ import annotations

from typing import Any

import torch


def is_capturing() -> bool:
    """Whether the current stream is capturing a CUDA graph: then nothing may synchronise."""
    # Without the first check the second one would initialise CUDA in a process that never used it.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


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
