"""What moves elements, or makes constants."""

from __future__ import annotations

from typing import Any

import torch

from rewriter.verification.bounded import Bounded, UncheckedError, precision
from rewriter.verification.operators.operands import (
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
    pad permute pixel_shuffle pixel_unshuffle repeat reshape roll select select_scatter slice
    slice_scatter split split_with_sizes squeeze stack t tile transpose tril triu unbind unfold
    unsqueeze view view_as _unsafe_index _unsafe_view diagonal_copy im2col repeat_interleave
    reflection_pad1d reflection_pad2d replication_pad2d"""
)


def moved(call: Any, given: Given, kind: torch.dtype) -> Any:
    if is_uncertain(given):
        raise UncheckedError("it depends on a comparison that rounding decides")
    exact = all(one.error is None for one in given)
    errors = None if exact else call(bound_of)

    def made(value: torch.Tensor, error: torch.Tensor | None) -> Bounded:
        rounds = value.is_floating_point() or value.is_complex()
        dtype = kind if rounds else value.dtype
        last = max(given, key=lambda one: one.steps, default=Bounded(value))
        return Bounded(value, error, dtype, last.terms, last.steps, last.through)

    return each_result(call(value_of), errors, made)


def unknown(call: Any, kind: torch.dtype) -> Bounded:
    """Memory that nobody has written: it may hold anything."""
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
