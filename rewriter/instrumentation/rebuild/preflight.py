"""Can a package be built again on this machine: everything that is known before any work.

`rewriter doctor` shows all of it, `rewriter instrument` stops at the first that fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rewriter.artifact.package.library import Library
from rewriter.artifact.package.model import Model, Package
from rewriter.core.errors import BAD_INPUT, FAILED, RewriterError
from rewriter.instrumentation.rebuild.machine import Machine, brings_its_library
from rewriter.instrumentation.rebuild.recipe import compiler_of
from rewriter.instrumentation.rebuild.release import releases
from rewriter.instrumentation.rebuild.types import Check

# e_machine of ELF, by what platform.machine() says.
_PROCESSORS = {"X86_64": "x86_64", "AARCH64": "aarch64", "PPC64": "ppc64le", "S390": "s390x"}
_NO_REBUILD = "--no-rebuild writes the sources and a build script for a machine that has it"


def checks(
    model: Model,
    library: Library | None,
    machine: Machine,
    *,
    runs_here: bool = True,
    scratch: Path | None = None,
) -> Iterator[Check]:
    """What there is to say of one model. `runs_here`: the result is to be loaded here as well.
    `scratch` is a directory for what a compiler is asked to make."""
    yield from _system(model, library, machine)
    if library is not None:
        yield from _library(library)
    yield from _command(model)
    yield from _torch(model, library, machine)
    yield from _compiler(model, scratch)
    if model.device == "cuda":
        yield from _cuda(machine)
    else:
        yield from _features(model, machine, runs_here=runs_here)


def require(checks: Iterator[Check], package: Package, model: Model) -> None:
    """Go through checks; the first that fails is raised as the error of its name."""
    for check in checks:
        if check.ok is False:
            raise RewriterError(
                check.error,
                f"{package.path}: model {model.name!r}: {check.name}: {check.found}",
                hint=f"{check.hint}.",
                code=FAILED if check.error in _TOOLCHAIN else BAD_INPUT,
            )


_TOOLCHAIN = {"no-torch", "no-compiler", "bad-compiler", "no-cuda-headers"}


def _system(model: Model, library: Library | None, machine: Machine) -> Iterator[Check]:
    metadata: Mapping[str, str] = model.metadata
    processor = metadata.get("AOTI_MACHINE", "")
    if library is not None:
        processor = _PROCESSORS.get(library.machine, library.machine)
    system = metadata.get("AOTI_PLATFORM", "linux")
    there, here = f"{system} {processor}".strip(), f"{machine.system} {machine.processor}"
    if system != machine.system or (processor and processor != machine.processor):
        yield Check(
            "machine", f"made for {there}, this is {here}", False, _NO_REBUILD, "wrong-machine"
        )
        return
    yield Check("machine", there)


def _features(model: Model, machine: Machine, *, runs_here: bool) -> Iterator[Check]:
    isa = model.metadata.get("AOTI_CPU_ISA", "")
    if lacking := machine.lacks(isa):
        found = f"made for {isa}, this one lacks {', '.join(lacking)}"
        hint = "patch it where it runs, or pass --no-check: then it is built, and not loaded here"
        yield Check("processor", found, False if runs_here else None, hint, "wrong-machine")
    elif isa:
        yield Check("processor", f"has {isa}")


def _library(library: Library) -> Iterator[Check]:
    if library.is_static:
        yield Check(
            "library",
            "the C++ library is linked into it (-static-libstdc++)",
            False,
            "it crashes when torch loads it, with and without probes: compile the model again with "
            "a compiler that links it dynamically, such as CXX=/usr/bin/g++",
            "bad-library",
        )
        return
    yield Check("library", f"{len(library.exports)} symbols, needs {', '.join(library.needed)}")


def _command(model: Model) -> Iterator[Check]:
    if not model.command("Compile"):
        yield Check(
            "compile command",
            "the wrapper does not end in // Compile cmd",
            False,
            "it was edited or cut short: get the package as torch wrote it",
            "no-build-command",
        )


def _torch(model: Model, library: Library | None, machine: Machine) -> Iterator[Check]:
    if machine.torch is None:
        yield Check(
            "torch", "not installed", False, f"pip install torch, or {_NO_REBUILD}", "no-torch"
        )
        return
    found = releases(
        library.exports if library is not None else frozenset(),
        model.text,
        " ".join(model.command("Compile")),
        model.metadata,
    )
    development = bool(re.search(r"a0|\.dev", machine.torch.version))
    if not found.admits(machine.torch.release, development=development):
        yield Check(
            "torch",
            f"made by {found.explained}; here is {machine.torch.version}",
            False,
            f"install the torch that made it, or {_NO_REBUILD}",
            "other-torch",
        )
        return
    yield Check("torch", f"{machine.torch.version}; made by {found.explained}")
    if model.device == "cuda" and not machine.torch.cuda:
        yield Check(
            "CUDA in torch",
            f"torch {machine.torch.version} is built without CUDA",
            False,
            f"install a torch with CUDA, or {_NO_REBUILD}",
            "no-cuda-torch",
        )


def ask_compiler(model: Model, scratch: Path) -> None:
    """Ask the compiler of a model what `checks` wants to know, since that takes it a while. The
    answer is kept for `checks` with the same `scratch`."""
    if compiler := compiler_of(model.command("Compile")):
        brings_its_library(compiler, scratch)


def _compiler(model: Model, scratch: Path | None) -> Iterator[Check]:
    compiler = compiler_of(model.command("Compile"))
    if not compiler:
        yield Check(
            "C++ compiler",
            "none found" + (f": CXX is {named!r}" if (named := os.environ.get("CXX")) else ""),
            False,
            "install g++, or name a compiler in CXX, by its path and nothing else",
            "no-compiler",
        )
        return
    if brings_its_library(compiler, scratch):
        yield Check(
            "C++ compiler",
            f"{compiler} links the C++ library statically, which crashes when torch loads it",
            False,
            "name another compiler in CXX, such as CXX=/usr/bin/g++",
            "bad-compiler",
        )
        return
    yield Check("built with", compiler)


def _cuda(machine: Machine) -> Iterator[Check]:
    if machine.cuda_include is None:
        yield Check(
            "CUDA headers",
            "cuda.h and cuda_runtime_api.h not found",
            False,
            f"set CUDA_HOME to a CUDA toolkit, or {_NO_REBUILD}",
            "no-cuda-headers",
        )
        return
    yield Check("CUDA headers", str(machine.cuda_include))
