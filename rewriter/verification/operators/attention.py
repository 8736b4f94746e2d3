"""Attention, which libraries compute in operators of a device: by its formula, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rewriter.verification.bounded import Bounded, UncheckedError

NAMES = frozenset(
    f"_scaled_dot_product_{kind}_attention{end}"
    for kind in ("efficient", "cudnn", "flash")
    for end in ("", "_backward")
)
Change = Callable[[Bounded], Any]


def attention(operator: Any, args: Any, kwargs: dict[str, Any]) -> Callable[[Change], Any]:
    """Calls the formula with something in the places of the operator's values.

    Of a forward the result is the first; what it keeps for its backward is in the form of the
    library, and is not judged. Raises `UncheckedError` if elements are dropped.
    """
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("dropout_p"):
        raise UncheckedError("attention with dropout draws random numbers")

    scale = given.get("scale")
    is_causal = bool(given.get("is_causal"))
    gradient = given.get("grad_out", given.get("grad_out_"))

    def call(change: Change) -> Any:
        query, key, value = (change(given[name]) for name in ("query", "key", "value"))
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = query @ key.transpose(-2, -1) * factor
        if given.get("attn_bias") is not None:
            scores = scores + change(given["attn_bias"])
        if is_causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        if gradient is None:
            return (scores.softmax(-1) @ value,)
        # By what the forward has left, which the launch was given, too.
        sums = change(given["logsumexp"])
        sums = (sums.squeeze(-1) if sums.ndim == query.ndim else sums)[..., : query.shape[-2]]
        weights = (scores - sums.unsqueeze(-1)).exp()
        towards = change(gradient)
        mean = (towards * change(given["out"])).sum(-1, keepdim=True)
        inner = weights * (towards @ value.transpose(-2, -1) - mean) * factor
        back = inner.transpose(-2, -1) @ query
        return inner @ key, back, weights.transpose(-2, -1) @ towards

    return call
