"""Loads the extension module `cpp/python.cpp`, by which wrappers in Python call the recorder.

It is for the stable ABI of CPython 3.10, and comes with the package or is built once per machine.
Where it cannot be, as without a compiler, `plain.py` serves some probes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from . import bundle, recorder_library
from .build import Unavailable, made_or_why, open_or_build
from .table import input_texts, more_texts, option_texts, row_texts

_NAME = "inductor_rewriter_lines"
_FUNCTIONS = "inductor_rewriter_objects_1"
_ROW = 14  # texts in the row of a launch


def attach(options: dict[str, Any], launches: list[dict[str, Any]], inputs: Sequence[str]) -> Any:
    """Make the recorder of one wrapper, with the methods that its lines call. Raises `Unavailable`
    where the module cannot be loaded."""
    import torch

    from .plain import declared, tf32

    loaded = load()
    if isinstance(loaded, Unavailable):
        raise loaded
    launches = list(map(declared, launches))
    rows = [row_texts(row) for row in launches]
    return loaded.attach(
        tuple(option_texts(options)),
        tuple(text for row in rows for text in [*row, *[None] * _ROW][:_ROW]),
        tuple(text for row in launches for text in more_texts(row)),
        (
            input_texts(inputs),
            torch.__version__,
            os.environ.get("REWRITER_COMMAND", " ".join(sys.argv)),
            ",".join(tf32()) if torch.cuda.is_available() else None,
            options.get("directory") or os.environ.get("REWRITER_DUMP"),
        ),
        len(inputs),
        bool(options.get("dormant")),
        bool(options.get("calls") or os.environ.get("REWRITER_CALLS")),
        bool(options.get("quiet")),
    )


@cache
def load() -> ModuleType | Unavailable:
    """The module, built before if it has to be; or why there is none. Once per process."""
    return made_or_why(_load)


def finish_writing() -> None:
    """Wait until the calls that have ended are written."""
    if load.cache_info().currsize and not isinstance(loaded := load(), Unavailable):
        loaded.write()


def _load() -> ModuleType:
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unavailable("it is for CPython with a global lock")
    recorder = recorder_library.find()
    if isinstance(recorder, Unavailable):
        raise recorder
    made = open_or_build("lines", source, include_flags(), _open)
    function = getattr(recorder, _FUNCTIONS)
    function.restype = ctypes.c_void_p
    _use(made, function())
    return made


def source() -> str:
    if not any(os.path.isfile(f"{flag[2:]}/Python.h") for flag in include_flags()):
        raise Unavailable("no headers of Python: install python3-dev")
    return bundle.together(bundle.SOURCES / "python.cpp")


def include_flags() -> list[str]:
    """How the headers of Python are found."""
    folders = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    return [f"-I{folder}" for folder in sorted(folders)]


def _open(library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(library))
    spec = importlib.util.spec_from_file_location(_NAME, library, loader=loader)
    assert spec is not None
    try:
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
    except ImportError as error:
        raise Unavailable(f"{library}: {error}") from error
    return made


def _use(module: Any, functions: int) -> None:
    """Give the module what it needs of torch and of Python."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    from . import tensors

    module.use(
        functions,
        torch.Tensor,
        torch.nn.Parameter,
        tensors.address,
        torch._C._len_torch_dispatch_stack,
        _disable_current_modes,
        tensors.take,
        tensors.cannot_guard,
        tensors.is_shared,
        tensors.save,
        tensors.positive,
        _warn,
    )
    alone = object()
    module.references(0, alone)  # it counts those to an object which one variable refers to
    atexit.register(_finish, module)


def _finish(module: Any) -> None:
    """The program ends."""
    # The interpreter sets it when it prints the traceback of an unhandled exception.
    error = getattr(sys, "last_value", None)
    text = "" if error is None else f"{type(error).__name__}: {error}"
    module.finish(text.encode("utf-8", "replace").decode())


def _warn(error: BaseException) -> None:
    """Report what went wrong in a line of the wrapper."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"[rewriter] warning: {type(error).__name__}: {error}\n")
