"""What the library knows of the values of a launch, and whether values are still like that."""

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

# The facts of a value: its type; of a scalar its text; of a tensor shape, stride, dtype, device,
# and the bytes up to its end and of an element. A tuple, since that is quick to take apart.
Form = tuple[Any, str, tuple[int, ...], tuple[int, ...], Any, int, int, int]


@dataclass(frozen=True)
class Plan:
    """What the library knows of the values before, or after, a launch.

    `number` is that of the plan in the library, `pack` makes the bytes that measuring takes. `ends`
    has for each tensor the bytes of memory from its first element to its end, and those of an
    element. `device` is the GPU of the tensors, -1 if all are on the CPU. `forms` are the facts of
    the values. `written` are the places of inputs that launches write. `check`, if there is one,
    takes the values, all tensors, and tells whether they have these facts; `freed` are those whose
    memory may have been freed: place, bytes to the end, bytes of an element. Values that go
    `together` may wait to be measured with those of the next launch. `held` are the places of those
    that have to stay until the lines about memory behind them, which have them measured.
    """

    number: int
    pack: Callable[..., bytes]
    ends: tuple[tuple[int, int], ...]
    has_complex: bool
    device: int
    forms: tuple[Form | None, ...]
    written: tuple[int, ...]
    check: Callable[..., bool] | None
    freed: tuple[tuple[int, int, int], ...]
    together: bool
    held: tuple[int, ...]

    def stream(self, uses_cuda: bool) -> int | None:
        """The stream that the values are measured on, 0 on the CPU; `None` where they cannot be:
        another GPU is current, or a CUDA graph is captured, which only a call that `uses_cuda`
        can be part of."""
        if self.device >= 0:
            if has_several_gpus() and torch.cuda.current_device() != self.device:
                return None
            stream: int = torch._C._cuda_getCurrentRawStream(self.device)
            return stream
        return None if uses_cuda and is_capturing() else 0


def forms_of(values: Sequence[Any], ends: Sequence[tuple[int, int]]) -> Iterator[Form | None]:
    """The facts of values; `ends` are those of the tensors among them."""
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
    """The bytes from the first element of a tensor to the end of the last; those of an element."""
    size = value.content.element_size()
    if not value.content.numel():
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride, strict=True))
    return (last + 1) * size, size


def fits(value: Any, form: Form) -> bool:
    """Whether a value is a tensor with these facts, whose memory was not freed."""
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
    """Where the tensors are, if all values have these facts."""
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
    """What compares tensors with these in one call: types, dispatch keys (also those of views that
    are negated), dtypes, devices, shapes and strides. None where torch has no such thing."""
    try:
        module: Any = import_module("torch._C._dynamo.guards")
        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        check: Callable[..., bool] = module.TensorGuards(
            *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
        ).check
        return check if check(*tensors) else None
    except Exception:
        return None  # a version of torch that has it in another way


@cache
def has_several_gpus() -> bool:
    return torch.cuda.device_count() > 1
