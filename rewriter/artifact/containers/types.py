"""What a container is made of, and the wrappers in it. Nothing is unpickled.

A form is a module with `FORM` and a function `read`, which says with `None` that a file is of
another form; `opening.py` asks each in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.artifact.containers.byte_items import ItemList, rebuild
from rewriter.core import pickle_strings
from rewriter.core.pickle_reader import Pickle


@dataclass(frozen=True)
class Form:
    """A form of containers: its name for scripts, and for people."""

    name: str
    description: str


@dataclass(frozen=True)
class Section:
    """One pickle of a container that may hold wrappers, with those in its bytes.

    `folder` is what the names of its wrappers begin with, where there are several sections.
    `submodules` are the parts of the model that run them, and `layers` those whose weights they
    take, of a container that says so.
    """

    pickle: Pickle
    folder: str = ""
    submodules: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """A file as its form reads it.

    `root` is the pickle or the list of items that the file is, behind the bytes of a prefix.
    `entry_keys` are the keys of entries of a cache, by where they stand, of a file that torch loads
    by these keys alone: other keys serve as well. `refers_to` are keys of entries elsewhere that a
    file without wrappers names.
    """

    form: Form
    data: bytes = field(repr=False)
    root: Pickle | ItemList
    sections: tuple[Section, ...]
    refers_to: tuple[str, ...] = ()
    entry_keys: tuple[tuple[int, str], ...] = ()

    def splice(self, texts: Mapping[int, str | bytes]) -> bytes:
        """The file with other strings; `texts` are the new ones by the `start` of the old."""
        prefix = self.data[: self.root.start]
        if isinstance(self.root, Pickle):
            return prefix + pickle_strings.splice(self.root, texts)
        return prefix + rebuild(self.data, self.root, texts)


@dataclass(frozen=True)
class Place:
    """Where a wrapper stands in a container: the offsets of its key and of its source."""

    key: int
    source: int


@dataclass(frozen=True)
class Stored:
    """What a container says of a wrapper in it.

    torch writes the source to `<key>.py` of its cache, unless there is such a file, and runs what
    is there (torch/_inductor/output_code.py). The same wrapper may stand in several places.
    `submodules` are the parts of a model that run it, as `submod_2 (1, 8192)`, and `layers` those
    whose weights they take, as `layers.3`.
    """

    key: str
    places: tuple[Place, ...]
    submodules: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What else the wrapper may be called: by its parts, with or without sizes, and layers."""
        return *self.submodules, *(one.split(" ")[0] for one in self.submodules), *self.layers


@dataclass(frozen=True)
class Container:
    """A file of torch that holds wrappers as texts."""

    path: Path
    contents: Contents = field(repr=False)

    @property
    def form(self) -> Form:
        return self.contents.form
