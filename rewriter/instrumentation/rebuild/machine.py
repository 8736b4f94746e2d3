"""What this machine has for building a wrapper, found in files: torch is not imported."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PATIENCE = 60  # seconds for a compiler to compile one line
# In torch/version.py.
_ASSIGNED = re.compile(r"""^(__version__|cuda)\b[^=\n]*= *['"](.*)['"]""", re.MULTILINE)
_CUDA_HEADERS = ("cuda.h", "cuda_runtime_api.h")

# g++, clang++-18, x86_64-linux-gnu-c++ and Intel's.
_COMPILER = re.compile(r"(?:\w[\w.]*-)*(?:(?:g|c|clang)\+\+|icpx|icpc)(?:-[\d.]+)?$")

# What the names of torch's CpuVecIsa (torch/_inductor/cpu_vec_isa.py) need of the processor, as
# Linux calls it.
_ISA = {
    "AVX2": "avx2",
    "AVX512": "avx512f",
    "AVX512_VNNI": "avx512_vnni",
    "AMX_TILE": "amx_tile",
}


@dataclass(frozen=True)
class Torch:
    """The torch that Python would import. `cuda` is the CUDA it was built for, or nothing."""

    version: str
    cuda: str
    root: Path

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = re.findall(r"\d+", self.version)[:2]
        return int(major), int(minor)


@dataclass(frozen=True)
class Machine:
    """Processor, torch and headers; empty or None where there is none."""

    system: str
    processor: str
    features: frozenset[str]
    torch: Torch | None
    python_include: Path | None
    cuda_include: Path | None

    @classmethod
    def detect(cls) -> Machine:
        """What this machine has."""
        return cls(
            system=platform.system().lower(),
            processor=platform.machine(),
            features=_features(),
            torch=installed_torch(),
            python_include=_directory(Path(sysconfig.get_path("include"))),
            cuda_include=next(_cuda_includes(), None),
        )

    def lacks(self, isa: str) -> tuple[str, ...]:
        """The parts of a package's `AOTI_CPU_ISA` that this processor does not have."""
        return tuple(
            name for name in isa.split() if name in _ISA and _ISA[name] not in self.features
        )


def is_compiler(program: str) -> bool:
    """Whether a program is a C++ compiler by its name: a package may name any, and it is run."""
    return bool(_COMPILER.match(Path(program).name))


def compiler(wanted: str = "") -> str:
    """The C++ compiler: CXX, or else the one of the name that is wanted, or one that is there.

    Empty where there is none, also where CXX names none: it was not asked for another.
    """
    if named := os.environ.get("CXX"):
        return _which(named)
    names = [Path(wanted).name] if is_compiler(wanted) else []
    return next(filter(None, map(_which, [*names, "g++", "clang++"])), "")


def _which(name: str) -> str:
    """The path of a program from wherever it is run, empty if there is none."""
    path = shutil.which(name)
    return os.path.abspath(path) if path else ""


@cache
def brings_its_library(compiler: str, scratch: Path | None = None) -> bool:
    """Whether a compiler links libstdc++ statically, as some wrappers around compilers do.

    The only way to know is to ask it for a library: a small one, in a directory that goes away; in
    `scratch`, if this process may be killed before.
    """
    from rewriter.artifact.package.library import read

    with tempfile.TemporaryDirectory(prefix="rewriter-", dir=scratch) as folder:
        (Path(folder) / "probe.cpp").write_text("void probe() { throw 1; }\n")
        command = [compiler, "-shared", "-fPIC", "probe.cpp", "-o", "probe.so"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, check=False, timeout=_PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired):
            return False  # compiling tells more
        made = Path(folder) / "probe.so"
        return done.returncode == 0 and made.is_file() and read(made, made.name).is_static


def _features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(line[1].split()) if line else frozenset()


def installed_torch() -> Torch | None:
    """The torch that Python would import, by its files; `None` where there is none."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    try:
        text = (root / "version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    assigned = dict(_ASSIGNED.findall(text))
    version = assigned.get("__version__")
    return Torch(version, assigned.get("cuda", ""), root) if version else None


def _cuda_includes() -> Iterator[Path]:
    """Directories with the headers of the CUDA runtime, the most wanted first."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]
    if nvcc := shutil.which("nvcc"):
        homes.append(str(Path(nvcc).resolve().parent.parent))
    homes.append("/usr/local/cuda")
    places = [Path(home) / "include" for home in homes if home]
    # The wheels that torch's own depend on bring headers, too.
    for site in map(Path, sys.path):
        places += sorted(site.glob("nvidia/*/include"))
    return (place for place in places if all((place / name).is_file() for name in _CUDA_HEADERS))


def _directory(path: Path) -> Path | None:
    return path if path.is_dir() else None
