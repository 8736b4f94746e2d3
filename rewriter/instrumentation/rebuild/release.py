"""Determines which releases of torch may have compiled a package, which does not say so itself.

The exported functions, the wrapper's text, the compile command and the metadata each limit the
minor release, by the facts in `grammars/aoti_interface.toml`. If they contradict each other, the
more reliable one counts, in that order, and one that contradicts itself is ignored: a package that
was built in an unusual way gets a wide range rather than a wrong one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rewriter.core import toml
from rewriter.core.types import Json
from rewriter.locate.cpp import lexer
from rewriter.locate.declarations import folder

Release = tuple[int, int]

_DEFINITION = re.compile(r"^(?:AOTIRuntimeError|const char\*)\s+(AOTInductor\w+)\(", re.MULTILINE)
_INCLUDE = re.compile(r"^#include <torch/csrc/inductor/([\w/]+\.h)>", re.MULTILINE)


@dataclass(frozen=True)
class Releases:
    """The minor releases, `(2, N)`, from `first` to `last`, that may have made a package.

    `last` is None where nothing excludes releases to come. `evidence` says what bounds the range,
    as parts of a sentence about the package.
    """

    first: Release
    last: Release | None
    evidence: tuple[str, ...] = ()

    def admits(self, release: Release, *, development: bool = False) -> bool:
        """Whether `release` may have made the package.

        A `development` build, as 2.14.0a0 or 2.14.0.dev2026…, comes before its release and may
        still be like the one before.
        """
        least = (release[0], release[1] - 1) if development else release
        return self.first <= release and (self.last is None or least <= self.last)

    def __str__(self) -> str:
        first = f"torch {_name(self.first)}"
        if self.last is None:
            return f"{first} or later"
        return first if self.first == self.last else f"{first} to {_name(self.last)}"

    @property
    def explained(self) -> str:
        """The range and what bounds it: `torch 2.13: it exports … (since 2.13) and …`."""
        return f"{self}: it {' and '.join(self.evidence)}" if self.evidence else str(self)


@dataclass(frozen=True)
class _Sign:
    """Something seen, and the first or the last release that has it."""

    text: str
    since: Release | None = None
    until: Release | None = None


def releases(
    exports: Collection[str], wrapper: str, command: str, metadata: Mapping[str, str]
) -> Releases:
    """The releases that what a package holds fits.

    `exports` are the names of the dynamic symbols that its library defines, none for a package
    without one; `wrapper` is the text of its C++ wrapper, `command` the command that compiled it,
    and `metadata` its metadata. Each may be empty.
    """
    code = lexer.code(wrapper.encode("utf-8", "replace")).decode()
    first, lower = _release(_facts()["oldest"]), ""
    last: Release | None = None
    upper = ""
    for signs in (
        _interface(set(exports), "exports"),
        _interface(set(_DEFINITION.findall(code)), "defines"),
        [
            *_known(_INCLUDE.findall(code), _table("headers"), "includes"),
            *_texts("wrapper", [code], "has in its wrapper"),
        ],
        _texts("command", _words(command), "was compiled with"),
        _known(metadata, _table("metadata"), "has the metadata"),
    ):
        for sign in _consistent(signs):
            if sign.since and first < sign.since and (last is None or sign.since <= last):
                first, lower = sign.since, sign.text
            elif sign.until and first <= sign.until and (last is None or sign.until < last):
                last, upper = sign.until, sign.text
    return Releases(first, last, tuple(filter(None, (lower, upper))))


def _consistent(signs: Iterable[_Sign]) -> list[_Sign]:
    """`signs`, or none of them where no release has them all."""
    consistent = list(signs)
    since = [sign.since for sign in consistent if sign.since]
    until = [sign.until for sign in consistent if sign.until]
    return [] if since and until and max(since) > min(until) else consistent


def _interface(names: Collection[str], verb: str) -> Iterator[_Sign]:
    """By the functions of the interface that are there, and the next that are not.

    Nothing follows from a missing function unless those are there that every release has: not
    every library exports the interface, nor has every wrapper its text.
    """
    functions = _table("functions")
    yield from _known(names, functions | _table("optional"), verb)
    every = {name for name, since in functions.items() if since == _release(_facts()["oldest"])}
    if not every <= set(names):
        return
    present = max(since for name, since in functions.items() if name in names)
    later = [(since, name) for name, since in functions.items() if since > present]
    if later:
        since, name = min(later)
        text = f"{verb} no {name} (since {_name(since)})"
        yield _Sign(text, until=(since[0], since[1] - 1))


def _texts(place: str, texts: Sequence[str], verb: str) -> Iterator[_Sign]:
    """By the text of a wrapper without comments and literals, or the arguments of a compiler."""
    for entry in _facts()["text"]:
        pattern = re.compile(entry["pattern"], re.MULTILINE)
        matches = pattern.search if place == "wrapper" else pattern.fullmatch
        if entry["place"] == place and any(map(matches, texts)):
            bound = "since" if "since" in entry else "until"
            text = f"{verb} {entry['what']} ({bound} {entry[bound]})"
            yield _Sign(text, **{x: _release(entry[x]) for x in ("since", "until") if x in entry})


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote
        return []


def _known(names: Iterable[str], table: Mapping[str, Release], verb: str) -> Iterator[_Sign]:
    for name in sorted(set(names)):
        if name in table:
            yield _Sign(f"{verb} {name} (since {_name(table[name])})", since=table[name])


@cache
def _facts() -> Json:
    return toml.read(folder() / "aoti_interface.toml")


@cache
def _table(name: str) -> dict[str, Release]:
    """The first release that has each name of a table."""
    declared = _facts()[name]
    return {name: _release(since) for since, names in declared.items() for name in names}


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return int(major), int(minor)


def _name(release: Release) -> str:
    return ".".join(map(str, release))
