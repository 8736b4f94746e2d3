"""Ways to have a measuring kernel on a GPU: what each needs before the first launch, and a launch.

The engine uses NVRTC. The others run a simpler kernel (sum and extremes of bfloat16): Triton, and
`torch.cuda._compile_kernel`, which uses NVRTC as well and launches from Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import rows
from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parent.parent
_SIMPLE = """
extern "C" __global__ void simple(const unsigned short* x, float* to, long long n) {
  float sum = 0, low = 1e38f, high = -1e38f;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    float value = __uint_as_float(static_cast<unsigned>(x[i]) << 16);
    sum += value;
    low = fminf(low, value);
    high = fmaxf(high, value);
  }
  atomicAdd(to, sum);
  atomicMin(reinterpret_cast<int*>(to + 1), __float_as_int(low));
  atomicMax(reinterpret_cast<int*>(to + 2), __float_as_int(high));
}
"""
# Each program runs in a new process with empty caches, and prints two times: milliseconds until
# the first launch, and microseconds per launch.
_STARTED = "import time, torch; torch.zeros(1, device='cuda'); x = torch.ones(1 << 20, "
_STARTED += "dtype=torch.bfloat16, device='cuda'); to = torch.zeros(4, device='cuda')\n"
_TIMED = """
torch.cuda.synchronize(); first = (time.perf_counter() - start) * 1e3
best = 1e9
for _ in range(20):
    torch.cuda.synchronize(); start = time.perf_counter()
    for _ in range(100): launch()
    best = min(best, (time.perf_counter() - start) * 1e4)
print(first, best)
"""
_PROGRAMS = {
    "NVRTC, the engine's kernel": """
from benchmarks.recorders import recorder_of
recorder = recorder_of('nan')
start = time.perf_counter()
recorder.begin()
launch = lambda: recorder.after(0, x)
launch()
""",
    "Triton, a simpler kernel": """
import importlib.util, sys, tempfile, os
source = '''
import triton, triton.language as tl
@triton.jit
def simple(x, to, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0).to(tl.float32)
    tl.atomic_add(to, tl.sum(value)); tl.atomic_min(to + 1, tl.min(value))
    tl.atomic_max(to + 2, tl.max(value))
'''
path = os.path.join(tempfile.mkdtemp(), 'simple_kernel.py'); open(path, 'w').write(source)
import triton
start = time.perf_counter()
spec = importlib.util.spec_from_file_location('simple_kernel', path)
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
launch = lambda: module.simple[(256,)](x, to, 1 << 20, BLOCK=4096)
launch()
""",
    "torch.cuda._compile_kernel, a simpler kernel": f"""
start = time.perf_counter()
kernel = torch.cuda._compile_kernel('''{_SIMPLE}''', 'simple')
launch = lambda: kernel(grid=(256, 1, 1), block=(256, 1, 1), args=[x, to, 1 << 20])
launch()
""",
}


def main() -> int:
    args = rows.options(__doc__).parse_args()
    found = []
    measured = {name: _run(program) for name, program in _PROGRAMS.items()}
    cold, launch = measured["NVRTC, the engine's kernel"]
    for name, (first, each) in measured.items():
        found.append(Row(f"{name}: until the first launch, empty caches", first, cold))
        found.append(Row(f"{name}: a launch, host", each, launch, None, "us"))
    with tempfile.TemporaryDirectory() as folder:
        program = _PROGRAMS["NVRTC, the engine's kernel"]
        _run(program, folder)
        kept, _ = _run(program, folder)
    found.append(Row("NVRTC, the engine's kernel: from the cache", kept, cold))
    return rows.report(found, args)


def _run(program: str, cache: str | None = None) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **os.environ,
            "REWRITER_ENGINE_DIR": str(cache or empty),
            "TRITON_CACHE_DIR": empty,
            "CUDA_CACHE_DISABLE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", _STARTED + program + _TIMED],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.stderr.write(done.stderr[-1500:])
        return float("nan"), float("nan")
    first, each = done.stdout.split()[-2:]
    return float(first), float(each)


if __name__ == "__main__":
    sys.exit(main())
