"""Runs what stands in the place of a launch, and keeps outputs of calls, for `rewriter bisect`.

If something in the place of a launch fails, the launch runs as it is, and a file beside the socket
of the hook says why, once. Outputs are files there, too.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

ATTEMPTS = "attempts"  # the file: a line for each launch that ran as it is
OUTPUTS = "outputs-"  # how the names of files with outputs begin
_KEPT = 3  # calls of a wrapper whose outputs are kept
_HOOK = "REWRITER_HOOK"
_LONGEST = 300  # characters of an error
_said: set[str] = set()


def attempt(launch: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have the function of a launch return `None` if it fails."""
    return lambda function: partial(_attempted, launch, function)


def _attempted(launch: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # whatever torch, or an operator of the program, raises
        if launch not in _said:
            _said.add(launch)
            _note(launch, f"{type(error).__name__}: {error}")
        return None


def _note(launch: str, problem: str) -> None:
    line = f"{launch} {' '.join(problem.split())[:_LONGEST]}\n"
    address = os.environ.get(_HOOK)
    if address is None:
        raise RuntimeError(f"a launch could not be replaced: {line}")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(os.path.join(os.path.dirname(address), ATTEMPTS), flags, 0o600)
    try:
        os.write(descriptor, line.encode("utf-8", "replace"))
    finally:
        os.close(descriptor)


def keeping(name: str, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The entry of a wrapper, which leaves what its first calls return in files."""
    import torch

    numbers = itertools.count()

    def kept(args: list[Any]) -> Any:
        outputs = call(args)
        number, address = next(numbers), os.environ.get(_HOOK)
        if number < _KEPT and address is not None:
            tensors = [x.detach().cpu() if isinstance(x, torch.Tensor) else None for x in outputs]
            file = f"{OUTPUTS}{number}-{os.getpid()}-{name}.pt"
            torch.save(tensors, os.path.join(os.path.dirname(address), file))
        return outputs

    return kept
