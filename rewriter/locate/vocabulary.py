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

_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
_WHERE = ("gpu", "cpu", "any")


@dataclass(frozen=True)
class Vocabulary:
    """`devices` has the numbers of devices (c10::DeviceType) by name. `kinds` says where launches
    of a kind run: on a "gpu", on the "cpu", or, with "any", where their arguments are. `libraries`
    make kernels from templates.
    """

    devices: Mapping[str, int]
    kinds: Mapping[str, str]
    libraries: tuple[str, ...]

    @cached_property
    def gpu_kinds(self) -> frozenset[str]:
        return frozenset(kind for kind, where in self.kinds.items() if where == "gpu")

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
        devices, kinds = dict(declared["devices"]), dict(declared["kinds"])
        libraries = texts(declared, "libraries")
        for name, number in devices.items():
            if not isinstance(number, int):
                raise TypeError(f"devices: {name} = {number!r} is no whole number")
        for name, where in kinds.items():
            if where not in _WHERE:
                raise ValueError(f"kinds: {name} = {where!r} is none of {', '.join(_WHERE)}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise invalid(file, error) from error
    return Vocabulary(devices, kinds, libraries)


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
