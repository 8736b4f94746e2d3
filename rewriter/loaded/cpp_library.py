"""Builds a C++ wrapper with probes as a library, and loads it beside the one without.

torch compiles and loads it like the first one, and caches it: the same probes need no compiler the
next time. It loads the same files of GPU kernels; CPU kernels are in the wrapper's own file, and
are compiled again with the same flags.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import fsencode
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

from rewriter.artifact.types import OpenWrapper
from rewriter.core import edit
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.types import Plan
from rewriter.loaded.functions import like
from rewriter.locate.cpp import embedded

_SOURCE, _ENTRY = "cpp_wrapper_src", "inductor_entry"
_RECORD, _FINISH = "inductor_rewriter_record_into", "inductor_rewriter_finish"
_SHOWN = 'extern "C" __attribute__((visibility("default")))'
_EXPORTS = f"""\
{_SHOWN} int {_RECORD}(const char* directory, int quiet) {{
  return inductor_rewriter::record_into(inductor_rewriter::wrapper, directory, quiet);
}}
{_SHOWN} void {_FINISH}() {{ inductor_rewriter::finish_writing(inductor_rewriter::wrapper); }}
"""
# The directory that each library records to, by the library's path.
_RECORDED: dict[str, str] = {}


@dataclass(frozen=True)
class Library:
    """A library with probes: `entry` does what the wrapper's own entry does, and calls it."""

    entry: FunctionType
    path: str
    functions: ctypes.CDLL

    def record(self, directory: Path, *, quiet: bool) -> CppRecording:
        """Record calls that begin from now on."""
        if _RECORDED.get(self.path) != str(directory):
            done = getattr(self.functions, _RECORD)(fsencode(directory), int(quiet))
            _RECORDED[self.path] = str(directory) if done else ""
        return CppRecording(self, str(directory))


@dataclass(frozen=True)
class CppRecording:
    """Records the calls of a library for a block."""

    library: Library
    directory: str

    def end(self) -> None:
        """Wait until all calls that ended are written."""
        getattr(self.library.functions, _FINISH)()

    def close(self) -> None:
        """Stop recording, unless the library already records for another block."""
        if _RECORDED.get(self.library.path) == self.directory:
            del _RECORDED[self.library.path]
            getattr(self.library.functions, _RECORD)(None, 1)


def build(wrapper: OpenWrapper, plan: Plan, entry: FunctionType, entry_code: CodeType) -> Library:
    """Compile and load the library with the probes of a plan. `entry_code` is the entry's own.
    Raises the errors of torch."""
    text = embedded.extract(wrapper.plain)
    exports = text.encode(_EXPORTS).encode()
    insertions = [
        replace(one, text=one.text + exports) if one.origin == HEADER else one
        for one in plan.insertions
    ]
    source = edit.apply(wrapper.plain.data, insertions)
    loaded = entry.__globals__
    namespace = dict(loaded)
    statements = [one for one in ast.parse(source).body if _binds(one, (_SOURCE, _ENTRY))]
    exec(compile(ast.Module(statements, []), str(wrapper.path), "exec"), namespace)
    made: Callable[..., Any] = namespace[_ENTRY]
    # For a function written in C, Python has the module as `self`.
    path: str = made.__self__.__file__  # type: ignore[attr-defined]
    cells = tuple(
        CellType(made) if cell.cell_contents is loaded[_ENTRY] else cell
        for cell in entry.__closure__ or ()
    )
    return Library(like(entry, entry_code, cells), path, ctypes.CDLL(path))


def _binds(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in names for target in statement.targets
    )
