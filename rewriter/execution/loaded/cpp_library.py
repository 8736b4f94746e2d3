"""Builds a C++ wrapper with probes as a library, and loads it beside the one without.

torch compiles and loads it like the first one, but in a cache of ours: the same probes need no
compiler the next time. It loads the same files of GPU kernels; CPU kernels are in the wrapper's own
file, and are compiled again with the same flags.
"""

from __future__ import annotations

import ast
import ctypes
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from os import fsencode
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

from rewriter.artifact.types import Wrapper
from rewriter.core import edit
from rewriter.execution.hook import builds
from rewriter.execution.hook.startup.sitecustomize import Hook
from rewriter.execution.loaded.code import like
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.types import Plan
from rewriter.locate.cpp import embedded
from rewriter.runtime import recorder_library

_SOURCE, _ENTRY = "cpp_wrapper_src", "inductor_entry"
_TABLE = "inductor_rewriter_table"
_EXPORTS = f"""\
extern "C" __attribute__((visibility("default"))) void* {_TABLE}() {{
  return &inductor_rewriter::wrapper;
}}
"""
# The directory that each library records to, by the library's path.
_RECORDED: dict[str, str] = {}


@dataclass(frozen=True)
class CppRecording:
    """Records the calls of a library with probes into a directory, for a block. `table` is the
    address of the library's table, and `recorder` what records."""

    path: str
    table: int
    recorder: ctypes.CDLL
    directory: str

    def begin(self, *, quiet: bool) -> None:
        """Record calls that begin from now on."""
        if _RECORDED.get(self.path) != self.directory:
            is_recorded = self._record_into(fsencode(self.directory), quiet=quiet)
            _RECORDED[self.path] = self.directory if is_recorded else ""

    def end(self) -> None:
        """Wait until all calls that ended are written."""
        self.recorder.inductor_rewriter_finish(self.table)

    def close(self) -> None:
        """Stop recording, unless the library already records for another block."""
        if _RECORDED.get(self.path) == self.directory:
            del _RECORDED[self.path]
            self._record_into(None, quiet=True)

    def _record_into(self, directory: bytes | None, *, quiet: bool) -> bool:
        return bool(self.recorder.inductor_rewriter_record_into(self.table, directory, int(quiet)))


def build(
    wrapper: Wrapper, plan: Plan, entry: FunctionType, entry_code: CodeType, directory: Path
) -> tuple[FunctionType, CppRecording]:
    """Compile and load the library with the probes of a plan: a function that does what the
    wrapper's entry does, and calls it; and what records its calls. `entry_code` is the entry's own.
    Raises the errors of torch, and `OSError` if there is no recorder."""
    if (recorder := recorder_library.load()) is None:
        raise OSError("there is no recorder for C++ wrappers")
    text = embedded.extract(wrapper.plain)
    exports = text.encode(_EXPORTS).encode()
    insertions = [
        replace(x, text=x.text + exports) if x.origin == HEADER else x for x in plan.insertions
    ]
    source = edit.apply(wrapper.plain.data, insertions)
    loaded = entry.__globals__
    namespace = dict(loaded)
    statements = [part for part in ast.parse(source).body if _binds(part, (_SOURCE, _ENTRY))]
    with _apart():
        exec(compile(ast.Module(statements, []), str(wrapper.path), "exec"), namespace)
        made: Callable[..., Any] = namespace[_ENTRY]
        # For a function written in C, Python has the module as `self`.
        path: str = made.__self__.__file__  # type: ignore[attr-defined]
        table = getattr(ctypes.CDLL(path), _TABLE)
    cells = tuple(
        CellType(made) if cell.cell_contents is loaded[_ENTRY] else cell
        for cell in entry.__closure__ or ()
    )
    table.restype = ctypes.c_void_p
    recording = CppRecording(path, table(), recorder, str(directory))
    return like(entry, entry_code, cells), recording


@contextmanager
def _apart() -> Iterator[None]:
    """Have torch build in a cache of ours, or in a folder that goes once the library is loaded."""
    with tempfile.TemporaryDirectory(prefix="rewriter-") as own:
        _hook().build_in(str(builds.kept() or own))
        try:
            yield
        finally:
            _hook().build_in("")


@cache
def _hook() -> Hook:
    from torch._inductor import codecache

    hook = Hook("")  # asks nobody
    hook.compiler(codecache)
    return hook


def _binds(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in names for target in statement.targets
    )
