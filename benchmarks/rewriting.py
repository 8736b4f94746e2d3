"""What reading and rewriting a wrapper costs: CPU time and memory, each in a process of its own.

    python -m benchmarks.rewriting [--json FILE] [--check] [--launches 10000] [--large 100000]
                                   [--layers 24] [--only wrappers|packages] [--device cpu|cuda]
                                   [--before CHECKOUT]

The wrappers are generated: a recorded wrapper whose call has `--launches` (or `--large`) launches
of its kernel, or half as many kernels with a launch each. `--before` also measures another checkout
of this project, in turns with this one. The package is a GPT with `--layers` layers; 0 leaves it
out. For a GPU it is as wide as that of `benchmarks.probes`.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, options, report

ROOT = Path(__file__).parent.parent
# As installed: with bytecode, which the first command writes and the others find.
_ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
RECORDED = ROOT / "fixtures/artifacts/cuda-torch2.11/gpt/python/output_code.py"
SMALL = ROOT / "fixtures/artifacts/cpu-torch2.13/mlp/python/output_code.py"

_LAUNCH = """\
            buf{after} = empty_strided_cuda((32, 64), (64, 1), torch.float32)
            # Topologically Sorted Source Nodes: [linear_{after}], Original ATen: [aten.gelu]
            {kernel}.run(buf{before}, buf{after}, {size}, stream=stream0)
            del buf{before}
"""
_MEASURE = """
import resource, sys
def used():
    about = resource.getrusage(resource.RUSAGE_SELF)
    return about.ru_utime + about.ru_stime
path = sys.argv[1]
{before}
start = used()
{work}
print(used() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""
_PACKAGE = """
import sys
from dataclasses import replace
import torch
from benchmarks.models import SIZES, build
size = {"cpu": "cpu-small", "cuda": "cuda"}[sys.argv[3]]
model, x = build(replace(SIZES[size], layers=int(sys.argv[2])), sys.argv[3])
program = torch.export.export(model, (x,))
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
"""
# Compiles the unchanged wrapper of a package, in the way in which one with probes is compiled.
_COMPILE = """
import subprocess, sys, tempfile
from pathlib import Path
import rewriter
from rewriter.instrumentation.rebuild import build_steps, recipe, unpack
from rewriter.instrumentation.rebuild.machine import Machine
package = rewriter.open(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    (model,) = package.models
    library = unpack.library_of(package, model)
    chosen = recipe.choose(model, library, Machine.detect())
    job = build_steps.Job(chosen, model.source, library)
    (step,) = build_steps.compile_steps(job, Path(folder))
    subprocess.run(step.command, cwd=folder, check=True)
"""
_PAIRS = 3
_KERNEL = re.compile(
    r"^(?P<name>triton_poi\w+) = async_compile\.triton\(.*?^''', device_str='cuda'\)\n",
    re.MULTILINE | re.DOTALL,
)
_LIST = "from rewriter import cli; cli.main(['list', path])"


class Cost(NamedTuple):
    """CPU seconds of some work, and the peak memory of its process in MiB."""

    seconds: float
    memory: float


def write_wrapper(path: Path, launches: int, *, one_kernel: bool = True) -> None:
    """Write a Python wrapper in the form of torch 2.11, with this many launches in its call: of one
    kernel, or of as many kernels."""
    text = RECORDED.read_text("utf-8")
    start = text.index("            # Topologically Sorted", text.index("def call("))
    end = text.index("        return (", start)
    definition = _KERNEL.search(text)
    assert definition is not None
    kernel = definition["name"]
    kernels = [kernel if one_kernel else f"{kernel}{number}" for number in range(launches)]
    lines = ["            buf0 = arg0_1\n            stream0 = get_raw_stream(0)\n"]
    lines += [
        _LAUNCH.format(before=number, after=number + 1, kernel=name, size=2048 + number % 7)
        for number, name in enumerate(kernels)
    ]
    text = text[:start] + "".join(lines) + text[end:]
    if not one_kernel:
        copies = "\n".join(definition[0].replace(kernel, name) for name in kernels)
        text = text.replace(definition[0], copies)
    path.write_text(text, encoding="utf-8")


def cost(path: Path, work: str, before: str = "", root: Path = ROOT) -> Cost:
    """Run lines of Python in a new process, and measure `work`, which follows `before`."""
    program = _MEASURE.format(work=work, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        check=True,
        cwd=root,
        env=_ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seconds, memory = done.stderr.split()[-2:]
    return Cost(float(seconds), float(memory))


def rows(launches: int = 10_000, large: int = 100_000) -> list[Row]:
    """Measure wrappers. Rows with an absolute limit have that as their reference."""
    with tempfile.TemporaryDirectory(prefix="rewriter-bench-") as folder:
        wrapper, many = Path(folder) / "output_code.py", Path(folder) / "large.py"
        write_wrapper(wrapper, launches)
        write_wrapper(many, large)
        parsed = cost(wrapper, "libcst.parse_module(open(path, 'rb').read())", "import libcst")
        made = cost(wrapper, "rewriter.instrument(path)", "import rewriter")
        few, listed = cost(wrapper, _LIST), cost(many, _LIST)
    bare = min(cost(SMALL, "pass").seconds for _ in range(3))
    parser = min(cost(SMALL, "import libcst").seconds for _ in range(5))
    small = min(cost(SMALL, _LIST).seconds for _ in range(5)) - parser
    start = {
        name: min(cost(SMALL, work).seconds for _ in range(3)) - bare
        for name, work in {
            "rewriter --help": "from rewriter import cli; cli.main(['--help'])",
        }.items()
    }
    return [
        Row(f"instrument {launches:,}, against one parse", made.seconds, parsed.seconds, 1, "s"),
        Row("  its memory", made.memory, parsed.memory, 1, "MiB"),
        Row(f"list {large:,}, against the limit", listed.seconds, 30, 1, "s"),
        Row("  its memory", listed.memory, 1024, 1, "MiB"),
        Row(
            f"  of a launch, against {launches:,}",
            1e3 * listed.seconds / large,
            1e3 * few.seconds / launches,
            1.5,
        ),
        *(
            Row(f"{name}, against the limit", seconds, 0.25, 1, "s")
            for name, seconds in start.items()
        ),
        Row("list of a small file beside `import libcst`", small, 0.12, 1, "s"),
    ]


def rows_before(checkout: Path, launches: int = 10_000) -> list[Row]:
    """Measure this checkout against another one; the median of pairs counts, for the speed of a
    machine varies."""
    made = []
    work = {"list": _LIST, "instrument": "rewriter.instrument(path)"}
    with tempfile.TemporaryDirectory(prefix="rewriter-bench-") as folder:
        for what, count in {"launches of one kernel": launches, "kernels": launches // 2}.items():
            path = Path(folder) / f"{count}.py"
            write_wrapper(path, count, one_kernel=count == launches)
            for name, lines in work.items():
                pairs = [
                    [cost(path, lines, "import rewriter", root) for root in (ROOT, checkout)]
                    for _ in range(_PAIRS)
                ]
                now, then = sorted(pairs, key=lambda x: x[0].seconds / x[1].seconds)[_PAIRS // 2]
                title = f"{name} of {count:,} {what}, against {checkout.name}"
                made.append(Row(title, now.seconds, then.seconds, 0.6, "s"))
                made.append(Row("  its memory", now.memory, then.memory, 1, "MiB"))
    return made


class Spent(NamedTuple):
    """Seconds of a process: CPU time, child processes included, and wall time."""

    cpu: float
    wall: float


def spent(folder: Path, *arguments: str) -> Spent:
    """Run Python with `arguments`."""
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=ROOT,
        env={**_ENVIRONMENT, "REWRITER_CACHE_DIR": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(cpu, time.perf_counter() - start)


def package_rows(layers: int, device: str) -> list[Row]:
    """Measure patching a package: the first one on a machine, and later ones.

    The cache directory is empty at first, and nothing is kept for the next run. First patches and
    compiles of the plain wrapper take turns, and the median pair counts: the speed of
    a machine varies within minutes, of some by a factor of two.
    """
    with tempfile.TemporaryDirectory(prefix="rewriter-bench-") as name:
        folder = Path(name)
        small, large = folder / "small.pt2", folder / "large.pt2"
        with ThreadPoolExecutor() as pool:  # not measured
            makes = [(small, 1), (large, layers)]
            list(pool.map(lambda one: spent(folder, "-c", _PACKAGE, *map(str, one), device), makes))
        start = spent(folder, "-c", "import rewriter; rewriter.open", str(large))

        def patched(package: Path, *choice: str) -> Spent:
            output = folder / "out.pt2"
            output.unlink(missing_ok=True)  # which takes some time if it is large
            options = ["-o", str(output), *choice]
            return spent(folder, "-m", "rewriter", "instrument", str(package), *options)

        machine = patched(small)
        shutil.copytree(folder / "cache", folder / "cache-of-machine")
        pairs = []
        for _ in range(_PAIRS):
            shutil.rmtree(folder / "cache")
            shutil.copytree(folder / "cache-of-machine", folder / "cache")
            compiled = spent(folder, "-c", _COMPILE, str(large))
            bare = Spent(compiled.cpu - start.cpu, compiled.wall - start.wall)
            pairs.append((patched(large), bare))
        first, bare = sorted(pairs, key=lambda pair: pair[0].wall / pair[1].wall)[_PAIRS // 2]
        others = {
            "other probes": ("--probe", "hash"),
            "other launches": ("--launches", "0-20"),
            "other values": ("--when", "both", "--args", "all"),
        }
        second = {what: patched(large, *choice) for what, choice in others.items()}
        unchecked = patched(large, "--launches", "3-9", "--no-check")
    made: list[tuple[str, Spent, Spent, float | None]]
    made = [(f"first package on a machine (1 layer; {layers} here)", machine, bare, None)]
    made += [("first patch, against one compile", first, bare, 1.1)]
    limit = Spent(2, 2)
    made += [
        (f"second patch, {what}, against the limit", x, limit, 1) for what, x in second.items()
    ]
    made += [("  without the check", unchecked, limit, 1)]
    return [
        row
        for name, taken, against, target in made
        for row in (
            Row(f"{name}: CPU", taken.cpu, against.cpu, target, "s"),
            Row(f"{name}: wall", taken.wall, against.wall, target, "s"),
        )
    ]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--only", choices=("wrappers", "packages"))
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the package")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="measured beside this one")
    args = parser.parse_args()
    made: list[Row] = []
    if args.before is not None:
        made += rows_before(args.before.resolve(), args.launches)
    if args.only != "packages":
        made += rows(args.launches, args.large)
    if args.only != "wrappers" and args.layers:
        made += package_rows(args.layers, args.device)
    return report(made, args)


if __name__ == "__main__":
    sys.exit(main())
