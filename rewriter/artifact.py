"""Opens what Inductor left: finds out what it is, and reads its wrappers. Never executes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rewriter import edit, markers
from rewriter.edit import Restored
from rewriter.errors import RewriterError
from rewriter.markers import Header
from rewriter.source import Source, check_text
from rewriter.types import Launch, Located, Unrecognised, Wrapper

_CPP_WRAPPER = re.compile(rb"(?:^|\r)cpp_wrapper_src\s*=", re.MULTILINE)
_ENTRY = re.compile(rb"(?:^|\r)(?:\s*(?:async\s+)?def call\(|call\s*=)", re.MULTILINE)
_INDUCTOR = b"torch._inductor"
_SUFFIXES = (".py", ".pt2", ".cpp")  # of what a directory is searched for
_DEVICE = re.compile(
    rb"\b(cuda|xpu|mps|mtia|hpu)(?::\d+)?'|^\s.*empty_strided_(cuda|xpu|mtia)\(", re.MULTILINE
)


@dataclass(frozen=True)
class OpenWrapper:
    """A wrapper and what was found in it. `plain` is its source without probes."""

    wrapper: Wrapper
    path: Path

    @property
    def name(self) -> str:
        return self.wrapper.name

    @property
    def source(self) -> bytes:
        return self.wrapper.source

    @cached_property
    def probes(self) -> Header | None:
        """What the header says, if the wrapper is instrumented."""
        return markers.find_header(self.source)

    @cached_property
    def restored(self) -> Restored:
        return edit.strip(self.source)

    @cached_property
    def plain(self) -> Source:
        return Source(str(self.path), self.restored.source)

    @cached_property
    def located(self) -> Located:
        """The launches of the plain source; see `launches` for lines of the file as it is."""
        from rewriter.python.locate import locate

        return locate(self.plain)

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
        return tuple(sorted({(first or second).decode() for first, second in found}))


@dataclass(frozen=True)
class Artifact:
    """A file or a directory, and the wrappers in it.

    `unread` are the wrappers of a directory that this version does not read, and what they are.
    """

    path: Path
    wrappers: tuple[OpenWrapper, ...]
    unread: tuple[tuple[str, str], ...] = ()

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
            names = "\n    ".join(wrapper.name for wrapper in self.wrappers)
            raise RewriterError(
                "several-wrappers",
                f"{self.path} holds {len(self.wrappers)} wrappers:\n    {names}",
                hint="Name one of these files instead of the directory.",
            )
        return self.wrappers[0]


def open_artifact(path: str | Path) -> Artifact:
    """Open an artifact. Raises `RewriterError` saying what the file is where it is none."""
    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    data = _read(path)
    _check_supported(path, data)
    check_text(str(path), data)
    _check_wrapper(path, data)
    return Artifact(path, (OpenWrapper(Wrapper(path.name, data), path),))


def _open_directory(path: Path) -> Artifact:
    wrappers = []
    unread = []
    for file in sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES):
        if not file.is_file():
            continue
        name = str(file.relative_to(path))
        if file.suffix != ".py":
            unread.append((name, _unsupported(file, b"PK" if file.suffix == ".pt2" else b"")))
        elif _is_wrapper(data := _read(file)):
            wrappers.append(OpenWrapper(Wrapper(name, data), file))
        elif _CPP_WRAPPER.search(data):
            unread.append((name, _unsupported(file, data)))
    if not wrappers:
        also = "".join(f"\n    {name}: {what}" for name, what in unread)
        raise RewriterError(
            "no-artifacts",
            f"no Python wrapper of Inductor's in {path} or below"
            + (f"; what is there, this version does not read:{also}" if also else ""),
            hint="Expected an output_code.py; TORCH_COMPILE_DEBUG=1 makes torch.compile leave one.",
        )
    return Artifact(path, tuple(wrappers), tuple(unread))


def _is_wrapper(data: bytes) -> bool:
    return _INDUCTOR in data and bool(_ENTRY.search(data)) and not _CPP_WRAPPER.search(data)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RewriterError(
            "unreadable",
            f"cannot read {path}: {error.strerror}",
            hint="Expected the path of an artifact, such as output_code.py.",
        ) from error


def _unsupported(path: Path, data: bytes) -> str:
    """What an artifact is that this version does not read; empty for one that it may read."""
    if data.startswith(b"PK"):
        return "a .pt2 package or another zip file"
    if data.startswith(b"\x7fELF"):
        return "a shared object"
    if path.suffix in (".cpp", ".cc", ".h"):
        return "C++ source"
    if _CPP_WRAPPER.search(data):
        return "a C++ wrapper inside a Python file (cpp_wrapper=True)"
    return ""


def _check_supported(path: Path, data: bytes) -> None:
    if found := _unsupported(path, data):
        raise RewriterError(
            "unsupported-artifact",
            f"{path} is {found}, which this version does not read",
            hint="It reads Python wrappers: the output_code.py of torch.compile.",
        )


def _check_wrapper(path: Path, data: bytes) -> None:
    if _is_wrapper(data):
        return
    if b"@triton.jit" in data and not _ENTRY.search(data):
        found = "it holds Triton kernels but no function `call`: a kernel file of the cache"
    elif _INDUCTOR in data:
        found = "it has no function `call`; the file may be truncated"
    else:
        found = "nothing in it comes from torch._inductor"
    # A file that does not parse is better told so, with the line.
    from rewriter.python.outline import parse

    parse(Source(str(path), data))
    raise RewriterError(
        "not-a-wrapper",
        f"{path} is no wrapper of Inductor's: {found}",
        hint="Expected an output_code.py; TORCH_COMPILE_DEBUG=1 makes torch.compile leave one.",
    )
