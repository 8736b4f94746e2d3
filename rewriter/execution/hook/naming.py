"""The names in the model for wrappers of a cache: traced by the run that compiles them, and stored
by torch in the entries of the cache.

`TORCH_TRACE` changes neither the keys of the cache nor a byte of the wrappers (measured with torch
2.13; INDUCTOR_PROVENANCE and TORCH_COMPILE_DEBUG change both, and are not set).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.dump import names as dumped
from rewriter.dump import processes
from rewriter.execution.hook import pieces
from rewriter.execution.hook.server import Process
from rewriter.model_names import trace
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import of_wrappers

_VARIABLE = "TORCH_TRACE"


def environment(folder: Path) -> dict[str, str]:
    """The variables that make a program trace its compilations, unless the user set them."""
    return {} if os.environ.get(_VARIABLE) else {_VARIABLE: str(folder)}


def write(
    dump: Path, wrappers: Sequence[Wrapper], folder: Path, used: Mapping[int, Process]
) -> None:
    """Add the names of wrappers to a dump, from the logs in a folder and from the cache; and for
    processes, their pieces of the model, by the files that they loaded. What is there of others,
    such as those of an earlier server, stays.

    Raises `OSError`.
    """
    hashes = {Path(x.name).stem: trace.digest(x.restored.source) for x in wrappers}
    if found := pieces.of_processes(used, hashes):
        processes.write(dump, {**processes.read(dump), **found})
    names = of_wrappers(wrappers, Compilations(folder.glob("*.log")))
    known = {trace.digest(x.restored.source): names[x.name] for x in wrappers if x.name in names}
    if known:
        dumped.write(dump, {**dumped.read(dump), **known})
