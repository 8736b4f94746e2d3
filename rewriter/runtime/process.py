"""The process that is probed: its number, what it is for, and what it says beside its dump."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch


def say(text: str) -> None:
    """Write to standard error, if there is one: a failure must not stop the model."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)


class Silent:
    """Takes every call and does nothing: `REWRITER_PROBE=off`."""

    on = False

    def begin(self, values: Any = None) -> None:
        pass

    def inputs(self, *values: Any) -> None:
        pass

    def before(self, launch: int, *values: Any) -> None:
        pass

    def after(self, launch: int, *values: Any) -> None:
        pass

    def allocated(self, event: int, tensor: Any) -> Any:
        return tensor

    def reused(self, event: int, tensor: Any) -> None:
        pass

    def released(self, event: int, tensor: Any) -> None:
        pass

    def checked(self, launch: int) -> None:
        pass

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass


def read_rank() -> int:
    """The number of this process in its job, 0 if it has none."""
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 10 else 0


def is_data_worker() -> bool:
    """Whether this process loads data for the one that is probed."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Keep what probes do out of sight of the program's own `TorchDispatchMode`s."""
    if not torch._C._len_torch_dispatch_stack():
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
