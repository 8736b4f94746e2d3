"""Loads and calls saved compiled code: artifacts of `standalone_compile`, and saved functions.

Loading such a file executes its pickles. It is only loaded because the user asked to run it, and in
a separate process.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from . import ProblemError

# The error of a saved function in torch 2.9 and later: how it begins, and where the guards are.
_NO_GUARD_HOLDS = "GuardManager check failed"
_GUARDS = re.compile(r"verbose_code_parts=\[(.*?)\]\s*,\s*num_guards_executed", re.DOTALL)
_MODES: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    nullcontext,
    torch.no_grad,
    torch.inference_mode,
)


class GuardsError(Exception):
    """The inputs do not satisfy the guards of a saved function; the text names the guards."""


def load(path: str, spec: dict[str, Any]) -> Callable[..., Any]:
    """Load a file or directory, as the specification of the run says. Raises `ProblemError`."""
    try:
        if spec["saved"] == "function":
            with open(path, "rb") as file:
                return _in_its_mode(torch.compiler.load_compiled_function(file))
        inductor: Any = importlib.import_module("torch._inductor")
        # For others it is the format.
        artifact: Callable[..., Any] = inductor.CompiledArtifact.load(
            path=path, format=spec["saved"]
        )
    except Exception as error:
        reason = f"{error}".strip().split("\n")[0]
        what = f": {type(error).__name__}: {reason}" if reason else ""
        raise ProblemError(
            "not-loaded", f"torch {torch.__version__} cannot load it{what}"
        ) from error
    return artifact


def _in_its_mode(function: Any) -> Callable[..., Any]:
    """Wrap a saved function, so that it is called in the gradient mode it was compiled in.

    The mode is one of the function's guards; the wrapper tries all modes. The wrapper raises
    `GuardsError` if other guards do not hold.
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
        # The mode's guard is checked first: an error that does not name it has the real reason.
        raise GuardsError(next((x for x in reasons if "grad_mode" not in x), reasons[0]))

    return call
