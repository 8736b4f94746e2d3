"""Where C++ wrappers with probes are built: in a cache of ours, not in that of the program."""

from __future__ import annotations

from pathlib import Path

from rewriter.instrumentation.rebuild.build_cache import remove_oldest
from rewriter.runtime.cache_directory import cache_directory

_LIMIT = 1 << 30  # bytes that are kept


def kept() -> Path | None:
    """The directory, in which the oldest builds are removed; `None` if nothing is to be kept."""
    directory = cache_directory("wrappers")
    if directory is not None:
        files = [(path, path.stat()) for path in directory.glob("??/*") if path.is_file()]
        remove_oldest(((path, x.st_size, x.st_mtime_ns) for path, x in files), _LIMIT)
    return directory
