"""Runs that are compared choose the same configurations of kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rewriter.runtime.host import tuned


@dataclass
class Config:
    """As `triton.Config`."""

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 1


@dataclass
class Compiled:
    config: Config


@dataclass
class Kernel:
    """As Inductor's `CachingAutotuner`."""

    compile_results: list[Compiled]
    launchers: list[Compiled]


@dataclass
class MultiKernel:
    kernels: list[Kernel]
    picked_kernel: int | None = None


def _configs() -> list[Compiled]:
    return [Compiled(Config({"XBLOCK": size}, warps)) for size in (1, 8) for warps in (2, 4)]


@dataclass
class Wrapper:
    """A module with one kernel and a choice between two."""

    alone: Kernel = field(default_factory=lambda: Kernel(_configs(), _configs()))
    several: MultiKernel = field(
        default_factory=lambda: MultiKernel(
            [Kernel(_configs(), _configs()), Kernel(_configs(), _configs())]
        )
    )

    def module(self) -> ModuleType:
        module = ModuleType("wrapper")
        vars(module).update(alone=self.alone, several=self.several, number=5, call=print)
        return module


def _run(wrapper: Wrapper, choice: int) -> None:
    """What a call leaves: one configuration of each kernel that ran."""
    wrapper.alone.launchers = [
        wrapper.alone.launchers[min(choice, len(wrapper.alone.launchers) - 1)]
    ]
    if wrapper.several.picked_kernel is None:
        wrapper.several.picked_kernel = choice % 2
    picked = wrapper.several.kernels[wrapper.several.picked_kernel]
    picked.launchers = [picked.launchers[min(choice, len(picked.launchers) - 1)]]


def test_the_next_run_chooses_what_the_first_one_did(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tuned.json"
    first, second = Wrapper(), Wrapper()
    tuned.pin(first.module(), path)
    _run(first, 1)
    tuned.keep(first.module(), path)
    tuned.pin(second.module(), path)
    _run(second, 2)
    assert second.alone.launchers == first.alone.launchers
    assert second.several.picked_kernel == first.several.picked_kernel
    assert second.several.kernels[1].launchers == first.several.kernels[1].launchers
    assert second.alone.compile_results == first.alone.launchers
    # The file is that of the first run.
    written = path.read_text()
    tuned.keep(second.module(), path)
    assert path.read_text() == written
    assert [x.name for x in path.parent.iterdir()] == [path.name]


def test_what_is_not_known_stays(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    other = Wrapper()
    other.alone.launchers = [Compiled(Config({"XBLOCK": 99}))]
    tuned.keep(other.module(), path)
    wrapper = Wrapper()
    tuned.pin(wrapper.module(), path)
    assert wrapper == Wrapper()


def test_a_wrapper_without_kernels_writes_nothing(tmp_path: Path) -> None:
    tuned.keep(ModuleType("wrapper"), tmp_path / "tuned.json")
    assert not [*tmp_path.iterdir()]
