"""Runs a wrapper's source and says everything that a run may change."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from rewriter.runtime import extension

if TYPE_CHECKING:
    from capture import Exported

# What wrappers import, directly or not.
INDUCTOR = ("torch._inductor.async_compile", "torch._inductor.select_algorithm")

_numbers = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """Outputs and inputs after a call as bytes, and the state of the generator."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    random_state: bytes


def load(source: bytes, folder: Path) -> ModuleType:
    """Import `source` as a module of its own."""
    name = f"wrapper_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_bytes(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(source: bytes, args: Sequence[Any], folder: Path) -> Outcome:
    """Import `source` and call it once on copies of `args`."""
    return call_module(load(source, folder), args)


def lend_kernels(lender: ModuleType, borrower: ModuleType) -> None:
    """Make one wrapper run the very same kernels as another.

    Triton picks tile sizes by timing when a kernel first runs, and another tile size may round
    differently. Inductor shares kernel objects between wrappers, and resets them when a wrapper is
    imported: import all wrappers first, then run.
    """
    for name, value in vars(lender).items():
        if type(value).__module__.startswith("torch._inductor."):
            setattr(borrower, name, value)


def call_module(module: ModuleType, args: Sequence[Any]) -> Outcome:
    """Call a wrapper that is imported already on copies of `args`."""
    return _outcome(module.call, args)


def _outcome(function: Callable[[list[Any]], Sequence[Any]], args: Sequence[Any]) -> Outcome:
    inputs = [copy(value) for value in args]
    torch.manual_seed(7)
    with torch.no_grad():
        outputs = function(list(inputs))
    settle()
    return Outcome(
        tuple(map(frozen, outputs)),
        tuple(map(frozen, inputs)),
        bytes(torch.get_rng_state().tolist()),
    )


def settle() -> None:
    """Wait for the files of the probes in this process: they are written beside the model."""
    extension.finish_writing()


def rebuild_aoti(exported: Exported, source: bytes, folder: Path) -> Path:
    """The library of `exported` with `source` as its wrapper, the rest as it was.

    The commands are those that the wrapper itself quotes. Kernels and constants are the objects
    that `export_case` kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    old, new = str(exported.wrapper.with_suffix("")), str(folder / "wrapper")
    (folder / "wrapper.cpp").write_bytes(source)
    if exported.json:
        shutil.copy(exported.json, folder / "wrapper.json")
    moved = {old + end: new + end for end in (".cpp", ".o", ".so")}
    for command in (exported.compile_command, exported.link_command):
        here = [moved.get(part, part) for part in command]
        if exported.so is None:
            # The kernels are in the wrapper and have no object. Who compiles such a package has no
            # precompiled header either, and with it, g++ 12 crashes on the plain file.
            here = [part for part in here if not part.endswith("kernel.o")]
            here = [
                part
                for before, part in itertools.pairwise(["", *here])
                if "-include" not in (before, part)
            ]
        done = subprocess.run(here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "wrapper.so"


def run_aoti(so: Path, args: Sequence[Any]) -> Outcome:
    """Load a library of AOTInductor's, and what records its calls, and run it once on copies of
    `args`."""
    from rewriter.runtime import recorder_library

    recorder_library.load()
    return run_aoti_alone(so, args)


def run_aoti_alone(so: Path, args: Sequence[Any]) -> Outcome:
    """Load a library of AOTInductor's and run it once on copies of `args`."""
    return _outcome(torch._C._aoti.AOTIModelContainerRunnerCpu(str(so), 1).run, args)


@dataclass(frozen=True)
class Ran:
    """What a function returned in a process of its own, and what that printed meanwhile."""

    outcome: Any
    out: str
    err: str


class Apart:
    """Runs functions in another process, which is started anew when one of them ends it."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._pool: ProcessPoolExecutor | None = None

    def __call__(
        self, function: Callable[..., Any], *args: Any, environment: Mapping[str, str] = {}
    ) -> Ran:
        """Run `function(*args)` there; `environment` is added to that of the process.

        Raises what the function raises, and BrokenProcessPool if it crashes.
        """
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context)
            executable = spawn.get_executable()
            context.set_executable(self._executable)  # for all of this process
            try:
                self._pool.submit(os.getpid)  # which starts the one process
            finally:
                context.set_executable(executable)
        try:
            return self._pool.submit(_captured, function, args, dict(environment)).result()
        except BrokenProcessPool:
            self.close()
            raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _captured(
    function: Callable[..., Any], args: Sequence[Any], environment: Mapping[str, str]
) -> Ran:
    import models  # noqa: F401 - defines the operators that wrappers call

    before = dict(os.environ)
    os.environ.update(environment)
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            outcome = function(*args)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.CDLL(None).fflush(None)
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            for name in environment.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return Ran(outcome, *texts)


def copy(value: Any) -> Any:
    """A tensor of the same strides over memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value.detach())


def frozen(value: Any) -> Any:
    """What two values have in common exactly when they are equal bit for bit."""
    if not isinstance(value, torch.Tensor):
        return value
    flat = value.detach().resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    return (
        str(value.dtype),
        tuple(value.shape),
        value.stride(),
        bytes(flat.view(torch.uint8).tolist()),
    )


def events(dump: Path) -> list[dict[str, Any]]:
    """Every event of a dump, or of a part of it, in order."""
    return [
        json.loads(line)
        for file in sorted(dump.rglob("events.jsonl"))
        for line in file.read_text().splitlines()
    ]
