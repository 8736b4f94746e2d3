"""Refuses containers whose pickles would run commands when they are loaded.

Nothing here loads them, but torch will at some time. We refuse what no pickle of torch's imports;
a file that passes may still be harmful.
"""

from __future__ import annotations

from rewriter.artifact.containers.byte_items import ItemList
from rewriter.artifact.containers.types import Contents
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import ImportedName, Pickle

# Modules and functions that start programs, load code, or change files.
_MODULES = frozenset(
    (
        *("os", "posix", "nt", "subprocess", "pty", "shutil", "socket", "ctypes", "runpy"),
        *("code", "codeop", "pip", "webbrowser", "multiprocessing", "pdb", "bdb", "timeit"),
        *("importlib", "imp", "_posixsubprocess", "commands"),
    )
)
_BUILTINS = frozenset(
    ("eval", "exec", "compile", "open", "__import__", "breakpoint", "input", "execfile")
)
_MODULES_OF_BUILTINS = ("builtins", "__builtin__", "io", "_io")


def require_harmless(contents: Contents) -> None:
    """Raise `RewriterError` if a pickle of a container would run a command."""
    for pickle in pickles(contents.root):
        for name in pickle.names:
            if _runs_commands(name):
                raise RewriterError(
                    "unsafe-pickle",
                    f"a pickle that would call {name.module}.{name.name} when it is loaded, "
                    f"at offset {name.at:,}",
                    hint="Nothing was loaded here. torch writes no such file: do not load it.",
                )


def pickles(root: Pickle | ItemList) -> list[Pickle]:
    """All pickles of a container, including those inside their bytes."""
    if isinstance(root, Pickle):
        return list(root.walk())
    insides = (item.inside for item in root.items if item.inside is not None)
    return [pickle for inside in insides for pickle in pickles(inside)]


def _runs_commands(name: ImportedName) -> bool:
    first, _, rest = name.name.partition(".")
    if name.module in _MODULES_OF_BUILTINS:
        return first in _BUILTINS
    # A name may lead through a module that its module imports: `torch`, `os.system`.
    leads = name.name.split(".")[:-1] if rest else ()
    return name.module.split(".")[0] in _MODULES or not _MODULES.isdisjoint(leads)
