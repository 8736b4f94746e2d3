"""What tests that compile have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpp_driver import FLAGS, both, compile_driver, library

if TYPE_CHECKING:
    from compilations import Compilations

__all__ = ["both", "library"]  # fixtures


@pytest.fixture(scope="session", autouse=True)
def _vector_instructions(compilations: Compilations, _inductor_cache: None) -> Iterator[None]:
    """Which vector instructions work here is tried out once, and not in each new process.

    Torch compiles and loads a library for each of a dozen; where the widest that the processor
    says it has do work, it need not try.
    """
    from torch._inductor import config, cpu_vec_isa

    def widest_work() -> bool:
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        with config.patch({"cpp.vec_isa_ok": True}):
            widest = cpu_vec_isa.pick_vec_isa()
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        return bool(widest)

    if not compilations.value(widest_work, "vector-instructions"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        patch.setattr(config.cpp, "vec_isa_ok", True)
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        yield


@pytest.fixture(scope="session")
def built(kept: Path) -> Callable[..., Path]:
    """A driver of `cpp_driver.py`, for a set of flags and a way of compiling.

    Each is compiled once in a run.
    """
    from compilations import Compilations

    folder = kept.parent / "drivers"
    folder.mkdir(exist_ok=True)
    drivers = Compilations(folder)

    def get(flags: str = "fast") -> Path:
        in_two = flags == "inductor"
        return drivers.value_with_files(
            lambda place: compile_driver(place, FLAGS[flags], in_two),
            *(flags, "apart" if in_two else "whole"),
        )

    return get
