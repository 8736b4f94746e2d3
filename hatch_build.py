"""Builds the recorder into a wheel, so that nothing is compiled where it is installed.

`REWRITER_BUILD=0` leaves it out: the wheel is for every machine then, and the recorder is built at
first use. `REWRITER_BUILD=1` makes it an error if something of it cannot be built, among that the
kernels for GPUs, which take NVRTC (rewriter/runtime/nvrtc.py) minutes. Editable installations never
have it, so that a change of the sources is seen.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class RecorderHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `rewriter/runtime/built/` to wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("REWRITER_BUILD", "")
        if version == "editable" or wanted == "0":
            return
        sys.path.insert(0, str(ROOT))
        from rewriter.runtime.build import Unavailable

        self._folder = tempfile.TemporaryDirectory(prefix="rewriter-")
        try:
            made = list(_recorder(Path(self._folder.name)))
        except (Unavailable, OSError, subprocess.SubprocessError) as problem:
            if wanted == "1":
                raise
            self.app.display_warning(f"The recorder is not in the wheel: {problem}")
            return
        try:
            made += _gpu_kernels(Path(self._folder.name))
        except (Unavailable, OSError, subprocess.SubprocessError) as problem:
            if wanted == "1":
                raise
            self.app.display_warning(f"The kernels for GPUs are not in the wheel: {problem}")
        for path in made:
            build_data["force_include"][str(path)] = f"rewriter/runtime/built/{path.name}"
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp310-abi3-{system}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _recorder(folder: Path) -> Iterator[Path]:
    """The recorder for each kind of processor, for wrappers that Python loads and for packages, and
    the extension module."""
    from rewriter.runtime import build, bundle, extension, recorder_library

    compiler, variants = build.compiler(), build.VARIANTS.get(platform.machine(), ())
    if not variants or sys.platform != "linux":
        raise build.Unavailable(f"it was not tried on {sys.platform}, {platform.machine()}")
    if not compiler:
        raise build.Unavailable("no C++ compiler: install g++, or name one in CXX")
    lines = extension.source()  # raises without the headers of Python

    def compiled(source: str, name: str, architecture: str, *more: str) -> Path:
        flags = [*build.FLAGS, f"-march={architecture}", *more]
        return build.build(compiler, source, flags, folder / name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [
            pool.submit(compiled, bundle.recorder(), f"recorder{end}.o", architecture)
            for end, architecture, _ in variants
        ]
        *_, (_, least, _) = variants
        made = pool.submit(compiled, lines, "lines.so", least, *extension.include_flags())
    yield made.result()
    for job in objects:
        linked = ["-x", "none", str(job.result()), *recorder_library.LINKED]
        library = job.result().with_suffix(".so")
        yield job.result()
        yield build.build(compiler, "", linked, library, recorder_library.stands_for())


def _gpu_kernels(folder: Path) -> list[Path]:
    """The kernels for each device. Each in a process of its own: NVRTC compiles one at a time."""
    from rewriter.runtime import nvrtc

    nvrtc.find()

    def make(target: int) -> Path:
        to = folder / f"kernels-sm_{target}.cubin"
        command = [sys.executable, "-m", "rewriter.runtime.nvrtc", str(target), str(to)]
        subprocess.run(command, check=True, cwd=ROOT)
        return to

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(make, nvrtc.TARGETS))
