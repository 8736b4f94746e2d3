"""The names in wrappers of devices, libraries and kinds of launches: `grammars/names.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from rewriter.core import toml
from rewriter.locate.declarations import check_keys, folder, invalid, texts

# Placeholders in a pattern or query for any of these names.
DEVICES, LIBRARIES = PLACEHOLDERS = ("{devices}", "{libraries}")

_RUNS, _CODE = ("gpu", "cpu", "any"), ("generated", "library", "user", "collective")
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


@dataclass(frozen=True)
class Kind:
    """A kind of launches. `runs` says where: on a "gpu", on the "cpu", or, with "any", where their
    arguments are. `code` says whose their kernels are: "generated" from nodes of the graph, of a
    "library", of a "user", or a "collective".

    A launch may be the call of an `operator`; `allocates` what it returns; `keeps` its arguments,
    or returns them under another name; be of a kernel in `triton`.
    """

    runs: str
    code: str
    operator: bool = False
    allocates: bool = False
    keeps: bool = False
    triton: bool = False


# Of a dump that a later version wrote.
_UNKNOWN = Kind("any", "user", keeps=True)


@dataclass(frozen=True)
class Vocabulary:
    """`devices` has the numbers of devices (c10::DeviceType) by name. `libraries` make kernels from
    templates."""

    devices: Mapping[str, int]
    kinds: Mapping[str, Kind]
    libraries: tuple[str, ...]

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The devices besides the CPU that a program may need; `meta` runs nothing."""
        return tuple(device for device in self.devices if device not in ("cpu", "meta"))

    @cached_property
    def any_device(self) -> str:
        """A regular expression, without a group, for the name of any device."""
        return "|".join(map(re.escape, self.devices))


@cache
def vocabulary() -> Vocabulary:
    """Read and check `grammars/names.toml`. Raises `RewriterError`, naming the mistake."""
    file = folder() / "names.toml"
    try:
        declared = toml.read(file)
        check_keys(declared, required={"devices", "kinds", "libraries"}, optional=set())
        devices = dict(declared["devices"])
        kinds = {name: Kind(**facts) for name, facts in declared["kinds"].items()}
        libraries = texts(declared, "libraries")
        for name, number in devices.items():
            if not isinstance(number, int):
                raise TypeError(f"devices: {name} = {number!r} is no whole number")
        for name, kind in kinds.items():
            for said, words in ((kind.runs, _RUNS), (kind.code, _CODE)):
                if said not in words:
                    raise ValueError(f"kinds: {name}: {said!r} is none of {', '.join(words)}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise invalid(file, error) from error
    return Vocabulary(devices, kinds, libraries)


def kind_of(name: str) -> Kind:
    """What is known about the launches of a kind."""
    return vocabulary().kinds.get(name, _UNKNOWN)


def check_placeholders(text: str) -> None:
    """Raise `ValueError` for an unknown placeholder."""
    if unknown := set(_PLACEHOLDER.findall(text)) - {*PLACEHOLDERS}:
        there = ", ".join(PLACEHOLDERS)
        raise ValueError(f"unknown placeholder {', '.join(sorted(unknown))}; there is {there}")


def expand(text: str) -> str:
    """Fill in the placeholders of a query or regular expression.

    Raises `ValueError` for an unknown placeholder.
    """
    check_placeholders(text)
    words = vocabulary()
    text = text.replace(DEVICES, words.any_device)
    return text.replace(LIBRARIES, "|".join(map(re.escape, words.libraries)))


def check_kind(kind: str) -> None:
    """Raise `ValueError` for an unknown kind of launches."""
    if kind not in vocabulary().kinds:
        raise ValueError(f"kind {kind!r} is none of {', '.join(vocabulary().kinds)}")
