"""Locates the launches of many wrappers in parallel."""

from __future__ import annotations

from collections.abc import Iterable

from rewriter.artifact.types import Wrapper
from rewriter.locate.types import Located


def locate_all(wrappers: Iterable[Wrapper]) -> None:
    """Compute `located` of each wrapper.

    If that fails for a wrapper, its `located` raises the error later.
    """
    unknown = [wrapper for wrapper in wrappers if not wrapper.is_located]
    if len(unknown) < 2:
        return
    from rewriter.core import parallel

    sizes = [len(wrapper.source) for wrapper in unknown]
    for wrapper, located in zip(unknown, parallel.results(_located, unknown, sizes), strict=True):
        if located is not None:
            wrapper.remember(located)


def _located(wrapper: Wrapper) -> Located:
    return wrapper.located
