"""Writes the cache of `torch.compiler.precompile` together with the code that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.artifact.recognise import PAIRED
from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.terminal import message

if TYPE_CHECKING:
    from rewriter.artifact.precompile_cache import PrecompileCache
    from rewriter.core.files import Replacement


def cache_with(wrapper: Wrapper) -> PrecompileCache | None:
    """The cache that belongs to a wrapper, if any. Warns if the one beside it does not belong."""
    if not wrapper.path.with_suffix(PAIRED).is_file():
        return None
    from rewriter.artifact.precompile_cache import cache_of

    cache = cache_of(wrapper)
    if cache is None or cache.belongs_to(wrapper.source):
        return cache
    message(
        f"warning: {cache.path} does not belong to {wrapper.path}, and stays as it is: its "
        f"code_hash begins with {cache.code_hash[:12]}. torch.compiler.precompile.load refuses the "
        "two; one of them was exchanged or edited"
    )
    return None


def replacements(cache: PrecompileCache | None, after: bytes, plain: bytes) -> list[Replacement]:
    """The replacement of a cache whose code is replaced in place."""
    if cache is None:
        return []
    from rewriter.core.files import Replacement

    return [Replacement(cache.path, cache.data, cache.for_code(after), cache.for_code(plain))]


def path_beside(cache: PrecompileCache | None, target: Path) -> str | None:
    """The path of the cache for code that is written to `target`."""
    return None if cache is None else str(target.with_suffix(PAIRED))


def files_beside(
    cache: PrecompileCache | None, target: Path, after: bytes
) -> list[tuple[Path, bytes]]:
    """The cache for code that is written to `target`."""
    if cache is None:
        return []
    if target.suffix == PAIRED:
        raise RewriterError(
            "two-outputs",
            f"-o {target} is the name for the cache of the pair, not for its code",
            hint=f"Name the code: {target.with_suffix('.py')}",
        )
    return [(target.with_suffix(PAIRED), cache.for_code(after))]
