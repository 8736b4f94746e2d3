"""The first call of a program: plain, and probed with empty caches of this tool.

Run it where the wheel is installed, as a user would, or from a checkout, where the recorder is
compiled first:

    PYTHONPATH=CHECKOUT:INSTALLED python -m benchmarks.first_call
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import rows
from benchmarks.rows import Row

_LIMIT = 2000.0  # milliseconds that the first probed call may take longer
_MODEL = """
import sys, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
model, x = model.to(device).eval(), torch.randn(16, 64, device=device)
torch.mm(x, x.t()).sum().item()  # the libraries of the device are loaded
def timed(call):
    start = time.perf_counter()
    call().sum().item()
    print("first", (time.perf_counter() - start) * 1e3, flush=True)
"""
_COMPILED = f"""{_MODEL}
import torch._inductor.config as config
config.cpp_wrapper = {{cpp}}
with torch.no_grad():
    compiled = torch.compile(model)
    timed(lambda: compiled(x))
"""
_PACKAGE = f"""{_MODEL}
path = torch._inductor.aoti_compile_and_package(
    torch.export.export(model, (x,)), package_path=sys.argv[1])
"""
_LOADED = f"""{_MODEL}
model = torch._inductor.aoti_load_package(sys.argv[1])
timed(lambda: model(x))
"""
_REWRITER = [sys.executable, "-m", "rewriter"]


def main() -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-call-") as folder:
        place = Path(folder)
        found = [
            _compared("Python", _pairs(place, _COMPILED.format(cpp=False), args.rounds)),
            _compared("C++ just in time", _pairs(place, _COMPILED.format(cpp=True), args.rounds)),
            _compared("a package", _packages(place, args.rounds)),
        ]
    return rows.report(found, args)


def _compared(name: str, pairs: list[tuple[float, float]]) -> Row:
    plain, probed = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"{name}: plain, probed: {pairs}", file=sys.stderr, flush=True)
    return Row(f"{name}, first call", probed, plain, (plain + _LIMIT) / plain)


def _pairs(place: Path, text: str, rounds: int) -> list[tuple[float, float]]:
    program = place / "program.py"
    program.write_text(text)
    command = [sys.executable, str(program)]
    dump = str(place / "dump")
    probed = [*_REWRITER, "run", "--quiet", "--dump", dump, "--overwrite", "--", *command]
    return [(_first(place, command), _first(place, probed)) for _ in range(rounds)]


def _packages(place: Path, rounds: int) -> list[tuple[float, float]]:
    plain, patched = str(place / "model.pt2"), str(place / "patched.pt2")
    program = place / "program.py"
    program.write_text(_PACKAGE)
    _run(place, [sys.executable, str(program), plain])
    _run(place, [*_REWRITER, "instrument", plain, "--probe", "print", "-o", patched])
    program.write_text(_LOADED)
    command = [sys.executable, str(program)]
    return [
        (_first(place, [*command, plain]), _first(place, [*command, patched]))
        for _ in range(rounds)
    ]


def _first(place: Path, command: list[str]) -> float:
    """Milliseconds that the first call takes."""
    (line,) = (x for x in _run(place, command).splitlines() if x.startswith("first "))
    return float(line.split()[1])


def _run(place: Path, command: list[str]) -> str:
    """The output of a command with empty caches, of this tool and of Inductor."""
    with tempfile.TemporaryDirectory(dir=place) as empty:
        caches = ("REWRITER_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        environment = {**os.environ, **{name: f"{empty}/{name}" for name in caches}}
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
