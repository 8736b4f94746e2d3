"""What the process that runs one wrapper checks before it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch._inductor import config, cpu_vec_isa

from rewriter.runtime.host import ProblemError, wrapper

WHOLE = "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, static_cast<int64_t>({}));\n"
PART = "auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, static_cast<int64_t>(5L));\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here = [cpu_vec_isa.VecAVX512(), cpu_vec_isa.VecAVX2()]
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", lambda: here)
    monkeypatch.setattr(cpu_vec_isa, "pick_vec_isa", lambda: here[0])
    with config.patch({"cpp.simdlen": None}):
        yield


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n", None),
        (PART, None),
        (WHOLE.format(16) + PART, None),
        (WHOLE.format(8) + PART + WHOLE.format(8), 256),
    ],
    ids=["no kernel", "a part of a vector", "as here", "half as long"],
)
def test_kernels_get_vectors_of_their_size(text: str, bits: int | None) -> None:
    wrapper._use_vectors(text)
    assert config.cpp.simdlen == bits


def test_vectors_that_this_machine_lacks() -> None:
    with pytest.raises(ProblemError, match=r"vectors of 4 floats, .* has 16, 8") as caught:
        wrapper._use_vectors(WHOLE.format(4))
    assert caught.value.slug == "wrong-machine"
