"""What dormant probes cost a service, and that switching them on changes no request.

    python -m benchmarks.service [--device cuda] [--threads 8] [--json FILE] [--check]

There are three services: in Python with a wrapper, in Python with a package, and in C++ with a
package. Each has two copies of the artifact, plain and with dormant probes. Its threads call both
in turn, in random order, and compare all outputs bit by bit with the first ones of the plain copy.
Meanwhile `rewriter control` switches probes on for ten calls and one kernel, and then off.

The ratio is the median over pairs of calls, in CPU time of the thread, since the machine may be
shared. Its 95 % interval is printed with it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks import rows
from benchmarks.rows import Row
from benchmarks.service.model import COLUMNS, ROWS

ROOT = Path(__file__).resolve().parents[2]
FORMS = ("wrapper", "package", "cpp")
CALLS = 10
TARGET = 1.01


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--forms", default=",".join(FORMS), help="of wrapper, package, cpp")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a phase")
    parser.add_argument("--folder", type=Path, help="where what is made stays, and is found again")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="rewriter-service-") as temporary:
        folder = (args.folder or Path(temporary)).absolute()
        folder.mkdir(exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
        found, failed = [], False
        for form in args.forms.split(","):
            for more, is_right in _measure(form, folder, args):
                found.append(more)
                failed = failed or not is_right
        code = rows.report(found, args, device=args.device, threads=args.threads)
    return 3 if failed else code


def _measure(form: str, folder: Path, args: argparse.Namespace) -> list[tuple[Row, bool]]:
    plain, probed = _artifacts(form, folder, args.device)
    if form == "cpp":
        command = [str(service_in_cpp(folder)), plain, probed, args.threads, ROWS, COLUMNS]
    else:
        command = [sys.executable, "-m", "benchmarks.service.serve", form, plain, probed]
        command += [args.threads, args.device]
    control, dump = folder / f"{form}.ctl", folder / f"{form}.dump"
    for stale in (control, dump):
        subprocess.run(["rm", "-rf", str(stale), f"{stale}.d"], check=True)
    phases = serve([str(x) for x in command], control, dump, args.seconds)
    runs = list(dump.glob("rank0/run*"))
    kernels = {row["kernel"] for run in runs for row in _rows_of(run) if "launch" in row}
    changed = sum(phase["changed"] for phase in phases)
    is_right = not changed and len(runs) == CALLS and all("softmax" in x for x in kernels)
    requests = sum(phase["plain"] + phase["probed"] for phase in phases)
    sys.stderr.write(
        f"{form}: {requests:,} requests, {changed} changed, {len(runs)} calls recorded, "
        f"of {', '.join(sorted(kernels)) or 'no kernel'}\n"
    )
    result = []
    for phase in phases:
        result += [(row, is_right) for row in _figures(form, phase)]
    return result


def _rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def _figures(form: str, phase: dict[str, Any]) -> list[Row]:
    """The rows of one phase: CPU time of a request, and the median and 99th percentile of its
    latency."""
    name, pairs = f"{form}: {phase['phase']}", phase["pairs"]
    ratios = sorted(probed / plain for _, _, plain, probed in pairs)
    middle, around = len(ratios) // 2, int(0.98 * len(ratios) ** 0.5)
    ends = ratios[max(0, middle - around)], ratios[min(len(ratios) - 1, middle + around)]
    plain_cpu = statistics.median(pair[2] for pair in pairs) / 1000
    cpu = Row(
        f"{name}, CPU time ({ends[0]:.4f} to {ends[1]:.4f})",
        plain_cpu * ratios[middle],
        plain_cpu,
        TARGET if phase["phase"] == "dormant" else None,
        "us",
    )
    latencies = [sorted(pair[i] / 1000 for pair in pairs) for i in (1, 0)]
    median = [x[len(x) // 2] for x in latencies]
    slow = [x[len(x) * 99 // 100] for x in latencies]
    return [
        cpu,
        Row(f"{name}, latency, median", *median, None, "us"),
        Row(f"{name}, latency, p99", *slow, None, "us"),
    ]


def serve(
    command: Sequence[str], control: Path, dump: Path, seconds: float
) -> list[dict[str, Any]]:
    """Run a service through its phases. Returns the figures that it prints for each."""
    environment = {**os.environ, "REWRITER_CONTROL": str(control)}
    service = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    assert service.stdin is not None
    assert service.stdout is not None
    while (line := service.stdout.readline()) != "ready\n":
        if not line:
            raise SystemExit(f"the service ended with {service.wait()}")
    _begin(service.stdin, "dormant")
    time.sleep(seconds)
    _begin(service.stdin, "ten calls recorded")
    _rewriter("control", str(control), "set", "hash", "--kernels", "*softmax*", "--quiet",
              "--calls", str(CALLS), "-d", str(dump))  # fmt: skip
    end = time.monotonic() + 120
    while not _is_done(control):
        if time.monotonic() > end or service.poll() is not None:
            raise SystemExit("the service recorded no ten calls")
        time.sleep(0.2)
    _begin(service.stdin, "off")
    _rewriter("control", str(control), "off")
    time.sleep(seconds)
    printed, _ = service.communicate("end\n")
    if service.returncode:
        raise SystemExit(f"the service ended with {service.returncode}")
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def _begin(stream: IO[str], phase: str) -> None:
    stream.write(phase + "\n")
    stream.flush()


def _is_done(control: Path) -> bool:
    command = [sys.executable, "-m", "rewriter", "control", str(control), "show", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return any(
        one["is_current"] and not one["on"] and one["recorded"] == CALLS
        for one in json.loads(shown.stdout)["wrappers"]
    )


def _rewriter(*words: str) -> None:
    command = [sys.executable, "-m", "rewriter", *words]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _artifacts(form: str, folder: Path, device: str) -> tuple[Path, Path]:
    """The paths of the plain and the probed artifact, which are made if they are missing."""
    suffix = ".py" if form == "wrapper" else ".pt2"
    plain, probed = folder / f"plain{suffix}", folder / f"dormant{suffix}"
    if not plain.exists():
        # In a separate process, so that the service does not hold what torch keeps of compiling.
        command = [sys.executable, "-m", "benchmarks.service.compile", str(plain), device]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    if not probed.exists():
        _rewriter("instrument", str(plain), "--dormant", "-o", str(probed))
    return plain, probed


def service_in_cpp(folder: Path) -> Path:
    """Build the C++ service with the libraries of the installed torch. Returns its path."""
    import torch
    from torch.utils.cpp_extension import include_paths

    program = folder / "service"
    if not program.exists():
        library = Path(torch.__file__).parent / "lib"
        abi = int(torch.compiled_with_cxx11_abi())
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-pthread"]
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *(f"-I{x}" for x in include_paths())]
        command += [str(Path(__file__).with_name("service.cpp")), "-o", str(program)]
        command += [f"-L{library}", f"-Wl,-rpath,{library}", "-ltorch", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True)
    return program


if __name__ == "__main__":
    sys.exit(main())
