"""Which of the wrappers that a program loads get probes."""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.artifact.types import OpenWrapper
from rewriter.cache.select import is_named
from rewriter.instrumentation.matching import matches


@dataclass(frozen=True)
class Choice:
    """Those that match any of the `globs` and any of the `kernels`; `None` or no globs means no
    restriction."""

    globs: tuple[str, ...] = ()
    kernels: tuple[str, ...] | None = None

    def wants(self, wrapper: OpenWrapper) -> bool:
        """Whether a wrapper is chosen. Raises `RewriterError` if its launches cannot be read."""
        if not is_named(wrapper.path, self.globs) and wrapper.graph not in self.globs:
            return False
        wanted = self.kernels
        return wanted is None or any(matches(x.kernel, wanted) for x in wrapper.located.launches)
