"""A plan: the facts about the values of a launch that the library knows, and checks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .device import is_capturing
from .statistics import has_bytes

if TYPE_CHECKING:
    from .event import Value

# The facts about a value: type; the text of a scalar, empty for a tensor; then for a tensor shape,
# stride, dtype, device index, bytes from the first element to the end, and bytes of an element.
# A plain tuple, since that is quick to unpack.
Form = tuple[Any, str, tuple[int, ...], tuple[int, ...], Any, int, int, int]


@dataclass(frozen=True)
class Plan:
    """The facts about the values at one phase of a launch, as they were given to the library."""

    number: int  # the handle of the plan in the library
    pack: Callable[..., bytes]  # packs the argument of `EventQueue.launch`
    # For each tensor: bytes from its first element to its end, bytes of an element.
    ends: tuple[tuple[int, int], ...]
    has_complex: bool
    device: int  # the GPU of the tensors, -1 if all are on the CPU
    forms: tuple[Form | None, ...]  # of all values
    check: Callable[..., bool] | None  # whether values, all tensors, still have these facts
    # Tensors whose memory may have been freed, for use with `check`: place, and as in `ends`.
    freed: tuple[tuple[int, int, int], ...]
    together: bool  # the measurement may wait for that of the next launch
    held: tuple[int, ...]  # places of values to keep alive until a memory line measures them

    def stream(self, uses_cuda: bool) -> int | None:
        """The stream to measure the values on, 0 for the CPU.

        None if they cannot be measured: another GPU is current, or a CUDA graph is being captured.
        The latter is only checked for values on the CPU in a call that `uses_cuda`; the library
        checks the stream of a GPU itself.
        """
        if self.device >= 0:
            if has_several_gpus() and torch.cuda.current_device() != self.device:
                return None
            stream: int = torch._C._cuda_getCurrentRawStream(self.device)
            return stream
        return None if uses_cuda and is_capturing() else 0


def forms_of(values: Sequence[Any], ends: Sequence[tuple[int, int]]) -> Iterator[Form | None]:
    """Yield the facts about each value. `ends` has an entry for each tensor, as in `Plan`."""
    places = iter(ends)
    for value in values:
        if value is None:
            yield None
        elif isinstance(value, Tensor):
            shape, stride, device = value.shape, value.stride(), value.get_device()
            yield (type(value), "", shape, stride, value.dtype, device, *next(places))
        else:
            yield type(value), repr(value), (), (), None, -1, 0, 0


def end_of(value: Value) -> tuple[int, int]:
    """The bytes from the first element of a tensor to the end of the last, and bytes per element.

    Both are 0 for an empty tensor.
    """
    size = value.content.element_size()
    if not value.content.numel():
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride, strict=True))
    return (last + 1) * size, size


def fits(value: Any, form: Form) -> bool:
    """Whether a value is a tensor with these facts whose memory was not freed."""
    kind, _, shape, stride, dtype, device, end, size = form
    return (
        type(value) is kind
        and value.shape == shape
        and value.stride() == stride
        and value.dtype is dtype
        and value.get_device() == device
        and not value.is_neg()
        and has_bytes(value, end, size)
    )


def addresses_of(values: Sequence[Any], forms: Sequence[Form | None]) -> list[int] | None:
    """The addresses of the tensors among the values; None if a value does not have its facts."""
    addresses = []
    for value, form in zip(values, forms, strict=True):
        if form is None:
            if value is not None:
                return None
        elif form[1]:
            if type(value) is not form[0] or repr(value) != form[1]:
                return None
        elif not fits(value, form):
            return None
        else:
            addresses.append(value.data_ptr())
    return addresses


def tensor_check(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function that compares tensors with `tensors` in one call of torch's guards.

    It compares types, dispatch keys (and so lazy negation), dtypes, devices, shapes and strides.
    None if the installed torch has no such guards.
    """
    try:
        module: Any = import_module("torch._C._dynamo.guards")
        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        check: Callable[..., bool] = module.TensorGuards(
            *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
        ).check
        return check if check(*tensors) else None
    except Exception:
        return None  # another version of torch


@cache
def has_several_gpus() -> bool:
    return torch.cuda.device_count() > 1
