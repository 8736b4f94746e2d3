"""An artifact with several wrappers: those in a directory or a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import RewriterError

# A wrapper, or its name and why it cannot be read.
Opened = Wrapper | tuple[str, RewriterError]


def gather(
    path: Path, opened: Iterable[Opened], unread: Iterable[tuple[str, str]] = ()
) -> Artifact:
    """The artifact with these wrappers; `unread` are files that were not read.

    Raises `RewriterError` if there is no wrapper, or none that can be read.
    """
    opened, unread = list(opened), tuple(unread)
    wrappers = tuple(wrapper for wrapper in opened if isinstance(wrapper, Wrapper))
    damaged = tuple(one for one in opened if not isinstance(one, Wrapper))
    artifact = Artifact(path, wrappers, unread, damaged=damaged)
    if not wrappers:
        artifact.require_sound()
        also = "".join(f"\n    {name}: {what}" for name, what in unread)
        raise RewriterError(
            "no-artifacts",
            f"no wrapper of Inductor's in {path}"
            + (" or below" if path.is_dir() else "")
            + (f"; not looked into:{also}" if also else ""),
            hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave "
            "one), the wrapper.cpp of AOTInductor, a log of TORCH_TRACE, or what tlparse makes "
            "of one.",
        )
    return artifact
