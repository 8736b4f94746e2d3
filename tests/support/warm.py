"""A Python that has imported torch already, for tests of what programs do, not of how they start.

`Warm.executable` is a program that takes what `python -c PROGRAM …`, `python FILE …` and `python -`
take. It hands its command line, environment, directory and open files to a server, which forks: the
program runs in a process of its own, in a session of its own, with torch and Inductor imported and
nothing done with them but to find the header that kernels are compiled with. It may compile a
model: of Inductor's settings, those that its environment decides are the server's.
The executable ends as the program does, by the same signal if it was one, hands signals on, and
takes the program with it when it is killed.

`-m rewriter …` is a fork of another server, which has imported what the commands need, and no
torch; its children are programs of the first one.

The servers are those of all workers of a run: the first that needs them starts them, and they end
with the last one.

A request that a fork could not do as a new process would is a new process: another command line,
another environment where it is read at import, or another `rewriter` that would be found first.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

# Variables that are read when Python starts or when torch is imported.
_READ_AT_START = ("PYTHON", "TORCH", "AOT", "OMP", "MKL", "KMP", "LD_", "CUDA", "ATEN", "GOMP")
# Torch minds the first two where it compiles a model with C++ wrappers, which no program here does;
# the rewriter does, too. The others are minded whenever they are needed, or by `_begin`.
_NOT_READ = (
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
    "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT",
    "CUDA_LAUNCH_BLOCKING",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",
    "TORCHINDUCTOR_VEC_ISA_OK",
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE",
    "TORCHINDUCTOR_REDIS_URL",
    "TORCH_TRACE",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
)
_IMPORTED = (
    "torch._inductor.async_compile",
    "torch._inductor.select_algorithm",
    "torch._inductor.compile_fx",
)
# Modules of the rewriter that commands import, less those that import torch.
_OF_COMMANDS = (
    *(f"{room}/**/*.py" for room in ("core", "locate", "dump", "artifact", "instrumentation")),
    *(
        "execution/*.py",
        "execution/hook/cache/*.py",
        "execution/hook/*.py",
        "commands/[a-z]*.py",
        "commands/_documents/*.py",
    ),
    *("commands/_cache.py", "commands/_program.py", "commands/_run.py"),
)
_ROOT = Path(__file__).resolve().parents[2]
# In the place of the length of a request, which follows then.
_LIFELINE = bytes(8)

_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys

SOCKET, PYTHON, SURE, FIRST, NOT = {socket!r}, {python!r}, {sure!r}, {first!r}, {others!r}
environment = dict(os.environ)
decisive = {{k: v for k, v in environment.items() if k.startswith(FIRST) and k not in NOT}}
if sys.argv[1:3] == ["-m", "rewriter"]:
    folders = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    there = [os.path.realpath(x) for x in folders if os.path.exists(os.path.join(x, "rewriter"))]
    of_python = [{{k: v for k, v in e.items() if k.startswith("PYTHON")}} for e in (decisive, SURE)]
    if set(there) - {{ {root!r} }} or of_python[0] != of_python[1]:
        os.execv(PYTHON, [PYTHON, "-c", {module!r}, __file__, *sys.argv[2:]])
    SOCKET += ".commands"
elif not sys.argv[1:] or sys.argv[1][:1] == "-" and sys.argv[1] not in "-c" or decisive != SURE:
    os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect(SOCKET)
program, early = 0, []

def hand_on(number, _):
    os.kill(program, number) if program else early.append(number)

interrupts = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, hand_on)
# With what a parent passed on, such as the pipes of multiprocessing.
opened = [int(name) for name in os.listdir("/proc/self/fd") if int(name) != server.fileno()]
opened = [number for number in opened if os.path.exists(f"/proc/self/fd/{{number}}")]
request = [sys.argv[1:], os.getcwd(), environment, interrupts, __file__, opened]
request = json.dumps(request).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], opened)
server.sendall(request)
answers = server.makefile()
program = int(answers.readline())
for number in early:
    os.kill(program, number)
for descriptor in (0, 1):
    os.close(descriptor)
code = int(answers.readline())
if code < 0:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


_MODULE = """
import runpy, sys
sys.executable, name = sys.argv[1:3]
del sys.argv[1:3]
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


def _decisive(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name not in _NOT_READ
    }


class Warm:
    """Servers of a folder, each in a process of its own, and the executable that asks them.

    Those that are there are taken, whoever started them.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        environment = dict(os.environ)
        path = folder / "socket"
        client = _CLIENT.format(
            python=sys.executable,
            socket=str(path),
            sure=_decisive(environment),
            first=_READ_AT_START,
            others=_NOT_READ,
            module=_MODULE,
            root=str(_ROOT),
        )
        executable = folder / "python"
        self.executable = str(executable)
        self._lifelines = []
        self._servers: list[subprocess.Popen[bytes]] = []  # nobody waits for them
        with _locked(folder):
            new = folder / "python.new"
            new.write_text(client)
            new.chmod(stat.S_IRWXU)
            new.replace(executable)
            for one in (path, path.with_suffix(".commands")):
                lifeline = socket.socket(socket.AF_UNIX)
                try:
                    lifeline.connect(str(one))
                except (FileNotFoundError, ConnectionRefusedError):
                    self._start(one, environment)
                    lifeline.connect(str(one))
                lifeline.sendall(_LIFELINE)
                self._lifelines.append(lifeline)

    def _start(self, path: Path, environment: dict[str, str]) -> None:
        """Start a server; it is asked at once, and answers when it has imported everything."""
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            server = subprocess.Popen(
                [sys.executable, __file__, str(path), str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                env=environment,
                cwd=path.parent,
            )
        self._servers.append(server)

    def close(self) -> None:
        """Need the servers no more: they end with the last lifeline."""
        for lifeline in self._lifelines:
            lifeline.close()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


Program = Callable[[dict[str, Any]], None]


def _serve(path: str, listener: socket.socket) -> Program:
    """Fork for each request; in the forked process, return its program."""
    if path.endswith(".commands"):
        _import_commands()
    else:
        for name in _IMPORTED:
            importlib.import_module(name)
        if os.environ.get("TORCHINDUCTOR_VEC_ISA_OK") == "1":
            _find_header()
    gc.collect()
    gc.freeze()  # what is shared with all programs is not copied by looking at it
    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    programs: dict[int, socket.socket] = {}
    lifelines: list[socket.socket] = []
    try:
        while True:
            ready, _, _ = select.select([listener, waker, *programs.values(), *lifelines], [], [])
            if waker in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(waker, 4096)
            for process, client in list(programs.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    with contextlib.suppress(OSError):
                        client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                elif client in ready:
                    # It says nothing more: who asked is gone.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                else:
                    continue
                client.close()
                del programs[process]
            for lifeline in set(lifelines).intersection(ready):
                lifeline.close()
                lifelines.remove(lifeline)
            if listener in ready:
                client = listener.accept()[0]
                header, descriptors, _, _ = socket.recv_fds(client, 8, 64)
                if header in (_LIFELINE, b""):  # which is over at once
                    lifelines.append(client)
                    continue
                request = json.loads(client.makefile("rb").read(int.from_bytes(header, "big")))
                process = os.fork()
                if not process:
                    program = _begin(client, request, descriptors)
                    for one in (listener, client, *programs.values(), *lifelines):
                        one.detach()  # its number is closed, or the program's
                    return program
                for descriptor in descriptors:
                    os.close(descriptor)
                programs[process] = client
            elif not lifelines:
                with _locked(Path(path).parent):
                    # Nobody comes meanwhile.
                    if listener not in select.select([listener], [], [], 0)[0]:
                        os.unlink(path)
                        if not list(Path(path).parent.glob("socket*")):
                            shutil.rmtree(Path(path).parent)
                        sys.exit()
    finally:
        if os.getpid() == _SERVER:
            for process in programs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)


def _import_commands() -> None:
    """What a command of the rewriter imports and reads before it does anything."""
    sys.path.insert(1, str(_ROOT))
    for pattern in _OF_COMMANDS:
        for file in (_ROOT / "rewriter").glob(pattern):
            importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))
    del sys.path[1]
    importlib.import_module("rewriter.locate.cpp.grammar").load()
    importlib.import_module("rewriter.locate.python.grammar").load()
    assert "torch" not in sys.modules


def _find_header() -> None:
    """Have torch find the precompiled header of kernels, which it keeps for a process.

    Whoever loads a kernel runs the preprocessor over all of ATen to know its name.
    """
    codecache: Any = sys.modules["torch._inductor.codecache"]
    if hasattr(codecache, "_precompile_header"):
        path = list(sys.path)
        codecache.CppPythonBindingsCodeCache.load_async("", submit_fn=lambda _: None)
        sys.path[:] = path  # setuptools, which torch imports for it, adds to it


def _begin(client: socket.socket, request: list[Any], descriptors: list[int]) -> Program:
    """Become the process that was asked for, and return its program."""
    os.setsid()
    arguments, directory, environment, ignored, executable, numbers = request
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    client.sendall(b"%d\n" % os.getpid())
    # First beyond all numbers that they are to have.
    moved = [fcntl.fcntl(one, fcntl.F_DUPFD, max(numbers) + 1) for one in descriptors]
    os.closerange(3, min(moved))
    for number, descriptor in zip(numbers, moved, strict=True):
        os.dup2(descriptor, number)
    os.closerange(max(3, max(numbers) + 1), 4096)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _reopen(number, name, is_prompt=bool(environment.get("PYTHONUNBUFFERED")))
    os.chdir(directory)
    folders = _folders(environment)
    sys.path[1 : 1 + len(_folders(os.environ))] = folders
    own = folders != _folders(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it may be another one in this environment
    if arguments[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.executable = executable
        sys.argv[:] = arguments[1:]
        return lambda _: runpy.run_module("rewriter", run_name="__main__", alter_sys=True)
    is_file = arguments[0] not in ("-c", "-")
    sys.path[0] = str(Path(arguments[0]).resolve().parent) if is_file else ""
    _read_again(environment)
    if own:
        # As `site` does, which the server has done for its own path.
        with contextlib.suppress(ImportError):
            importlib.import_module("sitecustomize")
    text = arguments.pop(1) if arguments[0] == "-c" else None
    sys.argv[:] = arguments
    if not is_file:
        program = sys.stdin.read() if text is None else text
        return lambda names: exec(compile(program, "<string>", "exec"), names)
    return functools.partial(_run_file, os.path.abspath(arguments[0]))


def _read_again(environment: Mapping[str, str]) -> None:
    """Have torch read what it read when it was imported, of what may be another one now."""
    config: Any = sys.modules["torch._inductor.config"]
    functions: Any = sys.modules["torch._functorch.config"]
    config.cpp_cache_precompile_headers = (
        environment.get("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "1") == "1"
    )
    works = config.get_tristate_env("TORCHINDUCTOR_VEC_ISA_OK")
    if works != config.cpp.vec_isa_ok:
        config.cpp.vec_isa_ok = works
        sys.modules["torch._inductor.cpu_vec_isa"].valid_vec_isa_list.cache_clear()
    config.fx_graph_remote_cache = config.fx_graph_remote_cache_default()
    functions.enable_remote_autograd_cache = functions.remote_autograd_cache_default()
    if environment.get("TORCH_TRACE"):
        logs: Any = sys.modules["torch._logging._internal"]
        logs.LOG_TRACE_HANDLER = None  # the next one writes to the directory of this environment
        logs._init_logs()


def _folders(environment: Mapping[str, str]) -> list[str]:
    """What an environment adds to the search path."""
    text = environment.get("PYTHONPATH", "")
    return list(map(os.path.abspath, text.split(os.pathsep))) if text else []


def _run_file(path: str, names: dict[str, Any]) -> None:
    names["__file__"] = path
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        text = f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        print(text, file=sys.stderr)
        raise SystemExit(2) from None
    exec(compile(source, path, "exec"), names)


def _reopen(number: int, name: str, is_prompt: bool) -> None:
    """The standard streams as Python opens them."""
    line = name == "stderr" or os.isatty(number) or is_prompt
    stream: Any = open(  # noqa: SIM115
        number,
        "r" if name == "stdin" else "w",
        buffering=1 if line and name != "stdin" else -1,
        encoding="utf-8",
        errors="backslashreplace" if name == "stderr" else "strict",
        closefd=False,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _run(program: Program) -> int:
    """Run a program and all that it leaves for its end; its exit code.

    The modules of torch are not taken apart one by one, which takes as long as importing them.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    code = 0
    try:
        program(main.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        sys.last_value = error  # as Python does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120  # as Python's own end
    return code


if __name__ == "__main__":
    _SERVER = os.getpid()
    _program = _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
    os._exit(_run(_program))
