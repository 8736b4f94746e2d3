"""Checks kernels against functions that the user names with --reference.

A function is called with the tensors that the launch read, in the order of its arguments: in
float64, integers as they are. It returns what the launch should write: one tensor, or several.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, exact, in_short
from rewriter.diagnosis.verification.judge import compare
from rewriter.diagnosis.verification.operators.sampled import sampled
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.types import Checked

_Function = Callable[..., Any]


@dataclass(frozen=True)
class Reference:
    """A function for the kernels whose name matches a pattern; `text` is what the user wrote."""

    pattern: str
    text: str
    function: _Function

    @staticmethod
    def read(text: str) -> Reference:
        """Import the function of `KERNEL=module:function`, or `KERNEL=file.py:function`.

        Raises `RewriterError` if that fails.
        """
        pattern, equals, place = text.partition("=")
        module, colon, name = place.rpartition(":")
        if not (pattern and equals and module and colon and name):
            raise _problem(f"--reference {text}: expected KERNEL=module:function")
        try:
            function = getattr(_module(module), name, None)
        except (Exception, SystemExit) as error:
            raise _problem(f"--reference {text}: {module}: {error!r}") from error
        if not callable(function):
            raise _problem(f"--reference {text}: {module} has no function {name}")
        return Reference(pattern, place, function)


def _module(name: str) -> Any:
    folders = [os.getcwd()]
    if name.endswith(".py"):
        path = Path(name).resolve()
        folders, name = [str(path.parent)], path.stem
    sys.path[:0] = folders
    return importlib.import_module(name)


def _problem(message: str) -> RewriterError:
    hint = "Name a function of a module or of a Python file: what the kernel has to compute."
    return RewriterError("bad-reference", message, hint=hint)


def reference_of(references: Sequence[Reference], kernel: str) -> Reference | None:
    """The last reference whose pattern matches a kernel."""
    return next((x for x in reversed(references) if fnmatchcase(kernel, x.pattern)), None)


def check_reference(reference: Reference, values: LaunchValues) -> list[Checked]:
    """Check what a launch wrote. Raises `UncheckedError` if that is not possible."""
    names = dict.fromkeys(x.name for x in values.launch.tensors)
    given = {x: values.load(values.given[x]) for x in names if x in values.given}
    handed = list(map(exact, given.values()))
    results = {x: values.load(values.written[x]) for x in names if x in values.written}
    expected = _called(reference, handed, results)
    if len(expected) != len(results):  # some may not have been written after all
        results = {x: got for x, got in results.items()
                   if x not in given or not torch.equal(given[x], got)}  # fmt: skip
    if len(expected) != len(results):
        problem = f"{reference.text} gives {len(expected)} tensors, and it wrote {len(results)}"
        raise UncheckedError(problem)
    found = []
    for (name, got), value in zip(results.items(), expected, strict=True):
        if got.numel() != value.value.numel():
            shapes = f"{list(value.value.shape)}, and {list(got.shape)} was written"
            raise UncheckedError(f"the reference of {name} has the shape {shapes}")
        comparison = compare(got.reshape(value.value.shape), value)
        found.append(Checked(name, reference.text, comparison))
    return found


def _called(
    reference: Reference, handed: list[Bounded], results: Mapping[str, torch.Tensor]
) -> list[Bounded]:
    def call(change: Callable[[Bounded], Any]) -> tuple[torch.Tensor, ...]:
        values = reference.function(*(change(bounded).clone() for bounded in handed))
        several = values if isinstance(values, (tuple, list)) else (values,)
        return tuple(tensor for tensor in several if isinstance(tensor, torch.Tensor))

    kinds = [x.dtype for x in results.values() if x.dtype.is_floating_point]
    try:
        with torch.no_grad():
            value = sampled(call, handed, kinds[0] if kinds else torch.float32)
    except UncheckedError:
        raise
    except Exception as error:  # whatever the function of the user raises
        problem = f"{reference.text} raised {type(error).__name__}: {in_short(error)}"
        raise UncheckedError(problem) from error
    return [bounded for bounded in value if isinstance(bounded, Bounded)]
