"""Tells which layers of a model a piece of it contains, and what its inputs are in the model.

vLLM writes the text of the graph that it split (`computation_graph.py`), with a class for each
piece; the parameters of `forward` have the names that Dynamo gives to parameters of modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import limits

_CLASS = re.compile(r"\s*class (\w+)\(torch\.nn\.Module\):\s*")
_FORWARD = re.compile(r"\s*def forward\(self, ")
_PARAMETER = re.compile(r'(\w+)(?:: "[^"]*")?(?:, |\))')
_OF_SELF = re.compile(r"[lL]_self_(?=_?(?:modules|parameters|buffers)_)")
# `modules_layers_modules_0_modules_up_parameters_weight_` is layers.0.up.weight.
_STEP = re.compile(r"(?:^|_)(?:modules|parameters|buffers)_")


@dataclass(frozen=True)
class PieceNames:
    """The layers of a piece, such as `layers.0`, and its inputs in order: a parameter by its path
    in the model, any other input by its name in the graph."""

    layers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def read(graph: Path) -> dict[str, PieceNames]:
    """The names of each piece of a graph; none if the file does not exist."""
    if not graph.is_file():
        return {}
    text = limits.read(graph, limits.WRAPPER_BYTES).decode("utf-8", "replace")
    names: dict[str, PieceNames] = {}
    current = ""
    for line in text.splitlines():
        if match := _CLASS.fullmatch(line):
            current = match[1]
        elif current and (match := _FORWARD.match(line)):
            names[current] = _names(_PARAMETER.findall(line, match.end()))
            current = ""
    return names


def parameter(name: str) -> str:
    """The path of a parameter in the model, from its name in Dynamo's graph; empty for others."""
    match = _OF_SELF.match(name)
    if match is None:
        return ""
    return ".".join(filter(None, _STEP.split(name[match.end() :].removesuffix("_"))))


def _names(parameters: Iterable[str]) -> PieceNames:
    paths = [(parameter(name), name) for name in parameters]
    layers = dict.fromkeys(_layer(path) for path, _ in paths if path)
    return PieceNames(tuple(layers), tuple(path or _local(name) for path, name in paths))


def _layer(path: str) -> str:
    """`layers.0` of `layers.0.up.weight`: up to the first number, or the module of a parameter."""
    parts = path.split(".")
    for length, part in enumerate(parts, 1):
        if part.isdigit():
            return ".".join(parts[:length])
    return ".".join(parts[:-1]) or path


def _local(name: str) -> str:
    """The name `x` from `l_x_`."""
    return name[2:-1] if name.startswith(("l_", "L_")) and name.endswith("_") else name
