"""Runs in a process of its own, with torch alone: launches of scripts of `rewriter repro`.

`python host.py FOLDER MODULE…` imports modules or files, which register operators, and takes the
folders in FOLDER one by one, each with a `repro.py`. It launches
twice on the same values, then once with the kernel compiled for one element at a time and without
optimisation, if it is one in C++ for the CPU, or with smaller blocks and other warps, if it is one
that Inductor wrote for Triton. Results go into `results.pt` of each folder, under `first`, `again`,
`scalar` and `blocks`; why there are none, into `problem.txt`. What draws random numbers is left
out.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

# Vectors of the same width, whose elements a loop computes: what ATen has where it knows no better.
_SCALAR = """#if defined(CPU_CAPABILITY_AVX512)
#include <ATen/cpu/vec/vec_base.h>
#undef CPU_CAPABILITY_AVX512
#elif defined(CPU_CAPABILITY_AVX2)
#include <ATen/cpu/vec/vec_base.h>
#undef CPU_CAPABILITY_AVX2
#endif
#define CPU_CAPABILITY_NEON
"""


def main(folder: Path, modules: list[str]) -> None:
    for name in modules:
        path = Path(name).resolve()
        sys.path.insert(0, str(path.parent if name.endswith(".py") else Path.cwd()))
        importlib.import_module(path.stem if name.endswith(".py") else name)
    for launch in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        results: dict[str, Any] = {}
        try:
            with torch.no_grad():
                script = _script(launch)
                if script["RANDOM"]:
                    continue
                results["first"] = _launched(script)
                results["again"] = _launched(script)
                with _scalar() as compiled:
                    again = _script(launch)
                    if compiled:
                        results["scalar"] = _launched(again)
                with _other_blocks() as changed:
                    again = _script(launch)
                    if changed:
                        results["blocks"] = _launched(again)
        except Exception as error:  # of one launch: the others are not concerned
            lines = str(error).strip().splitlines()
            text = f"{type(error).__name__}: {lines[0] if lines else ''}"
            (launch / "problem.txt").write_text(text, encoding="utf-8")
        torch.save(results, launch / "results.pt")


def _script(folder: Path) -> dict[str, Any]:
    path = folder / "repro.py"
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names


def _launched(script: dict[str, Any]) -> dict[str, torch.Tensor]:
    results = script["launch"](**script["arguments"]())
    return {name: value.detach().cpu().clone() for name, value in results.items()}


@contextmanager
def _scalar() -> Iterator[list[str]]:
    """Have kernels in C++ compiled so from here on; the sources of those that were."""
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    compiler: Any = AsyncCompile
    original = compiler.cpp_pybinding
    compiled: list[str] = []

    def scalar(self: Any, types: Any, source: str, *rest: Any, **more: Any) -> Any:
        compiled.append(source)
        return original(self, types, _SCALAR + source, *rest, **more)

    settings: dict[str, Any] = {
        "aot_inductor.debug_compile": True,
        "cpp_cache_precompile_headers": False,
    }
    known = {name: value for name, value in settings.items() if name in config.get_config_copy()}
    compiler.cpp_pybinding = scalar
    try:
        with config.patch(known):
            yield compiled
    finally:
        compiler.cpp_pybinding = original


_BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "R1_BLOCK", "RBLOCK")
_CHOSEN = ("POINTWISE", "REDUCTION", "PERSISTENT_REDUCTION")  # whose blocks are a matter of speed


@contextmanager
def _other_blocks() -> Iterator[list[Any]]:
    """Have kernels that Inductor wrote for Triton compiled with smaller blocks and other warps from
    here on; the kernels that were."""
    changed: list[Any] = []
    try:
        from torch._inductor import config
        from torch._inductor.async_compile import CompiledTritonKernels
        from torch._inductor.codecache import PyCodeCache
        from torch._inductor.runtime import triton_heuristics
    except ImportError:  # there is no Triton
        yield changed
        return
    tuner: Any = triton_heuristics.CachingAutotuner
    # What this process compiled is kept in the one, what others compiled for it in the other.
    caches: tuple[Any, ...] = (CompiledTritonKernels, PyCodeCache)
    original = tuner.__init__

    def init(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        if not self.custom_kernel and self.heuristic_type.name in _CHOSEN:
            self.configs = [smaller(self.configs[0])]
            changed.append(self)

    for cache in caches:
        cache.cache_clear()
    tuner.__init__ = init
    try:
        with config.patch({"compile_threads": 1}):
            yield changed
    finally:
        tuner.__init__ = original
        for cache in caches:
            cache.cache_clear()


def smaller(config: Any) -> Any:
    """The parameters of a launch with each block half as large, and other warps.

    None is made larger: a kernel leaves masks out where its sizes are multiples of its blocks.
    """
    other = copy.copy(config)
    other.kwargs = {
        name: value // 2 if name in _BLOCKS and value > 1 else value
        for name, value in config.kwargs.items()
    }
    other.num_warps = config.num_warps * 2 if config.num_warps < 4 else config.num_warps // 2
    return other


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
