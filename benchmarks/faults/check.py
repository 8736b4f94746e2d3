"""A program that fails if a wrapper returns something else than before.

    python benchmarks/faults/check.py WRAPPER ARGS.pt EXPECTED.pt

The wrapper is loaded as torch loads it from its cache. If there is no EXPECTED.pt, it is written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# In the place of this folder, whose modules have names of others.
sys.path[0] = str(Path(__file__).parents[2] / "fixtures")

import torch  # noqa: E402
from torch._inductor.codecache import PyCodeCache  # noqa: E402

_FAR = {torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8, torch.float32: 2.0**-17}


def results(path: str, given: str) -> list[torch.Tensor]:
    """What a call returns, and what it leaves in its inputs."""
    if "rewriter_demo" in Path(path).read_text():
        import models  # noqa: F401 - its operators
    args: list[Any] = torch.load(given, weights_only=True)
    key = Path(path).stem
    module = PyCodeCache.load_by_key_path(key, path)
    with torch.no_grad():
        returned = module.call(list(args))
    return [x for x in (*returned, *args) if isinstance(x, torch.Tensor)]


def differs(got: torch.Tensor, right: torch.Tensor, far: float) -> bool:
    if not (right.is_floating_point() or right.is_complex()):
        return not torch.equal(got, right)
    wide, expected = (x.to(torch.complex128) for x in (got, right))
    if not torch.equal(wide.isfinite(), expected.isfinite()):
        return True
    size = expected.nan_to_num(0.0).abs()
    allowed = far * size.max() if size.numel() else 0.0
    return bool(((wide - expected).nan_to_num(0.0).abs() > allowed).any())


def main(path: str, given: str, expected: str) -> int:
    found = results(path, given)
    if not Path(expected).exists():
        torch.save(found, expected)
        return 0
    right = torch.load(expected, weights_only=True)
    # A result of float32 may be computed of others, which were rounded to a half type.
    far = max(_FAR.get(x.dtype, 0.0) for x in right)
    return int(any(differs(*pair, far) for pair in zip(found, right, strict=True)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
