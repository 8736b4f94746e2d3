"""What a shared object says of itself. It is read as a file, never loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rewriter.core.errors import RewriterError

# Where AOTInductor puts constants, or their size where they are elsewhere: `_compile_consts` of
# torch/_inductor/codecache.py.
CONSTANTS = "_binary_constants_bin_start"
CONSTANTS_END = "_binary_constants_bin_end"
# What pyelftools raises where a file says nonsense, beside errors of its own.
_MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_PROGRAM = 0x08000000  # DF_1_PIE
_NO_VERSION = ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")


@dataclass(frozen=True)
class Constants:
    """Where the constants stand in the file: offset and size in bytes, and their section."""

    offset: int
    size: int
    section: str
    writable: bool


@dataclass(frozen=True)
class Library:
    """A shared object: its machine, the libraries it needs, the symbols it gives and wants.

    `wants` leaves out weak symbols, and those with a version, which the linker found in a library.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    exports: frozenset[str]
    wants: frozenset[str]
    constants: Constants | None

    @property
    def is_static(self) -> bool:
        """Whether the C++ library was linked into it: torch's and its own then meet and crash."""
        return not any(name.startswith(("libstdc++", "libc++")) for name in self.needed)


def read(path: Path, name: str) -> Library:
    """Read a shared object; `name` is what messages call it."""
    try:
        with path.open("rb") as file:
            return read_from(file, name)
    except OSError as error:
        raise _unreadable(name, error) from error


def read_from(file: IO[bytes], name: str) -> Library:
    """As `read`, from an open file, of which only what is asked for is read."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(file)
        dynamic: Any = elf.get_section_by_name(".dynamic")
        symbols: Any = elf.get_section_by_name(".dynsym")
        if elf["e_type"] != "ET_DYN" or dynamic is None or symbols is None or _is_program(elf):
            raise RewriterError(
                "bad-library",
                f"{name}: no shared object that can be linked to: it has no dynamic symbols",
                hint="It is a program, was linked statically, or stripped of its section "
                "headers. Get the package as torch wrote it.",
            )
        tags = list(dynamic.iter_tags())
        own, wanted = set(), set()
        for number, symbol in enumerate(symbols.iter_symbols()):
            if symbol["st_shndx"] != "SHN_UNDEF":
                own.add(symbol.name)
            elif symbol["st_info"]["bind"] != "STB_WEAK" and not _has_version(elf, number):
                wanted.add(symbol.name)
        return Library(
            machine=str(elf["e_machine"]).removeprefix("EM_"),
            soname=next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), ""),
            needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            exports=frozenset(own - {""}),
            wants=frozenset(wanted - {""}),
            constants=_constants(elf),
        )
    except (ELFError, OSError, *_MALFORMED) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> RewriterError:
    return RewriterError(
        "bad-library",
        f"{name}: no shared object that can be read: {error}",
        hint="Expected the library of AOTInductor for Linux (an ELF file).",
    )


def _is_program(elf: Any) -> bool:
    """Whether it says of itself that it is a program that may be loaded anywhere."""
    tags = elf.get_section_by_name(".dynamic").iter_tags("DT_FLAGS_1")
    return any(tag.entry.d_val & _PROGRAM for tag in tags)


def provided(libraries: Iterable[Path], names: Iterable[str]) -> set[str]:
    """Which of these symbols one of the libraries defines; by hash, since torch's are large."""
    from elftools.elf.elffile import ELFFile

    wanted = set(names)
    defined: set[str] = set()
    for path in libraries:
        if wanted <= defined:
            break
        with path.open("rb") as file:
            table: Any = ELFFile(file).get_section_by_name(".gnu.hash")
            if table is not None:
                defined |= {name for name in wanted - defined if table.get_symbol(name) is not None}
    return defined


def _has_version(elf: Any, number: int) -> bool:
    """Whether a dynamic symbol is wanted in a certain version, so that its library is known."""
    versions = elf.get_section_by_name(".gnu.version")
    return versions is not None and versions.get_symbol(number)["ndx"] not in _NO_VERSION


def _constants(elf: Any) -> Constants | None:
    """The constants by their symbols, which a stripped library may not have any more."""
    for table in (".dynsym", ".symtab"):
        section = elf.get_section_by_name(table)
        if section is None:
            continue
        symbols = {
            name: (section.get_symbol_by_name(name) or [None])[0]
            for name in (CONSTANTS, CONSTANTS_END)
        }
        start, end = symbols[CONSTANTS], symbols[CONSTANTS_END]
        if start is None or end is None or start["st_shndx"] == "SHN_UNDEF":
            continue
        home = elf.get_section(start["st_shndx"])
        return Constants(
            offset=start["st_value"] - home["sh_addr"] + home["sh_offset"],
            size=end["st_value"] - start["st_value"],
            section=home.name,
            writable=bool(home["sh_flags"] & 1),
        )
    return None
