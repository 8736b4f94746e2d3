"""The names of one wrapper, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Input:
    """An input in the model: its name, empty if not known, and where it is first used."""

    name: str
    at: str = ""


@dataclass(frozen=True)
class Names:
    """`nodes` are the source nodes of launches by index: Dynamo's names, where it is not known
    which, the lines of the model (`model.py:12`), and without those the nodes of Inductor's graph.
    `inputs` are by the names that the wrapper gives to them."""

    nodes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
