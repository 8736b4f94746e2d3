"""Checks a patched package before it is handed over: it loads, and loads what was built."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewriter.artifact.package.library import Library, provided
from rewriter.core import json_text
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.core.processes import Process
from rewriter.instrumentation.rebuild.machine import Machine
from rewriter.instrumentation.rebuild.types import Checked

# The bindings of torch alone can tell whether these are present.
_DEVICES = ("cpu", "cuda")

_NO_OPERATOR = re.compile(
    r"Could not find schema for|No such operator|not registered|Cannot find the operator"
)


@dataclass(frozen=True)
class ExpectedModel:
    """What loading a model needs, and the file name of the library that has to run then.

    The name is empty where the loader compiles it. `alone` is that library, beside its original,
    if it can be loaded without the package.
    """

    device: str
    library: str
    alone: Path | None = None


@dataclass(frozen=True)
class Loading:
    """A process that imports torch while the package is built, and then loads it.

    Without `full_torch` it imports only the bindings of torch, which takes a fifth of the time: a
    package that loads with these loads with all of torch, too. Torch's loader unpacks a package to
    the directory for temporary files, and leaves it there if it fails; so that directory is
    `folder`.
    """

    process: Process
    folder: Path
    full_torch: bool

    @staticmethod
    def start_for(folder: Path, devices: Iterable[str], imports: Sequence[str]) -> Loading:
        """A process that can load models of these devices, and imports no more than it has to."""
        devices = set(devices)
        full_torch = bool(imports) or not devices <= set(_DEVICES)
        return Loading.start(folder, full_torch=full_torch, cuda="cuda" in devices)

    @staticmethod
    def start(folder: Path, *, full_torch: bool, cuda: bool = False) -> Loading:
        home = str(Path(__file__).parents[3])
        program = (
            f"import sys; sys.path[0] = {home!r}; "
            "from rewriter.runtime.host.package import script; "
            f"script({full_torch=}, {cuda=})"
        )
        process = Process.start(
            [sys.executable, "-c", program],
            {**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Loading(process, folder, full_torch)

    def stop(self) -> None:
        """End the process, if it has not ended."""
        if self.process.is_running:
            self.process.kill()
        self.process.communicate()

    def load(
        self, package: Path, models: Mapping[str, ExpectedModel], imports: Sequence[str]
    ) -> tuple[Checked, str]:
        """Load these models. Raises `RewriterError` where one does not load, or another library.

        Returns `loaded`, or `linked` and why not: a device or a custom operator that is not here
        says nothing of the package.
        """
        spec = {
            "package": str(package),
            "models": {
                name: {
                    "device": expected.device,
                    "library": "" if self.full_torch else str(expected.alone or ""),
                }
                for name, expected in models.items()
            },
            "imports": list(imports),
        }
        code, out, err = self.process.communicate(json_text.encode(spec) + "\n")
        if code:
            status = ExitStatus.of(code)
            how = str(status) if status.signal else (err.strip().splitlines() or ["no message"])[-1]
            raise _failed(f"the process that loaded it ended: {how}")
        # What a library prints when it is loaded may come first.
        answer = json_text.parse_object(out.splitlines()[-1].encode())
        if problem := answer.get(""):
            raise RewriterError(
                "bad-import",
                f"cannot check the package: {problem['import']}",
                hint="Pass a module that can be imported from here, or the path of a Python file.",
            )
        notes = [self._judge(name, expected, answer[name]) for name, expected in models.items()]
        note = "; ".join(dict.fromkeys(filter(None, notes)))
        return ("linked" if note else "loaded"), note

    def _judge(self, model: str, expected: ExpectedModel, answer: Mapping[str, Any]) -> str:
        """Why a model was not loaded, if that is no fault of its own; raises if it is."""
        if "lacking" in answer:
            return f"there is no {answer['lacking']} here"
        if "error" in answer:
            if self.full_torch and _NO_OPERATOR.search(answer["error"]):
                reason = answer["error"].partition(". ")[0]
                return f"{reason}; --import MODULE registers custom operators"
            raise _failed(f"the model {model} does not load: {answer['error']}")
        loaded = [Path(path).name for path in answer["libraries"]]
        if not loaded or (expected.library and expected.library not in loaded):
            libraries = ", ".join(loaded) or "no library"
            problem = f"runs {libraries}, not {expected.library or 'its own'}"
            raise _failed(f"the model {model} {problem}")
        return ""


def load(
    loading: Loading,
    package: Path,
    original: Path,
    models: Mapping[str, ExpectedModel],
    imports: Sequence[str],
) -> tuple[Checked, str]:
    """Load a patched package, as `Loading.load`; if it fails, tell whether its original loads.

    If it does not load with the bindings alone, a process with all of torch loads the package,
    which has the operators that Python registers.
    """
    if not loading.full_torch:
        with contextlib.suppress(RewriterError):
            return loading.load(package, models, imports)
        loading = Loading.start(loading.folder, full_torch=True)
        try:
            return load(loading, package, original, models, imports)
        finally:
            loading.stop()
    try:
        return loading.load(package, models, imports)
    except RewriterError as error:
        if error.slug != "check-failed":
            raise
        again = Loading.start(loading.folder, full_torch=True)
        try:
            again.load(original, models, imports)
        except RewriterError:
            raise RewriterError(
                "check-failed",
                f"{error.message}; without probes it does not load either",
                hint="Nothing was written. The package is broken, or not for this machine; "
                "--no-check patches it all the same.",
                code=FAILED,
            ) from error
        finally:
            again.stop()
        raise


def link_check(built: Library, original: Library, machine: Machine) -> None:
    """Check that something provides each symbol that a new library wants.

    Either its original wants it as well, or gives it, or torch does; the linker has looked for
    those of the C and C++ libraries, whose symbols have versions.
    """
    unknown = built.wants - original.wants - original.exports
    if machine.torch is not None:
        unknown -= provided(sorted((machine.torch.root / "lib").glob("libtorch*.so")), unknown)
    if unknown:
        raise _failed(f"nothing provides {', '.join(sorted(unknown)[:3])}")


def _failed(problem: str) -> RewriterError:
    return RewriterError(
        "check-failed",
        f"the patched package does not work: {problem}",
        hint="Nothing was written. `rewriter doctor` compares the package with this machine; "
        "--no-check writes it all the same.",
        code=FAILED,
    )
