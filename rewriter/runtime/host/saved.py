"""Calls what torch saved compiled: artifacts of `standalone_compile`, and functions.

To load such a file is to run what its pickles say. It is loaded here because somebody asked for it
to be run, in a process of its own.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

# How torch 2.9 and later begins the error of a saved function, and where it says which guards.
_NO_GUARD_HOLDS = "GuardManager check failed"
_GUARDS = re.compile(r"verbose_code_parts=\[(.*?)\]\s*,\s*num_guards_executed", re.DOTALL)
_MODES: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    nullcontext,
    torch.no_grad,
    torch.inference_mode,
)


class NotLoadedError(Exception):
    """torch does not load the file."""


class GuardsError(Exception):
    """The inputs are not those that a function was compiled for; the text says which guards."""


def load(path: str, loader: str) -> Callable[..., Any]:
    """What a file or a directory holds, as torch loads it."""
    try:
        if loader == "function":
            with open(path, "rb") as file:
                return _in_its_mode(torch.compiler.load_compiled_function(file))
        inductor: Any = importlib.import_module("torch._inductor")
        artifact: Callable[..., Any] = inductor.CompiledArtifact.load(path=path, format=loader)
    except Exception as error:
        reason = f"{error}".strip().split("\n")[0]
        raise NotLoadedError(f"{type(error).__name__}: {reason}" if reason else "") from error
    return artifact


def _in_its_mode(function: Any) -> Callable[..., Any]:
    """A saved function, called with gradients enabled or not as when it was compiled.

    That is one of its guards, and no input satisfies it. Raises `GuardsError` where others
    do not hold.
    """

    def call(*inputs: Any, **keywords: Any) -> Any:
        reasons = []
        for mode in _MODES:
            try:
                with mode():
                    return function(*inputs, **keywords)
            except RuntimeError as error:
                if not str(error).startswith(_NO_GUARD_HOLDS):
                    raise
                guards = _GUARDS.search(str(error))
                reasons.append(" ".join((guards[1] if guards else str(error)).split()))
        # The mode is looked at first: where it is right, the text has what is wrong.
        raise GuardsError(next((x for x in reasons if "grad_mode" not in x), reasons[0]))

    return call
