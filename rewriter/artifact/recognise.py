"""Tells what a file is: text that may be a wrapper, or another form, which is opened elsewhere."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate import languages

PAIRED = ".cache"  # the other file of a pair of `torch.compiler.precompile`
_HEAD_BYTES = 16  # enough for every `magic`


@dataclass(frozen=True)
class OtherForm:
    """Files that are not text, recognised by their first bytes or by their suffix."""

    magic: bytes
    description: str
    suffixes: tuple[str, ...] = ()
    hint: str = (
        "Expected the output_code.py of torch.compile, or the wrapper.cpp or the .pt2 package of "
        "AOTInductor."
    )


PACKAGE = OtherForm(b"PK", "a .pt2 package or another zip file: name it itself", (".pt2",))
# Directories list these files without reading them.
LIBRARY = OtherForm(
    b"\x7fELF",
    "a shared object",
    hint="`rewriter list` shows the symbols of a library of AOTInductor. Run and instrument the "
    ".pt2 package that it comes from, or put probes into the .wrapper.cpp that torch leaves in its "
    "cache when it compiles the model.",
)
OTHER_FORMS = (PACKAGE, LIBRARY)

# A directory is searched for files with these suffixes.
SUFFIXES = (*languages.suffixes(), *(suffix for form in OTHER_FORMS for suffix in form.suffixes))


def read(path: Path, bound: int = limits.WRAPPER_BYTES) -> bytes:
    """The bytes of a file. Raises `RewriterError` if it cannot be read or is too large."""
    try:
        return limits.read(path, bound)
    except OSError as error:
        raise unreadable(path, error) from error


def read_head(path: Path) -> bytes:
    """The first bytes of a file, which tell what it is: the whole file may be large."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> RewriterError:
    """The error for a file that cannot be read."""
    return RewriterError(
        "unreadable",
        f"cannot read {path}: {error.strerror}",
        hint="Check its permissions, and those of the folders that it is in."
        if isinstance(error, PermissionError)
        else "Expected the path of an artifact, such as output_code.py or model.pt2.",
    )


def other_form(path: Path) -> str:
    """What a file is if it is not text, by its suffix or first bytes; empty if it may be text."""
    named = (form for form in OTHER_FORMS if path.suffix in form.suffixes)
    form = next(named, None) or _form_of(read_head(path))
    return form.description if form else ""


def is_library(path: Path) -> bool:
    """Whether a file begins like a shared object."""
    return path.is_file() and read_head(path).startswith(LIBRARY.magic)


def require_text(path: Path, data: bytes) -> None:
    """Raise `RewriterError` if a file that no form has opened begins like one that is not text."""
    if form := _form_of(data):
        raise RewriterError(
            "unsupported-artifact",
            f"{path} is {form.description}, which has no source to read or to put probes into",
            hint=form.hint,
        )


def _form_of(data: bytes) -> OtherForm | None:
    return next((form for form in OTHER_FORMS if data.startswith(form.magic)), None)


def not_a_wrapper(path: Path, data: bytes) -> RewriterError:
    """The error for a file that is not a wrapper, which says as far as possible what it is."""
    if path.suffix in PACKAGE.suffixes:
        return RewriterError(
            "corrupt-package",
            f"{path}: a package is a zip file, and this begins with {data[:8]!r}",
            hint="Copy the package again; a source of a wrapper has another suffix, .py or .cpp.",
        )
    why = languages.of_suffix(path.suffix).explain(Source(str(path), data))
    hint = (
        "Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave one) or "
        "the wrapper.cpp of AOTInductor."
    )
    if path.suffix == ".py":
        hint += f"\n{program_hint(path)}"
    return RewriterError("not-a-wrapper", f"{path} is no wrapper of Inductor's: {why}", hint=hint)


def program_hint(path: Path, command: str = "run") -> str:
    """How to give a command a file that is the user's program, not an artifact."""
    words = shlex.join(["rewriter", command, "--", "python", str(path)])
    return f"If it is a program that calls torch.compile: {words}"
