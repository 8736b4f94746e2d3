"""What wrappers of a cache are called in the model: traced by the run that compiles them, and kept
by torch in the entries of the cache.

`TORCH_TRACE` changes neither the keys of the cache nor a byte of the wrappers (measured with torch
2.13; INDUCTOR_PROVENANCE and TORCH_COMPILE_DEBUG change both, and are left alone).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from rewriter.artifact.naming import trace
from rewriter.artifact.naming.known import Compilations
from rewriter.artifact.naming.names import of_wrappers
from rewriter.cache.mutate import Placed
from rewriter.core.errors import RewriterError
from rewriter.dump import names as dumped

_VARIABLE = "TORCH_TRACE"


def environment(folder: Path) -> dict[str, str]:
    """What makes a program trace its compilations, unless its user has it do so already."""
    return {} if os.environ.get(_VARIABLE) else {_VARIABLE: str(folder)}


def write(dump: Path, placed: Iterable[Placed], folder: Path) -> None:
    """Add to a dump what the logs in a folder, and the cache, say of the wrappers.

    Raises `OSError`.
    """
    wrappers = []
    for one in placed:
        with contextlib.suppress(RewriterError):
            # One that was instrumented before cannot be located as it is.
            if one.slot.wrapper.located:
                wrappers.append(one.slot.wrapper)
    names = of_wrappers(wrappers, Compilations(folder.glob("*.log")))
    if names:
        dumped.write(
            dump,
            {trace.digest(x.restored.source): names[x.name] for x in wrappers if x.name in names},
        )
