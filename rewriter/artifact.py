"""Opens what Inductor left: finds out what it is, and reads its wrappers. Never executes it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from rewriter import edit, markers
from rewriter.dialect import Dialect
from rewriter.edit import Restored
from rewriter.errors import RewriterError
from rewriter.markers import Header
from rewriter.package.container import is_folder
from rewriter.package.model import WRAPPER, Package, open_package, select
from rewriter.source import Source, check_text
from rewriter.types import Json, Language, Launch, Located, Unrecognised, Wrapper

_EMBEDDED = re.compile(rb"(?:^|\r)cpp_wrapper_src\s*=", re.MULTILINE)
_JIT_TEXT = re.compile(rb"\binductor_entry_impl\s*\(")  # given to the compiler by a Python file
_ENTRY = re.compile(rb"(?:^|\r)(?:\s*(?:async\s+)?def call\(|call\s*=)", re.MULTILINE)
# What an entry, and nothing else, does with what it is called with; Python, then C++.
_INPUTS = re.compile(
    rb"^[ \t]+([\w, \t]+?)[ \t]*=[ \t]*args[ \t\r]*$"
    rb"|^[ \t]+auto[ \t]+(\w+)[ \t]*=[ \t]*std::move\(inputs\[",
    re.MULTILINE,
)
_INDUCTOR = b"torch._inductor"
_ZIP = b"PK"
_CPP_SUFFIXES = (".cpp", ".cc", ".cxx")
_SUFFIXES = (".py", ".pt2", *_CPP_SUFFIXES)  # of what a directory is searched for
_DEVICE = re.compile(
    rb"\b(cuda|xpu|mps|mtia|hpu)(?::\d+)?'|^\s.*empty_strided_(cuda|xpu|mtia)\("
    rb"|\bcached_torch_device_type_(cuda|xpu|mps|mtia)\b",
    re.MULTILINE,
)

Graph = Literal["forward", "backward", "inference"]


@dataclass(frozen=True)
class OpenWrapper:
    """A wrapper and what was found in it. `plain` is its source without probes.

    `operators` are the nodes of the `.wrapper.json` beside a C++ wrapper: what its calls of the
    proxy executor mean.
    """

    wrapper: Wrapper
    path: Path
    operators: tuple[Json, ...] = ()

    @property
    def name(self) -> str:
        return self.wrapper.name

    @property
    def source(self) -> bytes:
        return self.wrapper.source

    @property
    def language(self) -> Language:
        """What the launches are written in; C++ may stand in a Python file: see `is_module`."""
        return self.wrapper.language

    @cached_property
    def is_module(self) -> bool:
        """Whether the file is a Python module, which can be imported and called."""
        return self.language == "python" or bool(_EMBEDDED.search(self.source))

    @cached_property
    def graph(self) -> Graph:
        """Which graph of a training run the wrapper computes, by what its entry takes.

        The gradients that a backward is given are `tangents_N`, what the model takes `primals_N`
        where there is a backward (torch/_functorch/partitioners.py).
        """
        names = b" ".join(b" ".join(found) for found in _INPUTS.findall(self.source))
        if re.search(rb"\btangents_\d", names):
            return "backward"
        return "forward" if re.search(rb"\bprimals_\d", names) else "inference"

    @cached_property
    def probes(self) -> Header | None:
        """What the header says, if the wrapper is instrumented."""
        return markers.find_header(self.source)

    @cached_property
    def restored(self) -> Restored:
        return edit.strip(self.source)

    @property
    def removed(self) -> int:
        """How many lines are there on account of probes."""
        return len(markers.lines(self.source)) - len(self.restored.kept)

    @cached_property
    def plain(self) -> Source:
        return Source(str(self.path), self.restored.source)

    @cached_property
    def located(self) -> Located:
        """The launches of the plain source; see `launches` for lines of the file as it is."""
        return self.locate(self.plain)

    def locate(self, source: Source) -> Located:
        """Locate the launches of a source of this wrapper's language."""
        if self.language == "python":
            from rewriter.python.locate import locate

            return locate(source)
        from rewriter.cpp.locate import locate as locate_cpp

        return locate_cpp(source, self.operators)

    def dialect(self, *, standalone: bool = False) -> Dialect:
        """How probes are written in the plain source."""
        if self.language == "python":
            from rewriter.python.emit import Python

            return Python(standalone)
        from rewriter.cpp import embedded
        from rewriter.cpp.emit import Cpp

        return Cpp(embedded.of(self.plain))

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        lines = self.restored.kept
        return tuple(
            replace(launch, line=lines[launch.line - 1], wrapper=self.name)
            for launch in self.located.launches
        )

    @cached_property
    def unrecognised(self) -> tuple[Unrecognised, ...]:
        lines = self.restored.kept
        return tuple(
            replace(call, line=lines[call.line - 1], wrapper=self.name)
            for call in self.located.unrecognised
        )

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The types of device other than the CPU that the wrapper runs on, such as `cuda`."""
        found = _DEVICE.findall(self.plain.data)
        return tuple(sorted({name.decode() for names in found for name in names if name}))


@dataclass(frozen=True)
class Artifact:
    """A file or a directory, and the wrappers in it.

    `unread` are files of a directory that were not looked into, and what they are. `package` is
    what a `.pt2` holds beside its wrappers, which are in the order of its models.
    """

    path: Path
    wrappers: tuple[OpenWrapper, ...]
    unread: tuple[tuple[str, str], ...] = ()
    package: Package | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch, wrapper by wrapper; an index counts within its wrapper."""
        return tuple(launch for wrapper in self.wrappers for launch in wrapper.launches)

    @property
    def unrecognised(self) -> tuple[Unrecognised, ...]:
        return tuple(call for wrapper in self.wrappers for call in wrapper.unrecognised)

    @property
    def only(self) -> OpenWrapper:
        """The wrapper of an artifact that holds one; several are an error that names them."""
        if len(self.wrappers) > 1:
            names = [wrapper.name for wrapper in self.wrappers]
            hint = "Name one of these files instead of the directory."
            if self.package is not None:
                names = [model.name for model in self.package.models]
                hint = "Pass --model with one of these names."
            found = "\n    ".join(names)
            raise RewriterError(
                "several-wrappers",
                f"{self.path} holds {len(self.wrappers)} wrappers:\n    {found}",
                hint=hint,
            )
        return self.wrappers[0]


def open_artifact(path: str | Path, models: tuple[str, ...] | None = None) -> Artifact:
    """Open an artifact. Raises `RewriterError` saying what the file is where it is none.

    `models` chooses models of a package by their names.
    """
    path = Path(path)
    if not path.name:
        path = path.resolve()  # `.`, beside which nothing could be written
    if path.is_dir():
        return _open_package(path, models) if is_folder(path) else _open_directory(path)
    if _starts_as_zip(path):
        return _open_package(path, models)
    data = _read(path)
    _check_supported(path, data)
    check_text(str(path), data)
    language = _language(path, data)
    if language is None:
        raise _not_a_wrapper(path, data)
    return Artifact(path, (_opened(path, path.name, data, language),))


def _opened(path: Path, name: str, data: bytes, language: Language) -> OpenWrapper:
    operators: tuple[Json, ...] = ()
    beside = path.with_suffix(".json")
    if language == "cpp" and beside.is_file():
        operators = _operators(beside, _read(beside))
    return OpenWrapper(Wrapper(name, data, language), path, operators)


def _open_package(path: Path, models: tuple[str, ...] | None) -> Artifact:
    package = open_package(path)
    package = replace(package, models=select(package, models))
    wrappers = []
    for model in package.models:
        file = path / model.wrapper
        check_text(str(file), model.source)
        operators: tuple[Json, ...] = ()
        if model.operators is not None:
            operators = _operators(path / model.operators, package.container.read(model.operators))
        wrappers.append(OpenWrapper(Wrapper(model.wrapper, model.source, "cpp"), file, operators))
    return Artifact(path, tuple(wrappers), package=package)


def _open_directory(path: Path) -> Artifact:
    wrappers = []
    unread = []
    for file in sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES):
        if not file.is_file():
            continue
        name = str(file.relative_to(path))
        data = _ZIP if file.suffix == ".pt2" else _read(file)
        if found := _unsupported(data):
            unread.append((name, found))
        elif language := _language(file, data):
            wrappers.append(_opened(file, name, data, language))
    if not wrappers:
        also = "".join(f"\n    {name}: {what}" for name, what in unread)
        raise RewriterError(
            "no-artifacts",
            f"no wrapper of Inductor's in {path} or below"
            + (f"; not looked into:{also}" if also else ""),
            hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave one) "
            "or the wrapper.cpp of AOTInductor.",
        )
    return Artifact(path, tuple(wrappers), tuple(unread))


def _language(path: Path, data: bytes) -> Language | None:
    """What the launches of a file are written in; `None` where it is no wrapper."""
    if _EMBEDDED.search(data):
        return "cpp"
    if path.suffix in _CPP_SUFFIXES:
        return "cpp" if WRAPPER.search(data) else None
    return "python" if _INDUCTOR in data and _ENTRY.search(data) else None


def _operators(path: Path, data: bytes) -> tuple[Json, ...]:
    """The nodes of the `.json` of a wrapper's name."""
    try:
        nodes = json.loads(data)["nodes"]
        return tuple(node if isinstance(node, dict) else {} for node in nodes)
    except (ValueError, KeyError, TypeError) as error:
        raise RewriterError(
            "bad-operators-file",
            f"{path}: cannot be read: {type(error).__name__}: {error}",
            hint="Expected what AOTInductor writes beside a wrapper with custom operators: a JSON "
            'object with "nodes". Without the file, operators are listed by their number.',
        ) from error


def _starts_as_zip(path: Path) -> bool:
    """Whether a file is a zip file; a package may be large, so the rest is not read for this."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _ZIP
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> RewriterError:
    return RewriterError(
        "unreadable",
        f"cannot read {path}: {error.strerror}",
        hint="Expected the path of an artifact, such as output_code.py or model.pt2.",
    )


def _unsupported(data: bytes) -> str:
    """What an artifact is that this version does not read; empty for one that it may read."""
    if data.startswith(_ZIP):
        return "a .pt2 package or another zip file: name it itself"
    if data.startswith(b"\x7fELF"):
        return "a shared object"
    return ""


def _check_supported(path: Path, data: bytes) -> None:
    if found := _unsupported(data):
        raise RewriterError(
            "unsupported-artifact",
            f"{path} is {found}, which this version does not read",
            hint="It reads the output_code.py of torch.compile, and the wrapper.cpp and the .pt2 "
            "package of AOTInductor.",
        )


def _not_a_wrapper(path: Path, data: bytes) -> RewriterError:
    if path.suffix in _CPP_SUFFIXES:
        found = "it has no AOTInductorModel::run_impl"
        if _JIT_TEXT.search(data):
            found = "it is what a Python file gave to the compiler: that is the wrapper"
        elif b"cpp_fused" in data:
            found += ": the kernels of a wrapper, or a kernel file of the cache"
    elif b"@triton.jit" in data and not _ENTRY.search(data):
        found = "it holds Triton kernels but no function `call`: a kernel file of the cache"
    elif _INDUCTOR in data:
        found = "it has no function `call`; the file may be truncated"
    else:
        found = "nothing in it comes from torch._inductor"
    if path.suffix not in _CPP_SUFFIXES:
        # A file that does not parse is better told so, with the line.
        from rewriter.python.outline import parse

        parse(Source(str(path), data))
    return RewriterError(
        "not-a-wrapper",
        f"{path} is no wrapper of Inductor's: {found}",
        hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave one) or "
        "the wrapper.cpp of AOTInductor.",
    )
