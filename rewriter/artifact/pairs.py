"""The pairs that `torch.compiler.precompile` writes: the path of a cache opens its code."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.precompile_cache import read_cache
from rewriter.artifact.wrapper_file import WrapperFile, open_wrapper_file
from rewriter.core.errors import RewriterError


def open_pair(path: Path) -> WrapperFile | None:
    """Open the code that a cache belongs to; `None` if a file is not such a cache."""
    if read_cache(path) is None:
        return None
    code = path.with_suffix(".py")
    if not code.is_file():
        raise RewriterError(
            "cache-alone",
            f"{path} holds kernels for {code.name}, which is not beside it: the wrapper is there",
            hint="Put the two files that torch.compiler.precompile wrote side by side.",
        )
    return open_wrapper_file(code)
