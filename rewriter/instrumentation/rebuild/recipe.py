"""Decides how a model of a package is built again on this machine. Compiles and writes nothing.

There are three routes to a package with probes:

- `link`: only the wrapper is compiled, and linked to the package's own library. Kernels and weights
  stay the same bytes.
- `full`: wrapper and kernels are compiled, and the constants are copied from the library.
- `sources`: the loader compiles such a package itself (`package_cpp_only`), so only the source
  changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from rewriter.artifact.package.library import CONSTANTS, Library
from rewriter.artifact.package.model import Model, recorded
from rewriter.core.errors import RewriterError
from rewriter.core.scan import spans
from rewriter.instrumentation.rebuild.machine import Machine, compiler, is_compiler
from rewriter.instrumentation.rebuild.types import ROUTES, Route

_TORCH_INCLUDE = re.compile(r"(?:^|/)torch/include(?P<rest>/.*)?$")
_TORCH_LIBRARIES = re.compile(r"(?:^|/)torch/lib/?$")
_PYTHON_INCLUDE = re.compile(r"/include/python\d[\w.]*/?$")
_CUDA = re.compile(r"cuda|/cu\d+(?:/|$)", re.IGNORECASE)
# Code for the processor of the compiling machine, which other machines may not be able to run.
_NATIVE = re.compile(r"-m(?:arch|tune|cpu)=native$")
_KERNEL_USE = re.compile(r"\b(cpp_fused_\w+)\s*\(")
_KERNEL_BODY = re.compile(r"\)\s*\{|(?P<stop>[;{])")
# Options that make the compiler run another program: torch never writes them, a package may.
_RUNS = re.compile(r"-(?:fplugin|wrapper$|B|specs|Xclang$|load$)")


@dataclass(frozen=True)
class Flags:
    """Arguments of a compiler or linker for this machine, and what was changed in them."""

    compiler: str
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How to build one model. `why` is the reason for the route, `notes` say what was remapped."""

    model: Model
    route: Route
    why: str
    wrapper: Flags | None = None
    kernels: tuple[tuple[str, Flags], ...] = ()
    link: Flags | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was remapped or dropped in all of it, each once."""
        flags = [self.wrapper, *(flags for _, flags in self.kernels), self.link]
        return tuple(dict.fromkeys(note for flag in flags if flag for note in flag.notes))


def choose(
    model: Model, library: Library | None, machine: Machine, wanted: Route | None = None
) -> Recipe:
    """The recipe of the first route that is possible, or of the one that the user wants.

    Raises `RewriterError` if none is possible, with the reason for each.
    """
    reasons = {route: obstacle(route, model, library) for route in ROUTES}
    order = [wanted] if wanted else ROUTES
    for route in order:
        if not reasons[route]:
            return _recipe(route, model, machine, reasons)
    raise RewriterError(
        "no-route",
        f"the model {model.name} cannot be built again: "
        + "; ".join(f"{route}: {reasons[route]}" for route in order),
        hint=_another_way(reasons),
    )


def _another_way(reasons: Mapping[Route, str]) -> str:
    if serves := [route for route in ROUTES if not reasons[route]]:
        return f"Pass --route {serves[0]}, or nothing: it is found."
    return "Get the package as torch wrote it, or compile the model again."


def obstacle(route: Route, model: Model, library: Library | None) -> str:
    """Why a route is not possible for a model; empty if it is."""
    if route == "sources":
        return "" if library is None else "the package has a library: its loader compiles nothing"
    if library is None:
        return "the package holds no library, its loader compiles the sources"
    if route == "link":
        return _link_obstacle(model, library)
    if library.constants is None:
        return f"{CONSTANTS} is not in the library (it was stripped), so neither are the constants"
    objects = [part for part in model.command("Link") if part.endswith(".o")]
    if more := [part for part in objects if not _is_own_object(part, model)]:
        return f"the library holds {Path(more[0]).name}, which is not in the package"
    return ""


def _is_own_object(path: str, model: Model) -> bool:
    """Whether an object was made of what is in the package.

    That is the wrapper's, a kernel's, or that of the constants, which lies in a directory with the
    name of the wrapper: `AotCodeCompiler.compile` of torch/_inductor/codecache.py.
    """
    made_of = Path(path).with_suffix(".cpp").name
    if made_of in {PurePosixPath(name).name for name in (model.wrapper, *model.kernels)}:
        return True
    stem = PurePosixPath(model.wrapper).name.removesuffix(".cpp").removesuffix(".wrapper")
    return PurePosixPath(path).parent.name == stem or path.endswith((".weights.o", "consts.o"))


def _link_obstacle(model: Model, library: Library) -> str:
    if library.soname:
        return f"the library has a name of its own ({library.soname}), which a copy would share"
    used = set(_KERNEL_USE.findall(model.text)) - defined(model.text)
    if missing := sorted((used | {CONSTANTS}) - library.exports):
        return f"the library does not export {', '.join(missing[:3])}"
    return ""


def defined(text: str) -> set[str]:
    """The kernels that are in the wrapper itself, as in releases up to 2.6."""
    return {head[1] for head, _ in spans(_KERNEL_USE, _KERNEL_BODY, text)}


def _recipe(route: Route, model: Model, machine: Machine, reasons: dict[Route, str]) -> Recipe:
    if route == "sources":
        return Recipe(model, route, "the loader compiles it")
    # To find such weights, a macro is defined before all headers; one that is precompiled lacks it.
    elsewhere = route == "link" and model.weights == "behind the library"
    wrapper = compile_flags(
        model.command("Compile"),
        partial(directory, machine),
        native=route == "full",
        header=not elsewhere,
    )
    if route == "link":
        why = "kernels and weights stay as they are"
        if defined(model.text):
            why = "weights stay as they are; the wrapper has the kernels in it"
        return Recipe(model, route, why, wrapper)
    why = reasons["link"] or "asked for"
    kernels = tuple(
        (name, _kernel_flags(source, machine)) for name, source in model.kernels.items()
    )
    link = link_flags(model.command("Link"), partial(directory, machine))
    return Recipe(model, route, why, wrapper, kernels, link)


def _kernel_flags(source: bytes, machine: Machine) -> Flags:
    """Kernels are compiled with other flags than their wrapper, and say so themselves."""
    command = recorded(source.decode("utf-8", "replace"), "Compile")
    return compile_flags(command, partial(directory, machine), native=True)


# What a directory of the machine that compiled a package is elsewhere, or nothing, and a note.
Directory = Callable[[str], tuple[str, str]]


def compile_flags(
    command: Sequence[str], place: Directory, *, native: bool = False, header: bool = True
) -> Flags:
    """The flags of a compile command, without its files, with the directories of another place.

    `native` keeps code for the processor at hand. A precompiled header that is still there was made
    on this machine; it needs that, too, and `header` allows it.
    """
    kept: list[str] = []
    notes: list[str] = []
    options = list(_options(command))
    precompiled = header and any(
        option == "-include" and Path(f"{value}.gch").is_file() for option, value in options
    )
    for option, value in options:
        if option in ("-o", "-c", "-L", "-l"):
            continue
        if option == "-include":
            if precompiled:
                kept += [option, value]
                notes.append(
                    "kept: the precompiled header of this machine, and code for its processor"
                )
            else:
                notes.append("dropped: the precompiled header")
        elif option in ("-I", "-isystem"):
            path, note = place(value)
            kept += [f"-I{path}" if option == "-I" else f"-isystem{path}"] if path else []
            notes += [note] if note else []
        elif _RUNS.match(option):
            notes.append(f"dropped: {option}, which runs another program")
        elif _NATIVE.match(option) and not (native or precompiled):
            notes.append(f"dropped: {option}, so that it runs wherever the package does")
        else:
            kept.append(option + value)
    return Flags(compiler_of(command), tuple(kept), tuple(notes))


def link_flags(command: Sequence[str], place: Directory) -> Flags:
    """The libraries of a link command, without its files, with the directories of another place."""
    kept: list[str] = []
    notes: list[str] = []
    for option, value in _options(command):
        if option == "-l":
            kept.append(option + value)
        elif option == "-L":
            path, note = place(value)
            kept += [option + path] if path else []
            notes += [note] if note else []
        elif (
            option.startswith(("-f", "-O", "-m"))
            and not _NATIVE.match(option)
            and not _RUNS.match(option)
        ):
            kept.append(option)
    return Flags(compiler_of(command), tuple(kept), tuple(notes))


_TAKE_VALUE = ("-D", "-I", "-L", "-l", "-U", "-include", "-isystem", "-o")


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of a command line with their values; files and the program are left out."""
    parts = iter(command[1:])
    for part in parts:
        if not part.startswith("-"):
            continue
        if part in _TAKE_VALUE:
            yield part, next(parts, "")
        elif part.startswith("-isystem"):
            yield "-isystem", part.removeprefix("-isystem")
        elif part[:2] in _TAKE_VALUE and not part.startswith("-include"):
            yield part[:2], part[2:]
        else:
            yield part, ""


def compiler_of(command: Sequence[str]) -> str:
    """The compiler to use for a command, empty if there is none. The one it names may stand behind
    a launcher such as ccache."""
    return compiler(next((part for part in command if is_compiler(part)), ""))


def directory(machine: Machine, path: str) -> tuple[str, str]:
    """What a directory of the machine that made the package is here, and a note if it differs."""
    here = path
    if (match := _TORCH_INCLUDE.search(path)) and machine.torch:
        here = f"{machine.torch.root}/include{match['rest'] or ''}"
    elif _TORCH_LIBRARIES.search(path) and machine.torch:
        here = f"{machine.torch.root}/lib"
    elif _PYTHON_INCLUDE.search(path):
        here = str(machine.python_include or "")
    elif _CUDA.search(path) and machine.cuda_include:
        here = _cuda_directory(path, machine.cuda_include)
    if here and not Path(here).is_dir():
        here = ""
    if here == path:
        return path, ""
    return here, f"remapped: {path} to {here}" if here else f"dropped: {path}, not on this machine"


def portable(path: str) -> tuple[str, str]:
    """What a directory is in a build script, which sets TORCH and CUDA_HOME."""
    if match := _TORCH_INCLUDE.search(path):
        return f"$TORCH/include{match['rest'] or ''}", ""
    if _CUDA.search(path) and path.rstrip("/").endswith("include"):
        return "$CUDA_HOME/include", ""
    return "", f"dropped: {path}"


def _cuda_directory(path: str, include: Path) -> str:
    """The counterpart of a directory of CUDA's: of headers, libraries, or stubs of libraries."""
    home = include.parent
    if path.rstrip("/").endswith("include"):
        return str(include)
    names = ("lib64/stubs", "lib/stubs") if path.rstrip("/").endswith("stubs") else ("lib64", "lib")
    return next((str(home / name) for name in names if (home / name).is_dir()), "")
