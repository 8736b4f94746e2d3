"""The parts of a container. Nothing is unpickled.

Each form is a module with `FORM` and a function `read`, which returns `None` for a file of another
form; `opening.py` asks each in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rewriter.artifact.containers.byte_items import ItemList, rebuild
from rewriter.artifact.types import Form
from rewriter.core import pickle_strings
from rewriter.core.pickle_reader import Pickle


@dataclass(frozen=True)
class Section:
    """One pickle of a container that may contain wrappers, also inside its bytes.

    `folder` begins the names of its wrappers if there are several sections. If the container says
    so, `submodules` are the parts of the model that run them, and `layers` those whose weights they
    take.
    """

    pickle: Pickle
    folder: str = ""
    submodules: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The content of a file, as its form reads it.

    `root` is the pickle or the list of items that the file consists of, after a prefix.
    `entry_keys` are the keys of cache entries, by their offsets, if torch finds the entries only by
    these keys in the file: then they can be renamed. `refers_to` are keys of entries elsewhere, in
    a file without wrappers.
    """

    form: Form
    data: bytes = field(repr=False)
    root: Pickle | ItemList
    sections: tuple[Section, ...]
    refers_to: tuple[str, ...] = ()
    entry_keys: tuple[tuple[int, str], ...] = ()

    def splice(self, texts: Mapping[int, str | bytes]) -> bytes:
        """The file with new strings; `texts` has them by the `start` of the old ones."""
        prefix = self.data[: self.root.start]
        if isinstance(self.root, Pickle):
            return prefix + pickle_strings.splice(self.root, texts)
        return prefix + rebuild(self.data, self.root, texts)
