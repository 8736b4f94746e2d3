"""A plugin of vLLM, for a machine without a GPU: its own mode of compilation, in pieces, with files
as on a GPU. Without it, vLLM compiles a model as one graph on a CPU."""

from __future__ import annotations

from typing import Any


def register() -> None:
    from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass
    from vllm.config import CompilationMode
    from vllm.platforms.cpu import CpuPlatform

    own = CpuPlatform.check_and_update_config.__func__
    if own.__module__ == __name__:
        return

    def check(cls: Any, config: Any) -> None:
        compilation = config.compilation_config
        mode = compilation.mode
        own(cls, config)
        if mode == CompilationMode.VLLM_COMPILE:
            compilation.mode, compilation.backend = mode, "inductor"

    CpuPlatform.check_and_update_config = classmethod(check)
    # It names operators that a build for the CPU does not have; Inductor does the same by itself.
    FixFunctionalizationPass.__call__ = lambda *_: None
