"""Runs a wrapper's source in this process and says everything that a run may change."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_numbers = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """Outputs and inputs after a call as bytes, and the state of the generator."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    random_state: bytes


def load(source: bytes, folder: Path) -> ModuleType:
    """Import `source` as a module of its own."""
    name = f"wrapper_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_bytes(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(source: bytes, args: Sequence[Any], folder: Path) -> Outcome:
    """Import `source` and call it once on copies of `args`."""
    return call_module(load(source, folder), args)


def lend_kernels(lender: ModuleType, borrower: ModuleType) -> None:
    """Make one wrapper run the very same kernels as another.

    Triton picks tile sizes by timing when a kernel first runs, and another tile size may round
    differently. Inductor shares kernel objects between wrappers, and resets them when a wrapper is
    imported: import all wrappers first, then run.
    """
    for name, value in vars(lender).items():
        if type(value).__module__.startswith("torch._inductor."):
            setattr(borrower, name, value)


def call_module(module: ModuleType, args: Sequence[Any]) -> Outcome:
    """Call a wrapper that is imported already on copies of `args`."""
    inputs = [copy(value) for value in args]
    torch.manual_seed(7)
    with torch.no_grad():
        outputs = module.call(list(inputs))
    return Outcome(
        tuple(map(frozen, outputs)),
        tuple(map(frozen, inputs)),
        bytes(torch.get_rng_state().tolist()),
    )


def copy(value: Any) -> Any:
    """A tensor of the same strides over memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value.detach())


def frozen(value: Any) -> Any:
    """What two values have in common exactly when they are equal bit for bit."""
    if not isinstance(value, torch.Tensor):
        return value
    flat = value.detach().resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    return (
        str(value.dtype),
        tuple(value.shape),
        value.stride(),
        bytes(flat.view(torch.uint8).tolist()),
    )


def events(dump: Path) -> list[dict[str, Any]]:
    """Every event of a dump, in order."""
    return [
        json.loads(line)
        for file in sorted(dump.glob("rank*/run*/events.jsonl"))
        for line in file.read_text().splitlines()
    ]
