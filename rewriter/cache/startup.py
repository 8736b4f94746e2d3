"""Notes which wrappers a program loads, and from which files, in every Python process of it.

A copy of this file is the `sitecustomize.py` of a program that `usage.py` watches: Python imports
it when it starts, in processes that are spawned as well, and forked ones have it from the process
that they come from. It needs the standard library only, changes nothing of what the program sees
but the audit hook, and hands over to the `sitecustomize` that would have been imported.

Python tells its audit hooks of each file that is opened, and of each source that is compiled, by
its path: the program may move Inductor's cache as often as it likes.

Each wrapper is copied when it is loaded, as a program may remove its cache when it ends. Where the
copy has probes by now, and the wrapper is as it was before, the copy takes its place just before
the wrapper is read.
"""

import os
import sys

# Nothing else is imported: the modules of a program stay the same.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

NAME = "sitecustomize"  # Python imports the module of this name when it starts
LOG = "used.log"
KEPT = "kept"  # copies of the wrappers, laid out as a cache
_BACKUP = ".orig"  # as rewriter.core.files.BACKUP
_MOST = 4096  # files of other kinds that one process notes
# What no container of compiled code is called; weights and data sets are not read, either.
_OTHERS = (
    *(".py", ".pyc", ".pyi", ".so", ".a", ".o", ".c", ".h", ".cpp", ".cu", ".ptx", ".cubin"),
    *(".json", ".jsonl", ".toml", ".yaml", ".yml", ".xml", ".html", ".ini", ".cfg", ".txt", ".md"),
    *(
        ".log",
        ".jinja",
        ".gz",
        ".bz2",
        ".zip",
        ".png",
        ".jpg",
        ".npy",
        ".npz",
        ".safetensors",
        ".parquet",
    ),
)


class Watcher:
    """The hook of one process, and of those that are forked from it."""

    def __init__(self, folder: str) -> None:
        self._log = os.path.join(folder, LOG)
        self._kept = os.path.join(folder, KEPT)
        self._pid = os.getpid()
        self._noted: set[tuple[str, str]] = set()

    def __call__(self, event: str, arguments: "tuple[Any, ...]") -> None:
        if event == "open":
            path, mode = arguments[0], arguments[1]
            # The same for text and for bytes.
            if mode == "r" and not _is_other(path):
                self._try(self._note, "file", path)
            elif mode == "r" and _is_wrapper(path):
                self._try(self._place, path)
        elif event == "compile":
            path = arguments[1]
            if _is_wrapper(path):
                self._try(self._note, "wrapper", path)
                self._try(self._keep, path)

    def _try(self, act: "Callable[..., None]", *arguments: "Any") -> None:
        """Do something that must not fail in the program."""
        try:
            act(*arguments)
        except Exception:
            return

    def _note(self, kind: str, path: str) -> None:
        """Append a line to the log."""
        pid = os.getpid()
        if pid != self._pid:
            self._pid = pid
            self._noted = set()
        key = kind, os.path.abspath(path)
        if key in self._noted or (kind == "file" and len(self._noted) >= _MOST):
            return
        self._noted.add(key)
        row = {"kind": kind, "path": key[1], "pid": pid, "process": _process_name()}
        # In one write at the end of the file: lines of several processes do not mix. JSON would
        # need a module, and those of the program stay the same.
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, ascii(row).encode() + b"\n")
        finally:
            os.close(descriptor)

    def _keep(self, path: str) -> None:
        """Copy a wrapper that has no probes."""
        copy = self._copy(path)
        if not os.path.exists(copy) and not os.path.exists(path + _BACKUP):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            _write(copy, _read(path))

    def _place(self, path: str) -> None:
        """Put probes into a wrapper that is about to be read, if its copy has some."""
        copy = self._copy(path)
        if os.path.exists(copy + _BACKUP) and _read(path) == _read(copy + _BACKUP):
            self._note("placed", path)
            _write(path, _read(copy))

    def _copy(self, path: str) -> str:
        name = os.path.basename(path)
        return os.path.join(self._kept, name[1:3], name)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, data: bytes) -> None:
    """Write a file in one step: others read it meanwhile."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.rewriter-tmp")
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _is_wrapper(path: "Any") -> bool:
    """Whether a path is like those that Inductor writes its Python files to: `xx/.xx….py`."""
    if not isinstance(path, str) or not path.endswith(".py"):
        return False
    folder, _, name = path.rpartition("/")
    return len(name) > 5 and name[1:3] == folder.rpartition("/")[2]


def _is_other(path: "Any") -> bool:
    """Whether a file cannot hold compiled code of Inductor's, by its name."""
    if not isinstance(path, str):
        return True
    return path.lower().endswith(_OTHERS) or path.startswith(("/proc/", "/sys/"))


def _process_name() -> str:
    """What the program calls this process, where `multiprocessing` started it."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return ""
    return str(module.current_process().name)


def _leave_alone(functions: "Iterable[Any]") -> None:
    """Have Dynamo run functions as they are: in eager code of a compiled function, it would trace
    the hook. It skips what comes from such a file (`SKIP_DIRS` in torch/_dynamo/trace_rules.py)."""
    for function in functions:
        function.__code__ = function.__code__.replace(co_filename="<frozen importlib.rewriter>")


def begin(folder: str) -> None:
    """Watch this process, and import what would have been imported in the place of this file."""
    sys.path[:] = [path for path in sys.path if path != folder]
    sys.path_importer_cache.pop(folder, None)
    methods = (x for x in vars(Watcher).values() if hasattr(x, "__code__"))
    _leave_alone([*methods, _read, _write, _is_wrapper, _is_other, _process_name])
    sys.addaudithook(Watcher(folder))
    del sys.modules[NAME]
    # Where there is none, the error tells Python so, as without this file.
    __import__(NAME)


if __name__ == NAME:
    begin(os.path.dirname(os.path.abspath(__file__)))
