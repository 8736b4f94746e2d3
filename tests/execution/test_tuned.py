"""Runs that are compared choose the same configurations of kernels."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from rewriter.runtime.host import tuned


def compiled(size: int, warps: int = 4) -> Any:
    """As what Inductor compiles for a `triton.Config`."""
    config = SimpleNamespace(kwargs={"XBLOCK": size}, num_warps=warps, num_stages=1)
    return SimpleNamespace(config=config)


def autotuner() -> Any:
    """As Inductor's `CachingAutotuner`."""
    sizes = [(size, warps) for size in (1, 8) for warps in (2, 4)]
    results, launchers = ([compiled(*one) for one in sizes] for _ in range(2))
    return SimpleNamespace(compile_results=results, launchers=launchers)


def wrapper() -> ModuleType:
    """A module with one kernel and a choice between two."""
    module = ModuleType("wrapper")
    several = SimpleNamespace(kernels=[autotuner(), autotuner()], picked_kernel=None)
    vars(module).update(alone=autotuner(), several=several, number=5, call=print)
    return module


def run(module: ModuleType, choice: int) -> None:
    """What a call leaves: one configuration of each kernel that ran."""
    if module.several.picked_kernel is None:
        module.several.picked_kernel = choice % 2
    for kernel in (module.alone, module.several.kernels[module.several.picked_kernel]):
        kernel.launchers = [kernel.launchers[min(choice, len(kernel.launchers) - 1)]]


def test_the_next_run_chooses_what_the_first_one_did(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tuned.json"
    first, second = wrapper(), wrapper()
    tuned.pin(first, path)
    run(first, 1)
    tuned.keep(first, path)
    tuned.pin(second, path)
    run(second, 2)
    assert second.alone.launchers == first.alone.launchers
    assert second.several.picked_kernel == first.several.picked_kernel
    assert second.several.kernels[1].launchers == first.several.kernels[1].launchers
    assert second.alone.compile_results == first.alone.launchers
    # The file is that of the first run.
    written = path.read_text()
    tuned.keep(second, path)
    assert path.read_text() == written
    assert [x.name for x in path.parent.iterdir()] == [path.name]


def test_what_is_not_known_stays(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    other, module, plain = wrapper(), wrapper(), wrapper()
    other.alone.launchers = [compiled(99)]
    tuned.keep(other, path)
    tuned.pin(module, path)
    assert (module.alone, module.several) == (plain.alone, plain.several)


def test_a_wrapper_without_kernels_writes_nothing(tmp_path: Path) -> None:
    tuned.keep(ModuleType("wrapper"), tmp_path / "tuned.json")
    assert not [*tmp_path.iterdir()]
