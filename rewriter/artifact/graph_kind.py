"""Tells which graph of a training run a wrapper computes, without locating its launches."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal

GraphKind = Literal["forward", "backward", "inference"]

# How an entry, and no other function, unpacks its arguments: in Python, and in C++.
_INPUTS = re.compile(
    rb"^(?=[ \t])([\w, \t]+)=[ \t]*args[ \t\r]*$"
    rb"|^[ \t]+auto[ \t]+(\w+)[ \t]*=[ \t]*std::move\(inputs\[",
    re.MULTILINE,
)


def graph_of(source: bytes) -> GraphKind:
    """The graph that a wrapper computes, by the names of its inputs.

    The gradients that a backward takes are named `tangents_N`; the inputs of a model that has a
    backward are named `primals_N` (torch/_functorch/partitioners.py).
    """
    names = b" ".join(b" ".join(groups) for groups in _INPUTS.findall(source))
    if re.search(rb"\btangents_\d", names):
        return "backward"
    return "forward" if re.search(rb"\bprimals_\d", names) else "inference"


def numbered(stem: str, taken: Counter[str]) -> str:
    """A name that no other wrapper has: `forward`, and `forward_2` for the second. `taken` counts
    them."""
    taken[stem] += 1
    return f"{stem}_{taken[stem]}" if taken[stem] > 1 else stem


def graph_in(name: str) -> str:
    """The graph of a traced wrapper by its name, such as `0_0_0/forward_2.py`."""
    return Path(name).stem.partition("_")[0]
