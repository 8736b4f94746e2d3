"""What is compiled once for all workers of a run, and found again by the next run.

A compilation is known by all that it is made of: the sources of the models and of what compiles
them, their options, torch, Python, the compiler and the processor. It has a folder under pytest's
own cache, in one that is named by the hash of these; what is of others is removed.

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
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

_FIXTURES = Path(__file__).parents[2] / "fixtures"
# All that decides what a compilation leaves, besides torch and the compiler.
_SOURCES = (_FIXTURES / "models.py", _FIXTURES / "capture.py", Path(__file__))
_INCLUDE = re.compile(r"-include (\S+)")

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
        self._folder = folder / hashlib.sha256(json.dumps(_machine()).encode()).hexdigest()[:16]
        self._values: dict[tuple[str, ...], Any] = {}
        for stale in folder.iterdir():
            if stale != self._folder:
                shutil.rmtree(stale, ignore_errors=True)

    def value(self, make: Callable[[], T], *what: str) -> T:
        """What `make` returns; `what` says which compilation that is."""
        return self.value_with_files(lambda _: make(), *what)

    def value_with_files(self, make: Callable[[Path], T], *what: str, text: str = "") -> T:
        """What `make` returns, which may name files in the folder that it is given. `text` is what
        it compiles, beside what all compilations are known by."""
        if what not in self._values:
            folder = self._folder / "-".join(what)
            value = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pickle"
            with _locked(self._folder / f"{folder.name}.lock"):
                if not value.exists() or not _headers_are_there(folder):
                    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
                    folder.mkdir(parents=True)
                    new = value.with_suffix(".new")
                    new.write_bytes(pickle.dumps(make(folder)))
                    new.rename(value)
            self._values[what] = pickle.loads(value.read_bytes())
        found: T = self._values[what]
        return found


def _headers_are_there(folder: Path) -> bool:
    """Whether the precompiled headers exist that commands name; torch has them elsewhere."""
    texts = [path.read_text(errors="replace") for path in folder.rglob("*.cpp")]
    return all(Path(name).exists() for text in texts for name in _INCLUDE.findall(text))


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
