"""Has a program ask for probes when it loads a wrapper: Python imports this file when it starts.

`rewriter run -- COMMAND` puts this folder at the front of `PYTHONPATH`, so that processes that the
program spawns import it, too; forked ones have it from the process that they come from. It waits
until the program imports Inductor. Then, whenever torch reads a wrapper's file and compiles its
text, the text goes to the process that `REWRITER_HOOK` names, a socket, and what comes back is
compiled in its place. No file is changed, nor is there anything to restore. If the answer is late
or missing, the wrapper runs as it is, and standard error says so.

This file needs the standard library only, whichever Python runs it, and hands over to the
`sitecustomize` that it displaced. `REWRITER_EAGER` has it run compiled functions as plain Python,
too (`against_eager/`).
"""

import os
import sys

# Nothing else is imported here: the modules of a program that compiles nothing stay the same.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

NAME = "sitecustomize"  # Python imports the module of this name when it starts
SOCKET = "REWRITER_HOOK"
EAGER = "REWRITER_EAGER"  # how many calls of each compiled function are compared with plain Python
STACKS = "REWRITER_STACKS"  # at SIGTERM, leave where each thread is in a file beside the socket
STACK = ".stack"  # how the name of such a file ends, behind the number of the process
RAISED = ".raised"  # the same of a file with the exception that ended it, empty if none did
START = "REWRITER_HOOK_START"  # the command that serves at the socket, where nobody does yet
RUNTIME = "_rewriter_runtime"
PLAIN = "plain"  # beside the socket: the wrappers that run without probes, and why
_TASKS = "torch._inductor.runtime.compile_tasks"  # reads, compiles and executes generated files
_COMPILER = "torch._inductor.codecache"
_DYNAMO = "torch._dynamo.eval_frame"  # where compiled functions are entered
_LONGEST = 1 << 16  # characters of the exception that ends a process
_FOLDER = os.path.dirname(os.path.abspath(__file__))
# In the text of each wrapper, in Python or C++, and of no kernel's file.
_WRAPPERS = ("AsyncCompile", "CppWrapperCodeCache")
_PATIENCE = 120.0  # seconds that an answer may take
_STARTS = 30.0  # seconds in which a server has to listen
_MOST = 4096  # files of other kinds that are named in one question
# What no container of compiled code is called; weights and data sets are not read, either.
_OTHERS = (
    *(".py", ".pyc", ".pyi", ".so", ".a", ".o", ".c", ".h", ".cpp", ".cu", ".ptx", ".cubin"),
    *(".json", ".jsonl", ".toml", ".yaml", ".yml", ".xml", ".html", ".ini", ".cfg", ".txt", ".md"),
    *(".log", ".jinja", ".gz", ".bz2", ".zip", ".png", ".jpg", ".npy", ".npz", ".safetensors"),
    ".parquet",
)
# The audit events of files that are read or written, and which argument has the name.
_EVENTS = {"open": 0, "os.rename": 1}
# What may fail in asking; anything else is the program's, such as what a signal handler raises.
_FAILURES = (ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, OSError,
             RuntimeError, SyntaxError, TypeError, ValueError)  # fmt: skip


class Waiting:
    """An entry of `sys.meta_path` that finds modules as others do, and acts once they are there."""

    def __init__(self, acts: "dict[str, Callable[[ModuleType], None]]") -> None:
        self._acts = acts

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in self._acts:
            return None
        others = [x for x in sys.meta_path if x is not self and hasattr(x, "find_spec")]
        found = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            loader, plain = spec.loader, spec.loader.exec_module

            def exec_module(module: "ModuleType") -> None:
                del loader.exec_module
                plain(module)
                act = self._acts.pop(name, None)
                if act is not None:
                    _act(act, module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Hook:
    """What is exchanged in the modules of Inductor, and asks for probes."""

    def __init__(self, socket: str) -> None:
        from _thread import _local as local  # `threading` imports more

        self._socket = socket
        self._here = local()  # `build`: where this thread builds C++; empty: where torch does
        self._files: dict[str, int] = {}  # by name, the process that noted it: one may fork
        self._has_asked = False
        self._failed = ""  # why nobody answers

    def tasks(self, module: "ModuleType") -> None:
        """Shadow `compile` in the module that compiles what was generated."""
        load = module._reload_python_module

        def reload(*arguments: "Any", **options: "Any") -> "Any":
            outer, self._here.build = getattr(self._here, "build", ""), ""
            try:
                return load(*arguments, **options)
            except RuntimeError as error:
                if self._here.build and type(error).__name__ == "CppCompileError":
                    reason = "its C++ does not compile with lines of ours"
                    _say(reason, arguments[1], os.path.dirname(self._socket))
                raise
            finally:
                self._here.build = outer

        module.__dict__["compile"] = self._compile
        module.__dict__["_reload_python_module"] = reload

    def compiler(self, module: "ModuleType") -> None:
        """Give C++ with probes a cache of its own: that of the program stays as it is."""
        plain = module.cache_dir

        def cache_dir() -> str:
            return str(getattr(self._here, "build", "") or plain())

        module.__dict__["cache_dir"] = cache_dir
        # A process that was forked may have imported it before it was exchanged.
        module.__dict__["_reload_python_module"] = sys.modules[_TASKS]._reload_python_module

    def build_in(self, folder: str) -> None:
        """Have this thread build C++ in a folder from now on; empty: where torch does."""
        self._here.build = folder

    def note(self, event: str, arguments: "tuple[Any, ...]") -> None:
        """An audit hook: remembers which files were read or written, which may hold compiled code.
        Their names tell which piece of a model a wrapper is for."""
        try:
            if event not in _EVENTS or len(self._files) >= _MOST:
                return
            path = arguments[_EVENTS[event]]
            is_other = not isinstance(path, str) or path.lower().endswith(_OTHERS)
            if is_other or path.startswith(("/proc/", "/sys/")):
                return
            name, pid = os.path.abspath(path), os.getpid()
            if self._files.get(name) != pid:
                self._files[name] = pid
                if self._has_asked:
                    self._keep(name)
        except (OSError, AttributeError, TypeError):
            return  # the working directory or our folder is gone, or the interpreter ends

    def _keep(self, *names: str) -> None:
        """Add names to a file beside the socket at once: a serving engine kills its processes, and
        what it has compiled is written after the last question."""
        file = os.path.join(os.path.dirname(self._socket), f"files-{os.getpid()}.txt")
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, os.fsencode("".join(f"{name}\0" for name in names)))
        finally:
            os.close(number)

    def _compile(self, source: "Any", path: str, mode: str, **options: "Any") -> "Any":
        """As the builtin: `compile(text, path, "exec")`."""
        if isinstance(source, str) and any(name in source for name in _WRAPPERS):
            try:
                if (code := self._probed(source, path)) is not None:
                    return code
            except _FAILURES as error:
                _say(f"{type(error).__name__}: {error}", path, os.path.dirname(self._socket))
        return compile(source, path, mode, **options)

    def _probed(self, source: str, path: str) -> "Any":
        """The code of a wrapper with probes; `None` if it is to have none."""
        if self._failed:
            raise OSError(self._failed)
        try:
            answer = self._ask(source, path)
        except OSError as error:  # the next one would wait as long
            self._failed = f"{type(error).__name__}: {error}, of an earlier wrapper"
            raise
        if "error" in answer:
            raise RuntimeError(answer["error"])
        if "text" not in answer:
            return None
        self.build_in(answer.get("build", ""))
        # Under a name of its own: the program may have another version installed, or none.
        if RUNTIME not in sys.modules:
            _load_package(RUNTIME, os.path.join(_FOLDER, *[os.pardir] * 3, "runtime"))
        tree = placed(answer["text"], answer["lines"], path)
        return compile(tree, path, "exec", dont_inherit=True)

    def _ask(self, source: str, path: str) -> "dict[str, Any]":
        import json
        import socket
        import time

        end = time.monotonic() + _PATIENCE
        question = {"path": path, "pid": os.getpid(), "process": _process_name()}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            self._connect(connection)
            if not self._has_asked:  # the server has made the folder
                self._has_asked = True  # first: other threads note what they open meanwhile
                self._keep(*self._files)
            connection.sendall(json.dumps(question).encode() + b"\n" + source.encode())
            connection.shutdown(socket.SHUT_WR)
            parts = [connection.recv(1 << 20)]
            while parts[-1]:
                connection.settimeout(max(0.01, end - time.monotonic()))
                parts.append(connection.recv(1 << 20))
        answer: dict[str, Any] = json.loads(b"".join(parts))
        return answer

    def _connect(self, connection: "Any") -> None:
        """Connect to the server of this user; where nobody listens, start it as asked."""
        import time
        from socket import SO_PEERCRED, SOL_SOCKET
        from struct import unpack

        end = time.monotonic() + _STARTS
        command, is_started = os.environ.get(START), False
        while True:
            try:
                connection.connect(self._socket)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if not command or time.monotonic() > end:
                    raise
            if not is_started:
                _start(command)
                is_started = True
            time.sleep(0.05)
        # Its folder may be gone, and made again by somebody else: the listener itself is asked.
        _, user, _ = unpack("3i", connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12))
        if user not in (0, os.getuid()):
            raise PermissionError(f"{self._socket} is another user's")


def _start(command: str) -> None:
    """Start the server, which outlives this process."""
    import json
    import subprocess

    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = os.pathsep.join(path for path in paths if os.path.abspath(path) != _FOLDER)
    ours = (SOCKET, START, "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment["PYTHONSAFEPATH"] = "1"  # modules in the directory of the program are not for it
    # By a shell, which ends at once: the server is no child of the program, which may wait for all
    # that it has.
    subprocess.call(
        ["/bin/sh", "-c", '"$@" &', "sh", *json.loads(command)],
        env={**environment, **({"PYTHONPATH": rest} if rest else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def placed(text: str, lines: "list[int]", path: str = "<unknown>") -> "Any":
    """The syntax tree of a text, in which `lines` are the numbers of lines in the file. It imports
    the runtime by the name `RUNTIME`."""
    import ast

    tree = ast.parse(text, path)  # the name is for warnings
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("rewriter.runtime."):
            node.module = RUNTIME + (node.module or "").removeprefix("rewriter.runtime")
        if isinstance(node, (ast.stmt, ast.expr, ast.keyword, ast.arg, ast.excepthandler)):
            node.end_lineno = lines[(node.end_lineno or node.lineno) - 1]
            node.lineno = lines[node.lineno - 1]
            if node.lineno == node.end_lineno:  # lines of probes have one number
                node.end_col_offset = max(node.col_offset, node.end_col_offset or 0)
    return tree


def _act(act: "Callable[[ModuleType], None]", module: "ModuleType") -> None:
    """Exchange something in a module, which may be that of another release."""
    try:
        act(module)
    except _FAILURES as error:
        _say(f"{type(error).__name__}: {error}")


def _say(reason: str, path: str = "", folder: str = "") -> None:
    """Say that a wrapper, or all of this program, runs without probes, and note it for the command
    that started the program, in a folder that is ours."""
    try:
        sys.stderr.write(f"rewriter: {path or 'this program'} runs without probes: {reason}\n")
        if path and folder and os.lstat(folder).st_uid == os.getuid():
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(os.path.join(folder, PLAIN), flags, 0o600)
            try:
                os.write(descriptor, ascii({"path": path, "reason": reason}).encode() + b"\n")
            finally:
                os.close(descriptor)
    except (OSError, ValueError, AttributeError):
        return  # the command has ended, or standard error is closed


def _process_name() -> str:
    """What the program calls this process, where `multiprocessing` started it."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return ""
    return str(module.current_process().name)


def _load_package(name: str, folder: str) -> "ModuleType":
    import importlib.util

    folder = os.path.abspath(folder)
    file = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} cannot be imported")
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package


def _compare(module: "ModuleType") -> None:
    """Load the package beside this file, which compares calls with plain Python."""
    folder = os.path.join(_FOLDER, "against_eager")
    _load_package("_rewriter_against_eager", folder).begin(module, int(os.environ[EAGER]))


def _leave_stacks(folder: str) -> None:
    """Have SIGTERM, which ends what has hung, leave the stack of each thread first; then it does
    what it does in the program."""
    import faulthandler
    from signal import SIGTERM

    try:
        faulthandler.register(SIGTERM, file=_new_file(folder, STACK), chain=True)
    except OSError:
        return  # the command has ended


def _new_file(folder: str, ending: str) -> int:
    """A file of this process beside the socket. Raises `OSError` if the command has ended."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.open(os.path.join(folder, f"{os.getpid()}{ending}"), flags, 0o600)


def _leave_exception(folder: str) -> None:
    """At the end of this process, leave the exception that ended it. Python keeps one that nobody
    caught in `sys.last_value`; standard error also has those that the program printed itself."""
    is_new = "atexit" not in sys.modules
    import atexit

    def leave() -> None:
        error = getattr(sys, "last_value", None)
        text = ""
        if error is not None:
            import traceback

            lines = traceback.format_exception(type(error), error, error.__traceback__)
            text = "".join(lines)[-_LONGEST:]
        try:
            with open(_new_file(folder, RAISED), "w", encoding="utf-8", errors="replace") as stream:
                stream.write(text)
        except OSError:
            return  # the command has ended, or the disk is full

    atexit.register(leave)
    if is_new:
        del sys.modules["atexit"]  # the program sees the modules that it would have


def begin() -> None:
    """Wait for the compiler, and import the module that this file displaced."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    acts: dict[str, Callable[[ModuleType], None]] = {}
    if address := os.environ.get(SOCKET):
        hook = Hook(address)
        acts = {_TASKS: hook.tasks, _COMPILER: hook.compiler}
        # Dynamo skips what is from such a file (`SKIP_DIRS` in torch/_dynamo/trace_rules.py): in
        # eager code of a compiled function, it would trace the audit hook.
        for function in (Hook.note, Hook._keep):
            function.__code__ = function.__code__.replace(co_filename="<frozen importlib.rewriter>")
        sys.addaudithook(hook.note)
        folder = os.path.dirname(address)
        if not os.environ.get(START):  # nobody waits for its end
            _leave_exception(folder)
        if os.environ.get(STACKS):
            _leave_stacks(folder)
            os.register_at_fork(after_in_child=lambda: _leave_stacks(folder))
        if os.environ.get(EAGER):
            acts[_DYNAMO] = _compare
    for name in [name for name in acts if name in sys.modules]:
        _act(acts.pop(name), sys.modules[name])  # a process that was forked from another program
    if acts:
        sys.meta_path.insert(0, Waiting(acts))
    del sys.modules[NAME]
    # If there is none, the error tells Python so, as without this file.
    __import__(NAME)


if __name__ == NAME:
    begin()
