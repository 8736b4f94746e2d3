"""A program that loads wrappers as torch does, without torch: what the start-up module sees."""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.execution.hook import STARTUP

_TASKS = """
def _reload_python_module(key, path):
    with open(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    return _executed(code, path)

def _executed(code, path):
    names = {"__file__": path}
    exec(code, names)
    return names
"""
# Real wrappers need torch when they are executed: these are compiled alone.
_COMPILED = _TASKS.replace("    exec(code, names)\n", "")
_COMPILER = """
from torch._inductor.runtime.compile_tasks import _reload_python_module

def cache_dir():
    return "of torch"
"""
# Imported as torch imports it, then loads each file that it is given.
PROGRAM = """
import sys
from torch._inductor import codecache
from torch._inductor.runtime import compile_tasks
for path in sys.argv[1:]:
    compile_tasks._reload_python_module("key", path)
"""


def write_torch(folder: Path, *, executes: bool = True) -> Path:
    """A package `torch` with the two modules that the start-up module changes."""
    inductor = folder / "torch" / "_inductor"
    (inductor / "runtime").mkdir(parents=True)
    for place in (inductor.parent, inductor, inductor / "runtime"):
        (place / "__init__.py").touch()
    tasks = _TASKS if executes else _COMPILED
    (inductor / "runtime" / "compile_tasks.py").write_text(tasks)
    (inductor / "codecache.py").write_text(_COMPILER)
    return folder


def search_path(*folders: Path) -> str:
    """The value of `PYTHONPATH` with the start-up module first."""
    return os.pathsep.join(map(str, (STARTUP, *folders)))
