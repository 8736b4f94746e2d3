"""The probed process: its rank, whether it is a data worker, and its messages on stderr."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import Any

import torch


def say(text: str) -> None:
    """Write to standard error, ignoring failures: these must not stop the model."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)


class Silent:
    """A recorder that does nothing, for `REWRITER_PROBE=off`."""

    on = False
    due = staticmethod(itertools.repeat(False).__next__)  # like `Dormant.due`

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
    """The rank of this process in its job, 0 if it has none.

    torchrun and most launchers set `RANK`. Others set at least `LOCAL_RANK`, the number of the
    process on its host; with `GROUP_RANK`, the number of the host, and `LOCAL_WORLD_SIZE` that
    gives the rank. Under `srun` the rank is `SLURM_PROCID`, unless the task itself started several
    processes: then `LOCAL_RANK` differs from `SLURM_LOCALID`.
    """
    rank = _number("RANK")
    local, step = _number("LOCAL_RANK"), _number("SLURM_PROCID")
    if rank is not None:
        return rank
    if local is not None and (host := _number("GROUP_RANK")) is not None:
        return host * (_number("LOCAL_WORLD_SIZE") or 0) + local
    if step is not None and local in (None, _number("SLURM_LOCALID")):
        return step
    return local or 0


def read_size() -> int:
    """The number of processes in the job, 0 if it is not known."""
    if (size := _number("WORLD_SIZE")) is not None:
        return size
    return (_number("SLURM_NTASKS") or 0) if _number("SLURM_PROCID") is not None else 0


def _number(variable: str) -> int | None:
    """The number in an environment variable; None if it is unset, or not a number."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def is_data_worker() -> bool:
    """Whether this process is a worker of a `DataLoader`."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """A context in which the program's own `TorchDispatchMode`s do not see what probes do."""
    if not torch._C._len_torch_dispatch_stack():
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
