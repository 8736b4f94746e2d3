"""Reads an AOTInductor library without its source, by its symbols. It is never loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.artifact.package import library as libraries
from rewriter.artifact.package.library import Library
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.locate.cpp.shim_calls import kind_of
from rewriter.locate.vocabulary import vocabulary

if TYPE_CHECKING:
    from rewriter.core.documents import Count

_RUN = "AOTInductorModelContainerRun"
# The name of a CPU kernel; functions that the compiler split off it have a dot in their names.
_KERNEL = re.compile(r"cpp_\w*fused\w*|cpp_(?:CppMicroGemm|bmm|flex)\w*|kernel")
_CLASS = re.compile(r"_ZN5torch12aot_inductor\d+(AOTInductorModel\w*?)\d+(?:_const_)?run_impl")
# The name of a GPU kernel is a string that is passed to the driver.
_TEXT = re.compile(rb"(?<=\0)(?:triton|cutlass|cuda|rocm)_\w{3,400}(?=\0)")
_LAUNCHED = ("cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel", "zeCommandListAppend")
_READ = 1 << 26  # bytes of a section that are searched for names
_STREAM = re.compile(r"aoti_torch_create_(\w+)_stream_guard|aoti_torch_(mps)_run_command_block")


@dataclass(frozen=True)
class LibraryKernel:
    """A CPU kernel: its offset in the loaded library, and its size, in bytes."""

    name: str
    offset: Count
    size: Count


@dataclass(frozen=True)
class ShimCall:
    """A function of the C shim that launches something, and the kind of its launches."""

    name: str
    kind: str


@printed(
    "library=path device library.machine models entries constants needs=library.needed kernels"
    " gpu_kernels calls others stripped=is_stripped"
)
@dataclass(frozen=True)
class LoneLibrary:
    """What a library tells about the model in it.

    `models` are the classes of its models, `entries` the functions for callers, `kernels` the CPU
    kernels, `gpu_kernels` the names of others, `calls` the launches through torch, `others` the
    other functions of torch that it calls. `constants` are their bytes in the file, `None` if the
    library does not say.
    """

    path: Path
    library: Library
    device: str
    models: tuple[str, ...]
    entries: tuple[str, ...]
    kernels: tuple[LibraryKernel, ...]
    gpu_kernels: tuple[str, ...]
    calls: tuple[ShimCall, ...]
    others: tuple[str, ...]
    is_stripped: bool

    @property
    def constants(self) -> Count | None:
        return self.library.constants.size if self.library.constants else None


def open_library(path: Path) -> LoneLibrary:
    """Read a library. Raises `RewriterError` if AOTInductor did not make it."""
    library = libraries.read(path, str(path))
    entries = tuple(
        sorted(export for export in library.exports if export.startswith("AOTInductorModel"))
    )
    if _RUN not in entries:
        raise RewriterError(
            "bad-library",
            f"{path} is a shared object, but no library of AOTInductor: it has no {_RUN}",
            hint="Expected the .so of a .pt2 package, or what aot_compile wrote.",
        )
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf = ELFFile(file)
        symbols = _symbols(elf)
        texts = _texts(elf)
    wanted = sorted(x for x in library.wants if x.startswith("aoti_torch_"))
    calls = tuple(ShimCall(name, kind) for name in wanted if (kind := kind_of(name)))
    launching = {call.name for call in calls}
    found = (_CLASS.match(name) for name, _, _ in symbols)
    return LoneLibrary(
        path=path,
        library=library,
        device=_device(wanted, library),
        models=tuple(sorted({match[1] for match in found if match})),
        entries=entries,
        kernels=tuple(
            LibraryKernel(name, offset, size)
            for name, offset, size in sorted(set(symbols))
            if _KERNEL.fullmatch(name)
        ),
        gpu_kernels=texts if library.wants & {*_LAUNCHED} else (),
        calls=calls,
        others=tuple(name for name in wanted if name not in launching),
        is_stripped=not any(name.startswith("_Z") and "run_impl" in name for name, _, _ in symbols),
    )


def _symbols(elf: Any) -> list[tuple[str, int, int]]:
    """The functions that are defined here: names, addresses and sizes."""
    found = []
    for table in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(table)
        for symbol in section.iter_symbols() if section is not None else ():
            info, where = symbol["st_info"], symbol["st_shndx"]
            if info["type"] == "STT_FUNC" and where != "SHN_UNDEF":
                found.append((symbol.name, symbol["st_value"], symbol["st_size"]))
    return found


def _texts(elf: Any) -> tuple[str, ...]:
    """The names of kernels among the strings of a library, in the order of the file."""
    names: dict[str, None] = {}
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_PROGBITS" and section.name.startswith(".rodata"):
            elf.stream.seek(section["sh_offset"])
            data = elf.stream.read(min(section["sh_size"], _READ))
            names |= dict.fromkeys(match[0].decode() for match in _TEXT.finditer(data))
    return tuple(names)


def _device(wanted: list[str], library: Library) -> str:
    """The device that the model runs on, by the functions of torch and drivers that it imports."""
    guards = (match for name in wanted if (match := _STREAM.match(name)))
    for match in guards:
        return str(match[1] or match[2])
    if "cuLaunchKernel" in library.wants:
        return "cuda"
    named = re.compile(rf"aoti_torch_({vocabulary().any_device})_")
    found = {match[1] for name in wanted if (match := named.match(name))}
    return next(
        (accelerator for accelerator in vocabulary().accelerators if accelerator in found), "cpu"
    )
