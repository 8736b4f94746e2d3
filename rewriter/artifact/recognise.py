"""What a file is: a wrapper, a package, or something that this version does not read."""

from __future__ import annotations

from pathlib import Path

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate import languages

_ZIP = b"PK"
SUFFIXES = (*languages.suffixes(), ".pt2")  # of what a directory is searched for


def starts_as_zip(path: Path) -> bool:
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


def require_supported(path: Path, data: bytes) -> None:
    """Raise `RewriterError` where the bytes are those of something that is not read."""
    if found := unsupported(data):
        raise RewriterError(
            "unsupported-artifact",
            f"{path} is {found}, which this version does not read",
            hint="It reads the output_code.py of torch.compile, and the wrapper.cpp and the .pt2 "
            "package of AOTInductor.",
        )


def not_a_wrapper(path: Path, data: bytes) -> RewriterError:
    """The error of a file that is no wrapper: what it is, as far as can be told."""
    why = languages.of_suffix(path.suffix).explain(Source(str(path), data))
    return RewriterError(
        "not-a-wrapper",
        f"{path} is no wrapper of Inductor's: {why}",
        hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave one) or "
        "the wrapper.cpp of AOTInductor.",
    )
