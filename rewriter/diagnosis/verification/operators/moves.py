"""What moves elements, chooses among them, or makes constants."""

from __future__ import annotations

from typing import Any

import torch

from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, precision
from rewriter.diagnosis.verification.operators.operands import (
    Given,
    bound_of,
    each_result,
    is_uncertain,
    names,
    value_of,
)

# What moves elements and computes nothing.
MOVES = names(
    """alias as_strided cat chunk clone constant_pad_nd contiguous detach diagonal
    embedding expand flip gather index index_select lift_fresh_copy
    pad permute pixel_shuffle pixel_unshuffle repeat reshape rev roll select select_scatter slice
    slice_scatter split split_with_sizes squeeze stack t tile transpose tril triu unbind unfold
    unsqueeze view view_as _unsafe_index _unsafe_view diagonal_copy im2col repeat_interleave
    reflection_pad1d reflection_pad2d replication_pad2d"""
)


def moved(call: Any, given: Given, kind: torch.dtype) -> Any:
    if is_uncertain(given):
        raise UncheckedError("it depends on a comparison that rounding decides")
    exact = all(bounded.error is None for bounded in given)
    errors = None if exact else call(bound_of)
    if isinstance(errors, torch.Tensor):  # what pads has no bound of an element
        padding = call(lambda x: torch.zeros_like(x.bound()) if x.is_real else x.value)
        # It is of the type of the elements: a number of Python may lie between two of these.
        kept = padding.to(kind).to(padding.dtype) if kind.is_floating_point else padding
        errors = torch.where(padding == 0, errors, (padding - kept).abs().nan_to_num(0.0))

    def made(value: torch.Tensor, error: torch.Tensor | None) -> Bounded:
        rounds = value.is_floating_point() or value.is_complex()
        dtype = kind if rounds else value.dtype
        last = max(given, key=lambda x: x.steps, default=Bounded(value))
        return Bounded(value, error, dtype, last.terms, last.steps, last.through)

    return each_result(call(value_of), errors, made)


def unknown(call: Any, kind: torch.dtype) -> Bounded:
    """Uninitialised memory: it may hold anything."""
    value = torch.zeros_like(call(value_of))
    return Bounded(value, torch.full(value.shape, torch.inf, dtype=torch.float64), kind)


def constant(call: Any, kind: torch.dtype, *, is_window: bool = False) -> Bounded:
    value = call(value_of)
    if not value.is_floating_point():
        return Bounded(value, None, value.dtype)
    value = value.to(torch.float64)
    narrow = precision([kind])
    error = (value - value.to(narrow).to(torch.float64)).abs().nan_to_num(0.0)
    if is_window:  # 1 minus a cosine: at 0 it is as far off as at 1
        error = error + 10 * torch.finfo(narrow).eps
    return Bounded(value, error, kind)


EXTREMES = names(
    "amax amin max min aminmax max_pool2d_with_indices _low_memory_max_pool_with_offsets median"
)


def extreme(call: Any, given: Given, kind: torch.dtype) -> Any:
    bounds = (x.bound() for x in given if x.error is not None and x.error.numel())
    largest = max((float(bound.max()) for bound in bounds), default=0.0)

    def made(value: torch.Tensor, _: Any) -> Bounded:
        last = max(given, key=lambda x: x.steps)
        is_real = value.is_floating_point()
        # Which of two it is, where they are closer than the bound, is for rounding to decide.
        far = largest if is_real else torch.inf
        error = torch.full((), far, dtype=torch.float64) if largest else None
        dtype = kind if is_real else value.dtype
        return Bounded(value, error, dtype, last.terms, last.steps, last.through)

    return each_result(call(value_of), None, made)


def ordered(name: str, call: Any, args: Any, kwargs: Any, x: Bounded) -> tuple[Bounded, ...]:
    """The elements in their order, and where they were: uncertain among equal ones, unless the
    order is said to be stable, and where rounding decides."""
    values, index = call(value_of)
    dim = args[1] if name == "sort" and len(args) > 1 else kwargs.get("dim", -1)
    dim = args[2] if name == "topk" and len(args) > 2 else dim
    error = None if x.error is None else torch.full((), float(x.bound().max()) if x.value.numel()
                                                    else 0.0, dtype=torch.float64)  # fmt: skip
    found = Bounded(values, error, x.dtype, x.terms, x.steps, x.through)
    if not x.value.dim() or (kwargs.get("stable") and error is None):
        return found, Bounded(index, None, index.dtype, x.terms, x.steps, x.through)
    near = 0 if error is None else 2 * float(error)
    every = x.value.movedim(dim, -1).sort(-1).values.contiguous()
    these = values.movedim(dim, -1).contiguous()
    equal = torch.searchsorted(every, these + near, right=True)
    equal -= torch.searchsorted(every, these - near)
    unsure = torch.where(equal.movedim(-1, dim) > 1, torch.inf, 0.0).to(torch.float64)
    return found, Bounded(index, unsure, index.dtype, x.terms, x.steps, x.through)


def arg_extreme(name: str, call: Any, args: Any, x: Bounded) -> Bounded:
    """The index of the largest: uncertain where another one is as large within the bounds."""
    index = call(value_of)
    if x.error is None:
        return Bounded(index, None, index.dtype, x.terms, x.steps, x.through)
    dim = args[1] if len(args) > 1 else None
    value, bound = x.value if name == "argmax" else -x.value, x.bound()
    if dim is None:
        value, bound, dim = value.reshape(-1), bound.reshape(-1), 0
    keeps = len(args) > 2 and bool(args[2])
    near = value + bound >= (value - bound).amax(dim, keepdim=True)
    unsure = torch.where(near.sum(dim, keepdim=keeps) > 1, torch.inf, 0.0).to(torch.float64)
    unsure = unsure.reshape(index.shape)
    return Bounded(index, unsure, index.dtype, x.terms, x.steps, x.through)
