"""How compiler and linker make the library of a model: its sources, and the commands for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rewriter.artifact.package.library import CONSTANTS, CONSTANTS_END, Library
from rewriter.artifact.package.model import Model
from rewriter.instrumentation.rebuild.recipe import Flags, Recipe
from rewriter.runtime.build import FLAGS
from rewriter.runtime.bundle import HIDDEN

# The dynamic linker puts the library's own directory in its place. As part of the name, other than
# as a search path, it keeps two packages apart whose libraries have one name.
ORIGIN = "$ORIGIN"

RESULT = "out.so"

_GPU_KERNELS = "rewriter_gpu_kernels"

# What the objects of a library have to agree in.
OTHER = re.compile(r"-(?:stdlib|fsanitize|-target|target|m32|mx32|mcmodel)\b")
PRELUDE = "appended_weights.h"
_HIDDEN = "hidden.map"
# Weights behind the original library are still there. The wrapper looks for them behind the library
# that it is in itself, `_get_constants_start` of torch/csrc/inductor/aoti_runtime/model_base.h.
_PRELUDE_TEXT = f"""\
#include <dlfcn.h>
#include <cstdint>
extern "C" uint8_t {CONSTANTS}[];
#define dladdr(address, info) dladdr({CONSTANTS}, info)
"""


@dataclass(frozen=True)
class Unpacked:
    """The original library in a file of its own, and the hash of what was copied there."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Job:
    """What to build for one model: its recipe, the source with probes, and the original library,
    which has to be unpacked to be linked to.

    `table` is compiled at the same time, and so is `recorder`, unless it is an object; both are
    empty for what records nothing.
    `gpu_kernels` are those of the recorder, compiled, by device (90).
    """

    recipe: Recipe
    source: bytes
    library: Library
    table: str = ""
    recorder: str | Path = ""
    unpacked: Unpacked | None = None
    gpu_kernels: tuple[tuple[int, Path], ...] = ()
    file: str = ""  # what the wrapper is called; empty: as in the package

    @property
    def links(self) -> bool:
        """Whether the result needs the original library."""
        return self.recipe.route == "link"


@dataclass(frozen=True)
class BuildStep:
    """One command. `source` is the file that its messages are about; by `key` what is compiled of
    it is known, if that is kept."""

    about: str
    command: tuple[str, ...]
    folder: Path
    source: Path | None = None
    target: str = ""
    key: str = ""


def beside(model: Model) -> str:
    """Where the original library lies when the new one is linked to it.

    The linker writes into the result what it is called by, so it has to lie there like this.
    """
    return f"{ORIGIN}/{PurePosixPath(model.original_library).name}"


def compile_steps(job: Job, folder: Path) -> list[BuildStep]:
    """Write the sources of a job into its directory; returns how they are compiled there."""
    recipe = job.recipe
    assert recipe.wrapper is not None
    name = recipe.model.name
    source = folder / (job.file or PurePosixPath(recipe.model.wrapper).name)
    source.write_bytes(job.source)
    flags = recipe.wrapper
    extra: list[str] = []
    if job.links and recipe.model.weights == "behind the library":
        (folder / PRELUDE).write_text(_PRELUDE_TEXT)
        extra += ["-include", PRELUDE]
    steps = [_compile(f"the wrapper of {name}", flags, source, "wrapper.o", extra)]
    if job.table:
        (folder / _HIDDEN).write_text(HIDDEN)
        file = folder / "rewriter_table.cpp"
        file.write_text(job.table, encoding="utf-8")
        about = f"the table of launches of {name}"
        steps.append(_compile(about, without_header(flags), file, "table.o"))
    if job.recorder and isinstance(job.recorder, str):
        file = folder / "rewriter_runtime.cpp"
        file.write_text(job.recorder, encoding="utf-8")
        steps.append(_compile(f"the probes of {name}", _of_recorder(flags), file, "runtime.o"))
    if job.gpu_kernels:
        file = folder / f"{_GPU_KERNELS}.s"
        file.write_text(_gpu_kernels(job.gpu_kernels))
        steps.append(_compile(f"the probes of {name}", flags, file, f"{_GPU_KERNELS}.o"))
    for number, (member, kernel_flags) in enumerate(recipe.kernels):
        kernel = folder / PurePosixPath(member).name
        kernel.write_bytes(recipe.model.kernels[member])
        about = f"the kernels of {name}"
        steps.append(_compile(about, kernel_flags, kernel, f"kernel{number}.o"))
    if not job.links:
        constants = _write_constants(job, folder)
        steps.append(_compile(f"the weights of {name}", flags, constants, "constants.o"))
    return steps


def _gpu_kernels(files: Sequence[tuple[int, Path]]) -> str:
    """An assembly file with kernels and, by device, where they are: see `load_built` in
    rewriter/runtime/cpp/engine/kernel_code.h."""
    lines = [".section .rodata"]
    for target, path in files:
        lines += [".balign 64", f"sm_{target}:", f'.incbin "{path}"']
    lines += ['.section .data.rel.ro,"aw"', ".balign 8"]
    lines += [f"{word} inductor_rewriter_kernels" for word in (".globl", ".hidden")]
    lines += ["inductor_rewriter_kernels:"]
    lines += [f".quad {target}, sm_{target}" for target, _ in files]
    return "\n".join([*lines, ".quad 0, 0", '.section .note.GNU-stack,"",@progbits', ""])


def _compile(
    about: str, flags: Flags, source: Path, target: str, extra: Sequence[str] = ()
) -> BuildStep:
    # Paths of the directory that goes away must not be in the result.
    places = f"-ffile-prefix-map={source.parent}=."
    arguments = [] if source.suffix == ".s" else [*flags.arguments, *extra, places]
    command = (flags.compiler, *arguments, "-c", source.name, "-o", target)
    return BuildStep(about, command, source.parent, source, target)


def _of_recorder(flags: Flags) -> Flags:
    """The flags of our own libraries, for the same processor, with those in which objects have to
    agree. The recorder needs nothing of torch, and computes with all rules of floating point."""
    kept = (x for x in flags.arguments if x.startswith("-m") or OTHER.match(x))
    return replace(flags, arguments=(*FLAGS, *kept))


def without_header(flags: Flags) -> Flags:
    """The flags less a precompiled header."""
    kept = []
    parts = iter(flags.arguments)
    for part in parts:
        if part == "-include":
            next(parts)
        else:
            kept.append(part)
    return replace(flags, arguments=tuple(kept))


def link_step(job: Job, folder: Path) -> BuildStep:
    """How the objects of a job become its library."""
    recipe = job.recipe
    flags = recipe.link or recipe.wrapper
    assert flags is not None
    objects = ["wrapper.o"]
    if job.table:
        recorder = str(job.recorder) if isinstance(job.recorder, Path) else "runtime.o"
        objects += ["table.o", recorder]
    objects += [f"{_GPU_KERNELS}.o"] if job.gpu_kernels else []
    if job.links:
        objects.append(beside(recipe.model))
        compiled = recipe.wrapper.arguments if recipe.wrapper else ()
        # The runtime has parallel loops of other kinds than the original library may need.
        options = [part for part in dict.fromkeys(compiled) if part == "-fopenmp"]
        options += [part for part in flags.arguments if part.startswith("-flto")]
    else:
        objects += [f"kernel{number}.o" for number in range(len(recipe.kernels))] + ["constants.o"]
        options = list(flags.arguments)
    options += [f"-Wl,--version-script={_HIDDEN}"] if job.table else []
    command = (flags.compiler, "-shared", "-fPIC", "-o", RESULT, *objects, *options)
    return BuildStep(f"the library of {recipe.model.name}", command, folder)


def _write_constants(job: Job, folder: Path) -> Path:
    """A source that puts the constants of a library where a new one has them."""
    constants = job.library.constants
    assert constants is not None
    assert job.unpacked is not None
    with job.unpacked.path.open("rb") as file:
        file.seek(constants.offset)
        (folder / "constants.bin").write_bytes(file.read(constants.size))
    source = folder / "constants.s"
    source.write_text(
        f'.section {constants.section},"a{"w" if constants.writable else ""}",@progbits\n'
        ".balign 64\n"
        f".globl {CONSTANTS}\n"
        f"{CONSTANTS}:\n"
        '.incbin "constants.bin"\n'
        f".globl {CONSTANTS_END}\n"
        f"{CONSTANTS_END}:\n"
        '.section .note.GNU-stack,"",@progbits\n'
    )
    return source
