"""Compares what compiled code and plain Python leave, and tells rounding from other differences.

Compiled code rounds at other places. If two values differ by more than the usual tolerance, plain
Python is run several times with small random errors: each result of an operation, and each input,
is off by up to four units of rounding, and uninitialised memory holds NaN, or random numbers.
What rounding can do to a value shows in how much it varies then; ten times that is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .record import NotComparedError
from .state import is_users

# Relative tolerances: those of `torch.testing.assert_close`; of 8-bit types, their eps.
_RELATIVE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7,
             torch.complex128: 1e-7}  # fmt: skip
_USUAL, _ABSOLUTE = 1.3e-6, 1e-5
_UNITS, _FACTOR = 4.0, 10.0
_TYPES = ("dtype", "shape", "device")


@dataclass
class Problem:
    """A value that differs: `kind` is values, dtype, shape, device, type or missing."""

    name: str
    kind: str
    compiled: str
    plain: str
    detail: str = ""


class Rounded(TorchDispatchMode):
    """Makes small random errors in what operators return or write."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = getattr(func, "_schema", None)
        if schema is None:
            return result
        is_fresh = "empty" in func.__name__
        if schema.is_mutable:
            given = [*args, *(kwargs or {}).values()]
            written = [x for x, of in zip(given, schema.arguments, strict=False)
                       if of.alias_info is not None and of.alias_info.is_write]  # fmt: skip
            for leaf in pytree.tree_leaves(written):
                self.disturb(leaf, is_fresh=False)
        elif all(return_.alias_info is None for return_ in schema.returns):
            for leaf in pytree.tree_leaves(result):
                self.disturb(leaf, is_fresh=is_fresh)
        return result

    def disturb(self, tensor: Any, *, is_fresh: bool = False) -> None:
        """Add random errors to a tensor, in place."""
        if not isinstance(tensor, torch.Tensor) or not tensor.numel():
            return
        with torch.no_grad():
            if is_fresh:
                noise = self._noise(tensor, torch.float32) * 100
                if tensor.dtype is not torch.bool:
                    tensor.copy_(noise.to(tensor.dtype))
                if tensor.is_floating_point() and self._seed == 0:
                    tensor.fill_(torch.nan)  # it can hold any number
            elif tensor.is_floating_point() or tensor.is_complex():
                size = _UNITS * torch.finfo(tensor.dtype).eps
                is_double = tensor.dtype in (torch.float64, torch.complex128)
                computed = torch.float64 if is_double else torch.float32
                noise = 1 + size * self._noise(tensor, computed)
                tensor.copy_((tensor * noise).to(tensor.dtype))

    def _noise(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if tensor.device not in self._generators:
            made = torch.Generator(tensor.device)
            made.manual_seed(self._seed)
            self._generators[tensor.device] = made
        generator = self._generators[tensor.device]
        drawn = torch.rand(tensor.shape, dtype=dtype, device=tensor.device, generator=generator)
        return 2 * drawn - 1


def leaves(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The tensors and numbers in what a function returns, with their names; of other objects the
    tensors, but for those with ids in `seen`, to which objects are added that were gone through."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key!r}]", seen)
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from leaves(item, f"{name}[{at}]", seen)
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from leaves(getattr(value, key), f"{name}.{key}", seen)
    else:
        yield name, value
        # A cache of transformers, say; no model, whose weights are not what is returned.
        is_holder = is_users(type(value).__module__) and not isinstance(value, torch.nn.Module)
        if id(value) not in seen and is_holder and hasattr(value, "__dict__"):
            seen.add(id(value))
            for key, item in vars(value).items():
                inside = leaves(item, f"{name}.{key}", seen)
                yield from ((at, x) for at, x in inside if isinstance(x, torch.Tensor))


def typed(
    compiled: Mapping[str, Any], plain: Mapping[str, Any]
) -> tuple[list[Problem], list[str], list[str]]:
    """Values of other types, the names of those that can be compared, and notes about strides."""
    problems, names, notes = [], [], []
    for name in dict.fromkeys([*plain, *compiled]):
        one, other = compiled.get(name, _Missing), plain.get(name, _Missing)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            found = _of_types(name, one, other)
            problems += found
            if not found:
                names.append(name)
                notes += _strides(name, one, other)
        elif isinstance(one, (bool, int, float, complex)) and type(one) is type(other):
            names.append(name)
        elif _kind(one) != _kind(other):
            problems.append(Problem(name, "type", _kind(one), _kind(other)))
    return problems, names, notes


class _Missing:
    """In the place of a value that one of the two does not have."""


def _kind(value: Any) -> str:
    if value is _Missing:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return "a tensor"
    plain = (type(None), bool, int, float, complex, str)
    return type(value).__name__ if isinstance(value, plain) else "an object"


def _of_types(name: str, one: torch.Tensor, other: torch.Tensor) -> list[Problem]:
    found = []
    for kind in _TYPES:
        a, b = (getattr(x, kind) for x in (one, other))
        a, b = ((str(list(x)) if kind == "shape" else str(x)) for x in (a, b))
        if a != b:
            words = (x.removeprefix("torch.") for x in (a, b))
            found.append(Problem(name, kind, *words))
    return found


def _strides(name: str, one: torch.Tensor, other: torch.Tensor) -> list[str]:
    if not one.numel():
        return []
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    if all(a == b for size, a, b in pairs if size > 1):
        return []
    return [f"{name} has stride {list(one.stride())}, from plain Python {list(other.stride())}"]


def wide(value: Any) -> torch.Tensor:
    """A value with its elements in float64, complex128 or int64."""
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)


@torch.no_grad()
def unequal(compiled: Any, plain: Any, others: Sequence[Any] = ()) -> tuple[torch.Tensor, int]:
    """Which elements differ by more than rounding explains, and how many do. `others` are what
    plain Python gives with small errors."""
    one, other = wide(compiled), wide(plain)
    runs = [wide(x) for x in others]
    if any(x.shape != other.shape for x in runs):
        raise NotComparedError("rounding decides how many elements there are")
    same = (one == other) | (one.isnan() & other.isnan())
    if not other.is_floating_point() and not other.is_complex():
        varied = torch.zeros_like(same)
        for run in runs:
            varied |= run != other
        wrong = ~same & ~varied
        count = int(wrong.sum())
        return wrong, 0 if count <= int(varied.sum()) else count
    dtype = plain.dtype if isinstance(plain, torch.Tensor) else torch.float32
    relative = _RELATIVE.get(dtype, _USUAL)
    if dtype.itemsize == 1:
        relative = torch.finfo(dtype).eps
    size = other.abs().nan_to_num(0.0, 0.0, 0.0)
    scale = float(size.max()) if size.numel() else 0.0
    allowed = relative * size + _ABSOLUTE * min(1.0, scale)
    unsure = torch.zeros_like(same)
    noise = torch.zeros_like(allowed)
    for run in runs:
        finite = torch.isfinite(run.abs()) & torch.isfinite(other.abs())
        unsure |= ~finite & ~((run == other) | (run.isnan() & other.isnan()))
        noise = torch.maximum(noise, (run - other).abs().nan_to_num(0.0, 0.0, 0.0))
    if runs and noise.numel():
        allowed = allowed + _FACTOR * (noise + math.sqrt(float(noise.square().mean())))
    off = (one - other).abs().nan_to_num(torch.inf, torch.inf, torch.inf)
    wrong = ~same & ~unsure & ~(off <= allowed)
    return wrong, int(wrong.sum())


@torch.no_grad()
def described(name: str, compiled: Any, plain: Any, wrong: torch.Tensor) -> Problem:
    """The problem of a value of which elements are wrong: the one that is furthest off."""
    one, other = wide(compiled), wide(plain)
    off = (one.to(torch.complex128) - other.to(torch.complex128)).abs()
    off = torch.where(wrong, off.nan_to_num(torch.inf, torch.inf, torch.inf), -1.0)
    flat = int(off.reshape(-1).argmax())
    at = [int(x) for x in torch.unravel_index(torch.tensor(flat), other.shape)]
    where = f"{at}" if at else ""
    a, b = (_number(x.reshape(-1)[flat].item()) for x in (one, other))
    count, size = int(wrong.sum()), other.numel()
    detail = f"{count:,} of {size:,} element{'s' * (size != 1)} differ"
    return Problem(name + where, "values", a, b, detail)


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
