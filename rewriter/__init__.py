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
    from rewriter.api import instrument, open, select, strip
    from rewriter.comparison.compare import compare
    from rewriter.difference.compare import diff
    from rewriter.errors import RewriterError
    from rewriter.package.patch import patch, restore
    from rewriter.runner import run

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
    "RewriterError": "errors",
    "compare": "comparison.compare",
    "diff": "difference.compare",
    "patch": "package.patch",
    "restore": "package.patch",
    "run": "runner",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"rewriter.{_HOMES.get(name, 'api')}"), name)
    raise AttributeError(f"module 'rewriter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
