"""The directories in which serving engines keep Inductor caches, other than torch's own.

vLLM: vllm/compilation/decorators.py, backends.py and compiler_interface.py, vllm/envs.py. SGLang:
python/sglang/srt/environ.py and compilation/backend.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CACHE = "torch_compile_cache"


@dataclass(frozen=True)
class EngineCaches:
    """The caches of an engine: the variables that may name its directory (the first one that is set
    counts), the directory without them, and the places of caches in it."""

    name: str
    variables: tuple[str, ...]
    directory: str
    patterns: tuple[str, ...]

    @property
    def root(self) -> Path:
        for variable in self.variables:
            if value := os.environ.get(variable):
                return Path(value).expanduser()
        around = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(around).expanduser() / self.directory


ENGINES = (
    EngineCaches(
        "vLLM",
        ("VLLM_CACHE_ROOT",),
        "vllm",
        (
            f"{_CACHE}/torch_aot_compile/*/inductor_cache",
            f"{_CACHE}/*/inductor_cache",
            f"{_CACHE}/*/rank_*/inductor_cache",
            f"{_CACHE}/*/rank_*/*/inductor_cache",
            # Artifacts that were saved as directories are also caches.
            f"{_CACHE}/*/rank_*/*/artifact_*",
        ),
    ),
    EngineCaches(
        "SGLang",
        ("SGLANG_CACHE_DIR",),
        "sglang",
        ("inductor", f"{_CACHE}/*/rank_*/*/inductor_cache"),
    ),
)


def known() -> Iterator[tuple[str, Path]]:
    """The existing caches of engines: the engine's name, and the directory."""
    for engine in ENGINES:
        for pattern in engine.patterns:
            for path in sorted(engine.root.glob(pattern)):
                if path.is_dir():
                    yield engine.name, path.absolute()
