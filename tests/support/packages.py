"""Runs packages as their users do: functions for a process of its own, where two are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from capture import Exported
from harness import Outcome, copy, frozen


@dataclass(frozen=True)
class Ran:
    """What each call of a model gave, and the libraries that loading it brought into the process.

    The libraries are named without their directory, which is a temporary one.
    """

    calls: tuple[Outcome, ...]
    libraries: tuple[str, ...]


def load_model(path: Path, model: str = "model", *, pickled: bool = False) -> Any:
    """Load a model of a package with the loader that its kind of weights needs.

    Torch 2.13 loads all models of a package to give one of them.
    """
    if pickled:
        from torch.export.pt2_archive._package import load_pt2

        return load_pt2(str(path), load_weights_from_disk=True).aoti_runners[model]
    if model == "model":
        return torch._inductor.aoti_load_package(str(path))
    from torch._inductor.package import load_package

    return load_package(str(path), model)


def call_model(model: Any, args: Sequence[Any]) -> Outcome:
    """Call a loaded model on copies of `args`."""
    inputs = [copy(value) for value in args]
    torch.manual_seed(7)
    with torch.no_grad():
        outputs = torch.utils._pytree.tree_leaves(model(*inputs))
    return Outcome(
        tuple(map(frozen, outputs)),
        tuple(map(frozen, inputs)),
        bytes(torch.get_rng_state().tolist()),
    )


def run_package(
    path: Path,
    args: Sequence[Any],
    model: str = "model",
    *,
    calls: int = 1,
    pickled: bool = False,
) -> Ran:
    """Load a model and call it some times; buffers of its own may differ between the calls."""
    before = _mapped()
    loaded = load_model(path, model, pickled=pickled)
    outcomes = tuple(call_model(loaded, args) for _ in range(calls))
    new = sorted(Path(file).name for file in _mapped() - before)
    return Ran(outcomes, tuple(name for name in new if ".so" in name))


def run_packages(
    wanted: Mapping[str, tuple[Path, str]], args: Mapping[str, Sequence[Any]]
) -> dict[str, Outcome]:
    """Load several models, and only then call each: `wanted` says the package and the model."""
    loaded = {name: load_model(*which) for name, which in wanted.items()}
    return {name: call_model(model, args[name]) for name, model in loaded.items()}


def with_weight(exported: Exported, old: torch.Tensor, new: torch.Tensor, folder: Path) -> Exported:
    """What was exported of a module, with another weight in its library."""
    assert exported.so is not None
    before, after = (bytes(frozen(value)[-1]) for value in (old, new))
    data = exported.so.read_bytes()
    assert data.count(before) == 1
    folder.mkdir()
    so = folder / exported.so.name
    so.write_bytes(data.replace(before, after))
    files = tuple(str(so) if str(file) == str(exported.so) else file for file in exported.files)
    assert files != exported.files
    return replace(exported, so=so, files=files)


def _mapped() -> set[str]:
    """The files that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {parts[5] for parts in (line.split(maxsplit=5) for line in lines) if len(parts) > 5}
