"""What tests that compile have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from compilations import Compilations


@pytest.fixture(scope="session", autouse=True)
def _vector_instructions(compilations: Compilations, _inductor_cache: None) -> Iterator[None]:
    """Which vector instructions work here is tried out once, and not in each new process.

    Torch compiles and loads a library for each of a dozen; where all that the processor says
    it has do work, it need not try.
    """
    from torch._inductor import config, cpu_vec_isa

    def all_work() -> bool:
        def names() -> list[str]:
            cpu_vec_isa.valid_vec_isa_list.cache_clear()
            return [str(isa) for isa in cpu_vec_isa.valid_vec_isa_list()]

        tried = names()
        with config.patch({"cpp.vec_isa_ok": True}):
            return names() == tried

    if not compilations.value(all_work, "vector-instructions"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        patch.setattr(config.cpp, "vec_isa_ok", True)
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        yield
