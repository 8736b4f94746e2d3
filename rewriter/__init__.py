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
    from rewriter.artifact.opening import open_artifact as open
    from rewriter.comparison.artifacts.compare import diff
    from rewriter.comparison.dumps.compare import compare
    from rewriter.core.errors import RewriterError
    from rewriter.diagnosis.judged import run
    from rewriter.execution.loaded.probing import probing
    from rewriter.instrumentation.instrument import instrument
    from rewriter.instrumentation.rebuild.patch import patch, restore
    from rewriter.instrumentation.select import select
    from rewriter.instrumentation.strip import strip
    from rewriter.report.view import page, table

__all__ = [
    "RewriterError",
    "__version__",
    "compare",
    "diff",
    "instrument",
    "open",
    "page",
    "patch",
    "probing",
    "restore",
    "run",
    "select",
    "strip",
    "table",
]

_HOMES = {
    "RewriterError": "core.errors",
    "compare": "comparison.dumps.compare",
    "diff": "comparison.artifacts.compare",
    "instrument": "instrumentation.instrument",
    "open": "artifact.opening",
    "page": "report.view",
    "patch": "instrumentation.rebuild.patch",
    "probing": "execution.loaded.probing",
    "restore": "instrumentation.rebuild.patch",
    "run": "diagnosis.judged",
    "select": "instrumentation.select",
    "strip": "instrumentation.strip",
    "table": "report.view",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        module = import_module(f"rewriter.{_HOMES[name]}")
        return getattr(module, "open_artifact" if name == "open" else name)
    raise AttributeError(f"module 'rewriter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
