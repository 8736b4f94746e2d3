"""The languages of wrappers, and what each one provides.

A language has a folder beside this file whose `language.py` has the functions of `WrapperLanguage`,
a name in `Language` of `rewriter/core/types.py`, a line in `_NAMES` below, and a module in
`rewriter/instrumentation/dialects/` that writes its probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from rewriter.core.source import Source
from rewriter.core.types import Json, Language
from rewriter.locate.types import KernelSource, Located

# In the order in which they are asked about a file: a Python file with C++ inside is C++.
_NAMES: tuple[Language, ...] = ("cpp", "python")


class WrapperLanguage(Protocol):
    """What a language provides: the functions of its module `language.py`."""

    SUFFIXES: tuple[str, ...]  # of files that hold this language and no other

    def description(self, is_module: bool) -> str:
        """What a wrapper of this kind is called in messages, with its article."""

    def recognises(self, suffix: str, data: bytes) -> bool:
        """Whether the bytes of a file with this suffix are a wrapper in this language."""

    def explain(self, source: Source) -> str:
        """Why a file with a suffix of this language is not a wrapper.

        Raises `RewriterError` if the reason is that it does not parse.
        """

    def is_module(self, name: str, data: bytes) -> bool:
        """Whether the wrapper's file is a Python module, which can be imported and called."""

    def operators_file(self, name: str) -> str:
        """The name of the file beside a wrapper that describes its calls; empty for none."""

    def locate(self, source: Source, operators: Sequence[Json]) -> Located:
        """The launches, entries and inputs. Raises `RewriterError` if it does not parse."""

    def count(self, source: Source) -> int | None:
        """The number of launches, if it is to be checked after a change; else `None`."""

    def kernels(self, source: Source) -> Iterable[KernelSource]:
        """The kernels whose sources are in the wrapper, each name once."""

    def kernel_names(self, kernel: str) -> tuple[str, ...]:
        """The names in a wrapper that are a kernel's or derived from it, always in one order."""


@cache
def language(name: Language) -> WrapperLanguage:
    """The module of a language."""
    return cast(WrapperLanguage, import_module(f"rewriter.locate.{name}.language"))


def suffixes() -> tuple[str, ...]:
    """The suffixes of files that may be wrappers."""
    return tuple(suffix for name in _NAMES for suffix in language(name).SUFFIXES)


def of_suffix(suffix: str) -> WrapperLanguage:
    """The language of files with this suffix; Python if no language has it."""
    owners = (language(name) for name in _NAMES)
    return next((owner for owner in owners if suffix in owner.SUFFIXES), language("python"))


def recognise(suffix: str, data: bytes) -> Language | None:
    """The language of the launches in a file; `None` if it is not a wrapper."""
    for name in _NAMES:
        if language(name).recognises(suffix, data):
            return name
        if suffix in language(name).SUFFIXES:
            return None
    return None
