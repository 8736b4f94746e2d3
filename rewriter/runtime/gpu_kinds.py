"""Which launches run on a GPU, wherever their arguments are.

They are the kinds that `grammars/names.toml` says it of. The runtime goes into other people's
programs without that file, so they are here once more; a test compares the two.
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
