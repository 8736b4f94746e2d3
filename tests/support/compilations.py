"""What is compiled once for all workers of a run, and found again by the next run.

A compilation is known by all that it is made of: the sources of the models and of what compiles
them, their options, torch, Python, the compiler and the processor. It has a folder named by the
hash of these, under pytest's own cache; what is stale is simply not asked for any more.

It is made where it stays, since what AOTInductor leaves has absolute paths in it, under a lock:
nothing is compiled twice at a time. It counts once the value is in it, which is renamed into place.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

_FIXTURES = Path(__file__).parents[2] / "fixtures"
# All that decides what a compilation leaves, besides torch and the compiler.
_SOURCES = (_FIXTURES / "models.py", _FIXTURES / "capture.py", Path(__file__))
_VALUE = "value.pickle"

T = TypeVar("T")


@functools.cache
def _machine() -> dict[str, str]:
    """What a compilation depends on that is the same for all of a run."""
    import torch

    compiler = os.environ.get("CXX", "g++")
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    cpu = Path("/proc/cpuinfo")
    flags = [line for line in cpu.read_text().splitlines() if line.startswith("flags")]
    return {
        "python": sys.version,
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "compiler": f"{shutil.which(compiler)} {said.stdout}",
        "machine": " ".join([platform.machine(), *flags[:1]]),
        "options": json.dumps({k: v for k, v in sorted(os.environ.items()) if _decides(k)}),
        **{path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _SOURCES},
    }


def _decides(name: str) -> bool:
    """Whether a variable is an option of Inductor's that may change what it writes."""
    other = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_VEC_ISA_OK")
    return name.startswith(("TORCHINDUCTOR_", "AOT_INDUCTOR_")) and name not in other


class Compilations:
    """Values by what they were compiled from, kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._values: dict[str, Any] = {}

    def value(self, make: Callable[[], T], *what: str) -> T:
        """What `make` returns; `what` says which compilation that is."""
        return self.value_with_files(lambda _: make(), *what)

    def value_with_files(self, make: Callable[[Path], T], *what: str) -> T:
        """What `make` returns, which may name files in the folder that it is given."""
        key = self._key(what)
        if key not in self._values:
            folder = self._folder / f"{'-'.join(what)}-{key[:16]}"
            value = folder / _VALUE
            with _locked(self._folder / f"{folder.name}.lock"):
                if not value.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
                    folder.mkdir(parents=True)
                    new = folder / f"{_VALUE}.new"
                    new.write_bytes(pickle.dumps(make(folder)))
                    new.rename(value)
            self._values[key] = pickle.loads(value.read_bytes())
        found: T = self._values[key]
        return found

    def _key(self, what: tuple[str, ...]) -> str:
        return hashlib.sha256(json.dumps([what, _machine()]).encode()).hexdigest()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
