"""Runs a wrapper for a GPU on the CPU: its Triton kernels in Triton's interpreter.

All that the wrapper makes on a GPU is made on the CPU, whose operators torch calls. What has no
counterpart there raises `ProblemError`.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import ProblemError
from .interpreter import Kernel, Memory, watch

_GPUS = ("cuda", "xpu")
_CPU = torch.device("cpu")


def not_interpreted(message: str) -> ProblemError:
    """The error for what only a GPU, or a machine with Triton, can run."""
    return ProblemError("not-interpreted", message)


class _Checked(Kernel):
    """A kernel that may only touch the tensors of its launch. `taken` says which arguments are its
    own, where a launch chooses between kernels."""

    name = ""
    taken: Sequence[slice] = (slice(None),)

    def run(self, *given: Any, stream: Any = None, **more: Any) -> None:
        memory = self._memory
        memory.ranges.clear()
        try:
            super().run(*(argument for part in self.taken for argument in given[part]), **more)
        except (Exception, SystemExit) as error:
            raise not_interpreted(f"Triton's interpreter stops in {self.name}: {error}") from error
        if memory.faults:
            fault = memory.faults[0]
            raise IndexError(
                f"{self.name} {fault['message']} outside of {fault['parameter']}: element "
                f"{fault['element']} of {fault['size']} (line {fault['line']} of the kernel)"
            )


class _OnCpu(TorchFunctionMode):
    """Sends what asks for a GPU to the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {name: _moved(value) for name, value in (kwargs or {}).items()}
        try:
            return func(*map(_moved, args), **given)
        except NotImplementedError as error:
            if "CPU" not in str(error):
                raise
            what = getattr(func, "__name__", str(func))
            raise not_interpreted(f"torch has no {what} for the CPU") from error


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in _GPUS:
        return _CPU
    if isinstance(value, str) and value.partition(":")[0] in _GPUS:
        return "cpu"
    return value


def enter(folder: Path) -> None:
    """From now on, wrappers that are loaded in this process run on the CPU. Files of kernels are
    written to `folder`. TRITON_INTERPRET=1 has to be in the environment."""
    if importlib.util.find_spec("triton") is None:
        raise not_interpreted("Triton is not installed")
    memory = Memory()
    watch(memory)
    torch.load = functools.partial(torch.load, map_location="cpu")
    names: Any = torch._C
    guards: Any = torch._C._dynamo.guards
    cuda: Any = torch.cuda
    for gpu in _GPUS:
        setattr(names, f"_{gpu}_getCurrentRawStream", lambda index: 0)
        setattr(guards, f"_empty_strided_{gpu}", guards._empty_strided_cpu)
    for name in ("_DeviceGuard", "device", "stream"):
        setattr(cuda, name, lambda *_: nullcontext())
    for name in ("set_device", "synchronize"):
        setattr(cuda, name, lambda *_: None)
    cuda.current_device = lambda: 0

    from torch._inductor.async_compile import AsyncCompile

    def triton(self: Any, name: str, source: str, *rest: Any, **more: Any) -> Kernel:
        kernel = _Checked(folder / f"{name}.py", memory, source)
        kernel.name = name
        return kernel

    def multi_kernel(
        self: Any, name: str, kernels: list[_Checked], arg_index: Any = None, **more: Any
    ) -> Kernel:
        kernels[0].taken = arg_index[0] if arg_index else kernels[0].taken
        return kernels[0]

    def refused(what: str) -> Callable[..., Any]:
        def compiled(*given: Any, **more: Any) -> Any:
            raise not_interpreted(f"a kernel is written in {what}, not in Triton")

        return compiled

    compiler: Any = AsyncCompile
    compiler.triton, compiler.multi_kernel = triton, multi_kernel
    languages = {"cuda": "CUTLASS", "rocm": "Composable Kernel", "cutedsl": "CuTe DSL"}
    for name, what in languages.items():
        if hasattr(compiler, name):
            setattr(compiler, name, refused(what))
    _OnCpu().__enter__()  # type: ignore[no-untyped-call]
