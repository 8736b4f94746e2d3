"""The measuring engine against torch.sum and a copy: GB/s by dtype, µs of small tensors.

python benchmarks/engine.py [--device cuda] [--json FILE]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from recorders import recorder_of
from rows import Row, options, report

from rewriter.runtime.extension import finish_writing

DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "int8", "bool")
DTYPES = (*DTYPES, "float8_e4m3fn", "float8_e5m2", "complex64")
# Weights of linear layers, (K, N) with strides (1, K).
TRANSPOSED = [
    *(("bfloat16", k, n) for k, n in [(1024, 1024), (1024, 3072), (1024, 4096), (4096, 1024)]),
    ("float16", 4096, 1024),
    ("float32", 1024, 2048),
]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bytes", type=int, default=0, help="of the large tensors")
    args = parser.parse_args()
    facts = {"torch": torch.__version__, "device": args.device}
    if args.device == "cpu":
        rows = on_cpu(args.bytes or 256 << 20)
        facts["threads"] = torch.get_num_threads()
    else:
        facts["name"] = torch.cuda.get_device_name()
        rows = on_gpu(args.bytes or 1 << 30, facts)
    return report(rows, args, **facts)


def make(dtype: str, size: int, device: str) -> torch.Tensor:
    kind = getattr(torch, dtype)
    count = size // kind.itemsize
    if kind.is_complex:
        return torch.randn(count, dtype=kind, device=device)
    if kind.is_floating_point and kind.itemsize > 1:
        return torch.randn(count, device=device, dtype=torch.float32).to(kind)
    if kind.is_floating_point:
        return torch.randn(count, device=device, dtype=torch.bfloat16).to(kind)
    high = 2 if kind == torch.bool else 100
    return torch.randint(0, high, (count,), device=device, dtype=torch.uint8).to(kind)


def on_cpu(size: int) -> list[Row]:
    """Measure on one thread of the CPU, in CPU time: the machine may be shared."""
    rows = []
    threads = torch.get_num_threads()
    for dtype in DTYPES:
        tensor = make(dtype, size, "cpu")
        data = tensor.view(torch.uint8).view(torch.float32)
        torch.set_num_threads(1)
        mine = best(issuer([tensor]), time.process_time)
        other = best(lambda d=data: d.sum(), time.process_time)
        torch.set_num_threads(threads)
        rows.append(
            Row(f"{dtype}, one thread, GB/s", size / mine / 1e9, size / other / 1e9, None, "GB/s")
        )
    small = [torch.ones(16) for _ in range(8)]
    issue = issuer(small)
    each = best(lambda: [issue() for _ in range(200)], time.process_time) / 1600
    total = best(lambda: [t.sum() for t in small * 200], time.process_time) / 1600
    rows.append(Row("small tensor, of 8 at once", each * 1e6, total * 1e6, None, "us"))
    return rows


def best(work: Callable[[], object], clock: Callable[[], float], times: int = 5) -> float:
    """The shortest time of several runs, in seconds of `clock`."""
    work()
    seconds = []
    for _ in range(times):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def on_gpu(size: int, facts: dict[str, object]) -> list[Row]:
    with tempfile.TemporaryDirectory() as cache:
        facts["seconds to compile the kernel"], facts["seconds to load it"] = compile_times(cache)
    rows = []

    def add(name: str, mine: float, other: float, unit: str) -> None:
        rows.append(Row(name, mine, other, None, unit))

    for dtype in DTYPES:
        tensor = make(dtype, size, "cuda")
        mine = on_device(issuer([tensor]), 10)
        data = tensor.view(torch.uint8).view(torch.float32)
        other = on_device(data.sum, 10)
        add(f"{dtype}, against sum of float32", size / mine / 1e6, size / other / 1e6, "GB/s")
    copy = torch.empty_like(data)
    speed = 2 * size / on_device(lambda: copy.copy_(data), 10) / 1e6
    add("copy, bytes read and written", speed, speed, "GB/s")
    view = make("bfloat16", size // 4, "cuda").view(-1, 4096)
    mine = on_device(issuer([view.t()]), 5)
    other = on_device(lambda: view.t().contiguous(), 5)
    add("bfloat16 transposed, against a contiguous copy", mine, other, "ms")
    one = torch.zeros(1, device="cuda")
    null = on_device(one.zero_, 300) * 1e3
    add("setting one element, device", null, null, "us")
    for kilobytes in (2, 64, 1024, 4096, 16384, 65536):
        tensor = make("bfloat16", kilobytes << 10, "cuda")
        mine = on_device(issuer([tensor]), 300) * 1e3
        other = on_device(tensor.sum, 300) * 1e3
        add(f"bfloat16 of {kilobytes} KiB, device, against sum", mine, other, "us")
    for dtype, k, n in TRANSPOSED:
        matrix = make(dtype, k * n * getattr(torch, dtype).itemsize, "cuda")
        mine = on_device(issuer([matrix.view(n, k).t()]), 300) * 1e3
        other = on_device(issuer([matrix]), 300) * 1e3
        add(f"{dtype} ({k}, {n}) transposed, device, against contiguous", mine, other, "us")
    four = [make("bfloat16", 4 << 20, "cuda") for _ in range(4)]
    mine = on_device(issuer(four), 300) * 1e3
    other = on_device(lambda: [t.sum() for t in four], 300) * 1e3
    add("four bfloat16 of 4 MiB by one launch, device", mine, other, "us")
    small = [torch.ones(1024, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    mine, other = on_host(issuer(small), 1000) * 1e6, on_host(small[0].sum, 1000) * 1e6
    add("issuing four small ones, host", mine, other, "us")
    mine = on_host(issuer(small, waits=True), 300) * 1e6
    other = on_host(lambda: small[0].sum().item(), 300) * 1e6
    add("four small ones and waiting for them, host", mine, other, "us")
    return rows


def issuer(tensors: list[torch.Tensor], *, waits: bool = False) -> Callable[[], None]:
    """A function that has a recorder measure tensors, as a line of a wrapper does."""
    recorder = recorder_of("nan", len(tensors))
    recorder.begin()

    def issue() -> None:
        recorder.after(0, *tensors)
        if waits:
            recorder.end()
            finish_writing()
            recorder.begin()

    return issue


def on_device(work: Callable[[], object], times: int) -> float:
    """Milliseconds of device time per call of `work`, of `times` calls in a row.

    The device first sleeps, so that the host stays ahead of it.
    """
    work()
    torch.cuda.synchronize()
    results = []
    for _ in range(3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(40_000_000)
        begin.record()
        for _ in range(times):
            work()
        end.record()
        torch.cuda.synchronize()
        results.append(begin.elapsed_time(end) / times)
    return min(results)


def on_host(work: Callable[[], object], times: int) -> float:
    """Seconds of the host's time per call of `work`, of `times` calls in a row."""
    work()
    torch.cuda.synchronize()
    results = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(times):
            work()
        results.append((time.perf_counter() - start) / times)
        torch.cuda.synchronize()
    return min(results)


def compile_times(cache: str) -> tuple[float, float]:
    """Seconds to start the engine on a GPU, with an empty cache and with a filled one."""
    import subprocess

    program = (
        "import time, torch; torch.zeros(1, device='cuda'); torch.cuda.synchronize()\n"
        "from benchmarks.recorders import recorder_of; recorder = recorder_of('nan')\n"
        "x = torch.ones(8, device='cuda'); start = time.perf_counter(); recorder.begin()\n"
        "recorder.after(0, x); print(time.perf_counter() - start)"
    )
    environment = {**os.environ, "REWRITER_CACHE_DIR": cache}
    seconds = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).resolve().parent.parent,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        seconds.append(float(run.stdout))
    shutil.rmtree(cache, ignore_errors=True)
    return seconds[0], seconds[1]


if __name__ == "__main__":
    raise SystemExit(main())
