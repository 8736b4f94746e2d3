"""What probes cost a model while it runs: forward passes with them against forward passes without.

Each form of the model (a Python wrapper, a C++ wrapper compiled just in time, an AOTInductor
package) is compiled once in a separate process. Its wrapper is instrumented with each selection of
probes and replaces the plain wrapper, so that everything around it stays the same.

The speed of a host changes from second to second, so plain and probed passes take turns, a few at a
time; the ratio is the median over neighbouring turns. PyTorch's own printer has to be compiled in,
and so runs in a process without turns. Processes run one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import rows
from benchmarks.models import SIZES, build
from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parent.parent
FORMS = ("python", "jit", "aoti")
UPSTREAM = {"1": "save", "2": "print", "3": "names"}
TURNS = 11
_LEVEL = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"


@dataclass(frozen=True)
class Variant:
    """A selection of probes to measure."""

    name: str
    options: tuple[str, ...]  # of `rewriter instrument`
    targets: tuple[float, float, float]  # the highest ratios allowed on a GPU, in order of FORMS
    on_cpu: float | None = None  # the highest ratio allowed on the CPU
    dumps: bool = False  # write a dump, to /dev/shm
    pipes: bool = False  # standard output is a pipe instead of /dev/null
    passes: int = 10  # forward passes per turn


VARIANTS = (
    Variant("dormant", ("--dormant",), (1.01, 1.01, 1.01), 1.01),
    Variant("names", ("--probe", "names"), (1.1, 1.05, 1.05)),
    Variant("what `run -- COMMAND` does", ("--probe", "names,print"), (1.5, 1.5, 1.5), dumps=True),
    Variant(
        "statistics and fingerprint into the dump, quiet",
        ("--probe", "hash"),
        (1.4, 1.35, 1.35),
        1.25,
        dumps=True,
    ),
    Variant("record, in its ring", ("--probe", "record"), (1.4, 1.4, 1.4), 1.3, dumps=True),
    Variant(
        "record with all triggers",
        ("--on", "nan,inf,changed,spike:100x,slow:100x"),
        (1.5, 1.4, 1.4),
        1.3,
        dumps=True,
    ),
    Variant("nan into the dump", ("--probe", "nan"), (1.5, 1.3, 1.3), 1.5, dumps=True),
    Variant("print", ("--probe", "print"), (1.45, 1.4, 1.4), 1.3, pipes=True),
    Variant("print, all arguments", ("--probe", "print", "--args", "all"), (4, 3, 3), pipes=True),
    Variant("memory: bounds, poison, stale", ("--probe", "bounds,poison,stale"), (2, 2, 2), 2),
    Variant(
        "memory, with fingerprints of both ends of values: as sanitize runs it",
        ("--probe", "bounds,poison,stale,hash", "--args", "ends"),
        (2, 2, 2),
        2,
        dumps=True,
    ),
    Variant("save", ("--probe", "save"), (60, 60, 60), dumps=True, passes=1),
)


@dataclass(frozen=True)
class Timing:
    """The pair of a probed and a plain turn with the median ratio. Times are in milliseconds."""

    name: str
    mean: float  # of a probed forward pass
    plain: float  # of a plain forward pass
    low: float = 1.0  # the lowest ratio of a pair
    high: float = 1.0  # the highest ratio of a pair
    first: float = 1.0  # the ratio of the first pair, right after the wrapper was loaded
    memory: float = 0.0  # device memory used in addition, without torch's allocator, MiB
    peak: float = 0.0  # the most memory of torch's allocator in these passes, MiB
    cpu: float = 0.0  # CPU time of the thread, in a probed forward pass
    cpu_plain: float = 0.0


# The parent: starts the workers, collects what they measured.


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--size", choices=sorted(SIZES), help="default: that of the device")
    parser.add_argument("--forms", default=",".join(FORMS), help="of python, jit, aoti")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="variants with one in their name"
    )
    parser.add_argument("--no-upstream", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.device is None:
        import torch

        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    args.size = args.size or args.device
    if args.worker:
        return _work(args)
    with tempfile.TemporaryDirectory(prefix="rewriter-benchmark-") as folder:
        return _collect(args, Path(folder))


def _collect(args: argparse.Namespace, folder: Path) -> int:
    workers = [form for form in args.forms.split(",") if form]
    if not args.no_upstream:
        workers += [f"{form}-{level}" for form in workers if form != "jit" for level in UPSTREAM]
    found: list[Row] = []
    plain: dict[str, float] = {}
    failed = False
    for name in workers:
        code = _start(name, args, folder)
        result = folder / f"{name}.json"
        if code or not result.exists():
            failed = True
            sys.stderr.write(f"--- {name} failed ({code})\n")
            continue
        found += _rows(name, json.loads(result.read_text()), args.device, plain)
    code = rows.report(found, args, device=_device(args.device), model=str(SIZES[args.size]))
    return 3 if failed else code


def _start(name: str, args: argparse.Namespace, folder: Path) -> int:
    """Run a worker, which writes what it measured into `folder`. Returns its exit code."""
    command = [sys.executable, "-m", "benchmarks.probes", "--worker", name]
    command += ["--folder", str(folder), "--device", args.device, "--size", args.size]
    command += ["--only", *args.only]
    form, _, level = name.partition("-")
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{form}-{level}")}
    if level:
        environment[_LEVEL] = level
    nothing = subprocess.DEVNULL
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=nothing, stdout=nothing, check=False
    )
    return done.returncode


def _rows(
    name: str, measured: list[dict[str, Any]], device: str, plain: dict[str, float]
) -> list[Row]:
    form, _, level = name.partition("-")
    result = []
    for timing in (Timing(**row) for row in measured):
        if level:
            # With upstream's printer there is no plain wrapper: take that of the other process.
            reference = plain.get(form, float("nan"))
            result.append(Row(f"{form}: upstream, {UPSTREAM[level]}", timing.mean, reference))
            continue
        plain.setdefault(form, timing.plain)
        target = _target(timing.name, form, device)
        result.append(Row(f"{form}: {timing.name}", timing.mean, timing.plain, target))
        if device == "cuda" and timing.name != "plain":
            about = f"{form}: {timing.name}: device memory in addition, of 64 MiB"
            result.append(Row(about, max(timing.memory, 0.0), 64.0, 1.0, "MiB"))
        if device == "cuda" and timing.name.startswith("memory"):
            about = f"{form}: {timing.name}: most device memory"
            most = timing.peak + max(timing.memory, 0.0)
            result.append(Row(about, most, measured[0]["peak"], 1.5, "MiB"))
    return result


def _target(name: str, form: str, device: str) -> float | None:
    for variant in VARIANTS:
        if variant.name == name:
            return variant.targets[FORMS.index(form)] if device == "cuda" else variant.on_cpu
    return None


def _device(kind: str) -> str:
    import torch

    return torch.cuda.get_device_name() if kind == "cuda" else f"{os.cpu_count()} cores"


# A worker: compiles one form of the model and times it.


def _work(args: argparse.Namespace) -> int:
    import torch

    form, _, level = args.worker.partition("-")
    folder: Path = args.folder / args.worker
    folder.mkdir()
    os.chdir(folder)  # PyTorch's printer saves tensors below the working directory
    model, x = build(SIZES[args.size], args.device)
    with torch.no_grad():
        subject = _SUBJECTS[form](model, x, folder)
        subject.run()
        chosen = [v for v in VARIANTS if any(text in v.name for text in args.only)]
        variants = [] if level else chosen
        made = subject.prepare(variants, folder)
        timings = []
        for timing in _measure(subject, made, args.device, folder, UPSTREAM.get(level, "")):
            timings.append(timing)
            about = (
                f"{timing.mean:.3f} ms, plain {timing.plain:.3f}, "
                f"ratio {timing.mean / timing.plain:.3f} ({timing.low:.3f} to "
                f"{timing.high:.3f}, when loaded {timing.first:.3f}), "
                f"CPU {timing.cpu:.3f}, plain {timing.cpu_plain:.3f}"
            )
            sys.stderr.write(f"{args.worker}: {timing.name}: {about}\n")
    result = args.folder / f"{args.worker}.json"
    result.write_text(json.dumps([asdict(timing) for timing in timings]), encoding="utf-8")
    sys.stdout.flush()
    return 0


def _measure(
    subject: Subject, made: list[tuple[Variant, Path]], device: str, folder: Path, level: str
) -> Iterator[Timing]:
    if level:
        passes = 3 if level == "save" else 20
        with _output(piped=level == "print"):
            _turn(subject.run, device, min(3, passes))
            mean, cpu = _turn(subject.run, device, passes)
        yield Timing(f"upstream, {level}", mean, float("nan"), cpu=cpu)
        return
    # Load the plain wrapper once more, so that the first probed one does not pay for loading.
    plain = subject.load(subject.wrapper())
    subject.use(plain)
    with _output(piped=False):
        _turn(subject.run, device, 60)
        _forget_peak(device)
        mean, cpu = _turn(subject.run, device, 60)
        peak = _peak(device)
        # Loading a package takes device memory that torch's allocator does not count.
        in_use = _in_use(device)
        subject.use(beside := subject.load(subject.wrapper()))
        subject.run()
        of_itself = _in_use(device) - in_use
        subject.use(plain)
        del beside
    yield Timing("plain", mean, mean, peak=peak, cpu=cpu, cpu_plain=cpu)
    for variant, path in made:
        with _environment(variant, folder), _output(piped=variant.pipes):
            in_use = _in_use(device)
            subject.use(probed := subject.load(path))
            subject.run()
            memory = _in_use(device) - in_use - of_itself
            yield _take_turns(subject, plain, probed, variant, device, memory)
            subject.use(plain)
            del probed
        shutil.rmtree(_dump(folder), ignore_errors=True)


def _take_turns(
    subject: Subject, plain: object, probed: object, variant: Variant, device: str, memory: float
) -> Timing:
    """Time probed passes and plain ones, `TURNS` times each, one after the other."""
    pairs: list[tuple[float, float, float, float]] = []
    peak = 0.0
    started = time.perf_counter()
    for number in range(TURNS + 1):
        taken = {}
        # Alternate who comes first: the other's writing may still go on.
        for which in (probed, plain) if number % 2 else (plain, probed):
            subject.use(which)
            if number and variant.passes > 1:
                _turn(subject.run, device, 2)
            _forget_peak(device)
            taken[which is probed] = _turn(subject.run, device, variant.passes)
            if which is probed:
                peak = max(peak, _peak(device))
        pairs.append((*taken[True], *taken[False]))
        if len(pairs) > 3 and time.perf_counter() - started > 8:
            break
    ratios = [mean / plain for mean, _, plain, _ in pairs]
    later = sorted(range(1, len(pairs)), key=ratios.__getitem__)
    mean, cpu, reference, cpu_plain = pairs[later[len(later) // 2]]
    low, high = ratios[later[0]], ratios[later[-1]]
    return Timing(variant.name, mean, reference, low, high, ratios[0], memory, peak, cpu, cpu_plain)


def _turn(run: Callable[[], object], device: str, passes: int) -> tuple[float, float]:
    """Mean milliseconds per forward pass: wall time, and CPU time of this thread.

    The device is idle before and after each pass; CPU time includes waiting for it.
    """
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    taken = []
    cpu = time.thread_time()
    for _ in range(passes):
        start = time.perf_counter()
        run()
        wait()
        taken.append((time.perf_counter() - start) * 1000)
    cpu = (time.thread_time() - cpu) * 1000 / passes
    return statistics.fmean(taken), cpu


class Subject:
    """One form of the model. `run` is a forward pass with the wrapper that is in use."""

    def run(self) -> None:
        raise NotImplementedError

    def wrapper(self) -> Path:
        """The path of the artifact to instrument."""
        raise NotImplementedError

    def load(self, path: Path) -> object:
        """Load a wrapper. Returns the argument for `use`."""
        raise NotImplementedError

    def use(self, loaded: Any) -> None:
        """Let `run` use a loaded wrapper from now on."""
        raise NotImplementedError

    def prepare(self, variants: Sequence[Variant], folder: Path) -> list[tuple[Variant, Path]]:
        """Instrument the wrapper with each selection, in parallel. Returns the paths."""
        source = self.wrapper()
        made, running = [], []
        for number, variant in enumerate(variants):
            path = folder / f"variant{number}{source.suffix}"
            command = [sys.executable, "-m", "rewriter", "instrument", str(source), "-o", str(path)]
            running.append(subprocess.Popen([*command, *variant.options, "--overwrite"], cwd=ROOT))
            made.append((variant, path))
        for process in running:
            if process.wait():
                raise SystemExit(f"rewriter instrument ended with {process.returncode}")
        self._warm_all([path for _, path in made])
        return made

    def _warm_all(self, paths: Sequence[Path]) -> None:
        """Compile instrumented wrappers ahead, if that is needed."""


class Jit(Subject):
    """A wrapper that `torch.compile` made: Python, or C++ inside Python."""

    cpp = False

    def __init__(self, model: Any, x: Any, folder: Path) -> None:
        import torch
        from torch._inductor import config
        from torch._inductor.codecache import PyCodeCache

        self._x = x
        with config.patch(cpp_wrapper=self.cpp):
            self._compiled = torch.compile(model)
            self._compiled(x)
        self._graph = _compiled_graph()
        modules = [module for module in PyCodeCache.modules if hasattr(module, "call")]
        self._wrapper = Path(str(modules[-1].__file__))

    def run(self) -> None:
        self._compiled(self._x)

    def wrapper(self) -> Path:
        return self._wrapper

    def load(self, path: Path) -> object:
        return _import(path).call

    def use(self, loaded: Any) -> None:
        self._graph.current_callable = loaded


class CppJit(Jit):
    cpp = True

    def _warm_all(self, paths: Sequence[Path]) -> None:
        # Importing compiles the C++; Inductor finds it again by content.
        program = "import sys; from benchmarks.probes import _import; from pathlib import Path; "
        command = [sys.executable, "-c", program + "_import(Path(sys.argv[1]))"]
        running = [subprocess.Popen([*command, str(path)], cwd=ROOT) for path in paths]
        for process in running:
            process.wait()


class Package(Subject):
    """An AOTInductor package."""

    def __init__(self, model: Any, x: Any, folder: Path) -> None:
        import torch

        exported = torch.export.export(model, (x,))
        self._path = folder / "model.pt2"
        torch._inductor.aoti_compile_and_package(exported, package_path=str(self._path))
        self._x = x
        self._loaded = torch._inductor.aoti_load_package(str(self._path))

    def run(self) -> None:
        self._loaded(self._x)

    def wrapper(self) -> Path:
        return self._path

    def load(self, path: Path) -> object:
        import torch

        return torch._inductor.aoti_load_package(str(path))

    def use(self, loaded: Any) -> None:
        self._loaded = loaded


_SUBJECTS = {"python": Jit, "jit": CppJit, "aoti": Package}


def _compiled_graph() -> Any:
    """The compiled graph of this process. Exits if there is not exactly one."""
    import gc

    from torch._inductor.output_code import CompiledFxGraph

    # Not by `isinstance`: that fails for a weak proxy whose object is gone.
    graphs = [x for x in gc.get_objects() if type(x) is CompiledFxGraph]
    graphs = [x for x in graphs if x.current_callable is not None]
    if len(graphs) != 1:
        raise SystemExit(f"{len(graphs)} compiled graphs, expected one")
    return graphs[0]


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _in_use(device: str) -> float:
    """MiB of device memory in use, without what PyTorch's allocator holds."""
    if device != "cuda":
        return 0.0
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / 2**20


def _forget_peak(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> float:
    """MiB that PyTorch's allocator had handed out at most since `_forget_peak`."""
    if device != "cuda":
        return 0.0
    import torch

    return torch.cuda.max_memory_allocated() / 2**20


def _dump(folder: Path) -> Path:
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else folder) / f"rewriter-benchmark-{os.getpid()}"


@contextlib.contextmanager
def _environment(variant: Variant, folder: Path) -> Iterator[None]:
    """Set the environment variables for a variant."""
    wanted = {"REWRITER_DUMP": str(_dump(folder)), "REWRITER_QUIET": "1"} if variant.dumps else {}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]


@contextlib.contextmanager
def _output(*, piped: bool) -> Iterator[None]:
    """Redirect standard output to a pipe that another process reads, or to `/dev/null`."""
    sys.stdout.flush()
    kept = os.dup(1)
    reader = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, close_fds=True
    )
    assert reader.stdin is not None
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(reader.stdin.fileno() if piped else null, 1)
    os.close(null)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        reader.stdin.close()
        reader.wait()


if __name__ == "__main__":
    sys.exit(main())
