"""Which graph of a training run a wrapper computes: cheaply, without locating its launches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

GraphKind = Literal["forward", "backward", "inference"]

# What an entry, and nothing else, does with what it is called with; Python, then C++.
_INPUTS = re.compile(
    rb"^(?=[ \t])([\w, \t]+)=[ \t]*args[ \t\r]*$"
    rb"|^[ \t]+auto[ \t]+(\w+)[ \t]*=[ \t]*std::move\(inputs\[",
    re.MULTILINE,
)


def graph_of(source: bytes) -> GraphKind:
    """The graph that a wrapper computes, by the names of its inputs.

    The gradients that a backward is given are `tangents_N`, what the model takes `primals_N` where
    there is a backward (torch/_functorch/partitioners.py).
    """
    names = b" ".join(b" ".join(groups) for groups in _INPUTS.findall(source))
    if re.search(rb"\btangents_\d", names):
        return "backward"
    return "forward" if re.search(rb"\bprimals_\d", names) else "inference"


def graph_in(name: str) -> str:
    """The graph of a traced wrapper by its name, such as `0_0_0/forward_2.py`."""
    return Path(name).stem.partition("_")[0]
