"""Opens what Inductor left: finds out what it is, and reads its wrappers. Never executes it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from rewriter.artifact.graphs import Graph, graph_in, graph_of
from rewriter.artifact.package.container import is_folder
from rewriter.artifact.package.model import WRAPPER, Package, open_package, select
from rewriter.core import edit, limits, markers
from rewriter.core.edit import Restored
from rewriter.core.errors import RewriterError
from rewriter.core.markers import Header
from rewriter.core.source import Source, check_text
from rewriter.core.types import Json, Language
from rewriter.instrumentation.dialect import Dialect
from rewriter.locate import proxy_operators
from rewriter.locate.types import Launch, Located, Unrecognised, Wrapper

_EMBEDDED = re.compile(rb"(?:^|\r)cpp_wrapper_src\s*=(?!=)", re.MULTILINE)
_JIT_TEXT = re.compile(rb"\binductor_entry_impl\s*\(")  # given to the compiler by a Python file
_ENTRY = re.compile(rb"(?:^|\r)(?:[ \t\f]*(?:async[ \t]+)?def call\(|call[ \t]*=)", re.MULTILINE)
_INDUCTOR = b"torch._inductor"
_ZIP = b"PK"
_CPP_SUFFIXES = (".cpp", ".cc", ".cxx")
SUFFIXES = (".py", ".pt2", *_CPP_SUFFIXES)  # of what a directory is searched for
_DEVICE = re.compile(
    rb"\b(cuda|xpu|mps|mtia|hpu)(?::\d+)?'|^\s.*empty_strided_(cuda|xpu|mtia)\("
    rb"|\bcached_torch_device_type_(cuda|xpu|mps|mtia)\b",
    re.MULTILINE,
)


@dataclass(frozen=True)
class OpenWrapper:
    """A wrapper and what was found in it. `plain` is its source without probes.

    `operators` are the nodes of the `.wrapper.json` beside a C++ wrapper: what its calls of the
    proxy executor mean. `inside` is the log or page that holds the source, which is read only:
    then there is no file at `path`.
    """

    wrapper: Wrapper
    path: Path
    operators: tuple[Json, ...] = ()
    inside: Path | None = None

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
        if self.name.endswith(_CPP_SUFFIXES):
            return False
        return self.language == "python" or bool(_EMBEDDED.search(self.source))

    @cached_property
    def graph(self) -> Graph:
        """Which graph of a training run the wrapper computes, by what its entry takes."""
        return graph_of(self.source)

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
            from rewriter.locate.python.locate import locate

            return locate(source)
        from rewriter.locate.cpp.locate import locate as locate_cpp

        return locate_cpp(source, self.operators)

    def dialect(self, *, standalone: bool = False) -> Dialect:
        """How probes are written in the plain source."""
        if self.language == "python":
            from rewriter.instrumentation.python import Python

            return Python(standalone, packer=zlib.ZLIB_RUNTIME_VERSION if standalone else "")
        from rewriter.instrumentation.cpp import Cpp
        from rewriter.locate.cpp import embedded

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

    `unread` are files of a directory that were not looked into, and what they are. `damaged` are
    the names of wrappers that cannot be read, and why. `package` is what a `.pt2` holds beside its
    wrappers, which are in the order of its models.
    """

    path: Path
    wrappers: tuple[OpenWrapper, ...]
    unread: tuple[tuple[str, str], ...] = ()
    package: Package | None = None
    damaged: tuple[tuple[str, RewriterError], ...] = ()

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
        self.require_sound()
        if len(self.wrappers) > 1:
            raise self.several(
                "Choose one: --wrapper takes a name, a pattern, or forward, backward, inference."
            )
        return self.wrappers[0]

    def several(self, hint: str) -> RewriterError:
        """The error of a request for one wrapper, where there are more."""
        names = [_label(wrapper) for wrapper in self.wrappers]
        if self.package is not None:
            names = [model.name for model in self.package.models]
            hint = "Pass --model with one of these names."
        found = "\n    ".join(names)
        return RewriterError(
            "several-wrappers",
            f"{self.path} holds {len(self.wrappers)} wrappers:\n    {found}",
            hint=hint,
        )

    def choose(self, patterns: Sequence[str]) -> Artifact:
        """Only the wrappers that a pattern matches by name or graph; all, if there is no pattern.

        Raises `RewriterError` on a pattern that matches none, with what there is.
        """
        if not patterns:
            return self
        if self.package is not None:
            raise RewriterError(
                "idle-options",
                f"--wrapper given, but {self.path} is a package, which has models",
                hint="Pass --model with the name of one.",
            )
        chosen = [
            {one.name for one in self.wrappers if _matches(pattern, one.name, one.graph)}
            | {name for name, _ in self.damaged if _matches(pattern, name, graph_in(name))}
            for pattern in patterns
        ]
        for pattern, names in zip(patterns, chosen, strict=True):
            if not names:
                there = [_label(wrapper) for wrapper in self.wrappers]
                found = "\n    ".join([*there, *(name for name, _ in self.damaged)])
                raise RewriterError(
                    "no-such-wrapper",
                    f"--wrapper {pattern!r} matches nothing in {self.path}; there is:\n    {found}",
                    hint="Pass one of these names, a pattern such as '*forward*', or one of "
                    "forward, backward, inference.",
                )
        wanted = set().union(*chosen)
        return replace(
            self,
            wrappers=tuple(wrapper for wrapper in self.wrappers if wrapper.name in wanted),
            damaged=tuple((name, error) for name, error in self.damaged if name in wanted),
        )

    def require_sound(self) -> None:
        """Raise the error of the first wrapper that cannot be read, if there is one."""
        for _, error in self.damaged:
            raise error


def _label(wrapper: OpenWrapper) -> str:
    """A wrapper in a list of several, with its graph where the name does not tell."""
    told = wrapper.graph == "inference" or wrapper.graph in wrapper.name
    return wrapper.name if told else f"{wrapper.name} ({wrapper.graph})"


def _matches(pattern: str, name: str, graph: str) -> bool:
    return pattern == graph or fnmatchcase(name, pattern)


def open_artifact(path: str | Path, models: tuple[str, ...] | None = None) -> Artifact:
    """Open an artifact. Raises `RewriterError` saying what the file is where it is none.

    `models` chooses models of a package by their names.
    """
    path = Path(path)
    try:
        return _open(path, models)
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error


def _open(path: Path, models: tuple[str, ...] | None) -> Artifact:
    if not path.name:
        path = path.resolve()  # `.`, beside which nothing could be written
    if path.is_dir():
        if is_folder(path):
            return _open_package(path, models)
        from rewriter.artifact.directory import open_directory

        return open_directory(path)
    if _starts_as_zip(path):
        return _open_package(path, models)
    from rewriter.artifact.directory import open_trace

    if (traced := open_trace(path)) is not None:
        return traced
    data = read(path)
    _check_supported(path, data)
    check_text(str(path), data)
    language = language_of(path, data)
    if language is None:
        raise _not_a_wrapper(path, data)
    return Artifact(path, (opened(path, path.name, data, language),))


def wrapper_in(path: Path, name: str, data: bytes) -> OpenWrapper | None:
    """The wrapper that the text of a file holds, under a name; `None` where it holds none."""
    language = language_of(path, data)
    return None if language is None else opened(path, name, data, language)


def opened(path: Path, name: str, data: bytes, language: Language) -> OpenWrapper:
    operators = operators_beside(path) if language == "cpp" else ()
    return OpenWrapper(Wrapper(name, data, language), path, operators)


def operators_beside(path: Path) -> tuple[Json, ...]:
    """The nodes of the `.json` beside a C++ wrapper; none where there is no such file."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return ()
    return proxy_operators.read(beside, read(beside, limits.JSON_BYTES))


def _open_package(path: Path, models: tuple[str, ...] | None) -> Artifact:
    package = open_package(path)
    package = replace(package, models=select(package, models))
    wrappers = []
    for model in package.models:
        file = path / model.wrapper
        check_text(str(file), model.source)
        operators: tuple[Json, ...] = ()
        if model.operators is not None:
            data = package.container.read(model.operators, limits.JSON_BYTES)
            operators = proxy_operators.read(path / model.operators, data)
        wrappers.append(OpenWrapper(Wrapper(model.wrapper, model.source, "cpp"), file, operators))
    return Artifact(path, tuple(wrappers), package=package)


def language_of(path: Path, data: bytes) -> Language | None:
    """What the launches of a file are written in; `None` where it is no wrapper."""
    if path.suffix in _CPP_SUFFIXES:
        return "cpp" if WRAPPER.search(data) else None
    if _EMBEDDED.search(data):
        return "cpp"
    return "python" if _INDUCTOR in data and _ENTRY.search(data) else None


def _starts_as_zip(path: Path) -> bool:
    """Whether a file is a zip file; a package may be large, so the rest is not read for this."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _ZIP
    except OSError as error:
        raise unreadable(path, error) from error


def read(path: Path, bound: int = limits.WRAPPER_BYTES) -> bytes:
    """The bytes of a file. Raises `RewriterError` where it cannot be read, or has too many."""
    try:
        return limits.read(path, bound)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> RewriterError:
    """The error of a file that cannot be read."""
    return RewriterError(
        "unreadable",
        f"cannot read {path}: {error.strerror}",
        hint="Expected the path of an artifact, such as output_code.py or model.pt2.",
    )


def unsupported(data: bytes) -> str:
    """What an artifact is that this version does not read; empty for one that it may read."""
    if data.startswith(_ZIP):
        return "a .pt2 package or another zip file: name it itself"
    if data.startswith(b"\x7fELF"):
        return "a shared object"
    return ""


def _check_supported(path: Path, data: bytes) -> None:
    if found := unsupported(data):
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
        from rewriter.locate.python.outline import parse

        parse(Source(str(path), data))
    return RewriterError(
        "not-a-wrapper",
        f"{path} is no wrapper of Inductor's: {found}",
        hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave one) or "
        "the wrapper.cpp of AOTInductor.",
    )
