"""Calls what torch saved compiled: artifacts of `standalone_compile`, and functions.

To load such a file is to run what its pickles say. It is loaded here because somebody asked for it
to be run, in a process of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch


class NotLoadedError(Exception):
    """torch does not load the file."""


def load(path: str, loader: str) -> Callable[..., Any]:
    """What a file or a directory holds, as torch loads it."""
    try:
        if loader == "function":
            with open(path, "rb") as file:
                function: Callable[..., Any] = torch.compiler.load_compiled_function(file)
                return function
        inductor: Any = importlib.import_module("torch._inductor")
        artifact: Callable[..., Any] = inductor.CompiledArtifact.load(path=path, format=loader)
    except Exception as error:
        reason = f"{error}".strip().split("\n")[0]
        raise NotLoadedError(f"{type(error).__name__}: {reason}" if reason else "") from error
    return artifact
