"""Finds the files in `grammars/`, and checks their keys."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from rewriter.core import toml
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.types import Json


def folder() -> Path:
    """`grammars/` as installed with the package, or in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "grammars"
    return installed if installed.is_dir() else package.parent / "grammars"


@cache
def never_written() -> tuple[Json, ...]:
    """The results that operators return without writing them: `uninitialised.toml`."""
    return tuple(toml.read(folder() / "uninitialised.toml")["output"])


@cache
def unwritten_operators() -> frozenset[str]:
    """The operators whose results nobody has written, such as `empty`."""
    return frozenset(x for known in never_written() for x in known.get("operators", ()))


def texts(declared: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings; raises for a single string."""
    value = declared[key]
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise TypeError(f"{key} is no list of texts: {value!r}")
    return tuple(value)


def check_keys(declared: dict[str, Any], *, required: set[str], optional: set[str]) -> None:
    """Raise `KeyError` if a key is missing, or is neither required nor optional."""
    if missing := required - declared.keys():
        raise KeyError(f"missing {', '.join(sorted(missing))}")
    if unknown := declared.keys() - required - optional:
        raise KeyError(f"unknown {', '.join(sorted(unknown))}")


def invalid(file: Path, error: Exception) -> RewriterError:
    """The error for an invalid declaration."""
    return RewriterError(
        "grammar-invalid",
        f"{file}: {type(error).__name__}: {error}",
        hint="See docs/project/extending.md for what a declaration holds.",
        code=FAILED,
    )
