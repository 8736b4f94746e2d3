"""The kinds of launches that always run on a GPU, wherever their arguments are.

`grammars/names.toml` is the source of this list. The runtime is used without that file, inside
other programs, so it has a copy; a test compares the two.
"""

from __future__ import annotations

GPU_KINDS = frozenset(
    {
        "triton",
        "triton_user",
        "triton_template",
        "combo",
        "multi_kernel",
        "cuda",
        "nv_universal_gemm",
        "flydsl",
        "metal",
    }
)
