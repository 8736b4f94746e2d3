"""Rewrites what PyTorch Inductor generated: locates every kernel launch and puts probes around it.

    import rewriter

    artifact = rewriter.open("output_code.py")
    for launch in artifact.launches:
        print(launch.index, launch.kernel, launch.kind)
    result = rewriter.instrument(artifact, rewriter.select("print", kernels="triton_*"))
    pathlib.Path("probed.py").write_bytes(result.source)
    assert rewriter.strip("probed.py").source == artifact.only.source

Importing this package imports neither torch nor a parser; the functions do when they need to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.version import __version__

if TYPE_CHECKING:
    from rewriter.comparison.artifacts.compare import diff
    from rewriter.comparison.dumps.compare import compare
    from rewriter.core.errors import RewriterError
    from rewriter.execution.runner import run
    from rewriter.instrumentation.api import instrument, open, select, strip
    from rewriter.rebuild.patch import patch, restore

__all__ = [
    "RewriterError",
    "__version__",
    "compare",
    "diff",
    "instrument",
    "open",
    "patch",
    "restore",
    "run",
    "select",
    "strip",
]

_HOMES = {
    "RewriterError": "core.errors",
    "compare": "comparison.dumps.compare",
    "diff": "comparison.artifacts.compare",
    "patch": "rebuild.patch",
    "restore": "rebuild.patch",
    "run": "execution.runner",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"rewriter.{_HOMES.get(name, 'instrumentation.api')}"), name)
    raise AttributeError(f"module 'rewriter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
