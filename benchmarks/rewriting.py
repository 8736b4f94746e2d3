"""What reading and rewriting a wrapper costs: CPU time and memory, each in a process of its own.

    python -m benchmarks.rewriting [--json FILE] [--check] [--launches 10000] [--large 100000]

The wrappers are generated: the call of a recorded one with so many launches of its kernel.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, options, report

ROOT = Path(__file__).parent.parent
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
_LIST = "from rewriter import cli; cli.main(['list', path])"


class Cost(NamedTuple):
    """CPU seconds of the work, and the most memory of its process in MiB."""

    seconds: float
    memory: float


def write_wrapper(path: Path, launches: int) -> None:
    """A Python wrapper as torch 2.11 writes it, with this many launches in its call."""
    text = RECORDED.read_text("utf-8")
    start = text.index("            # Topologically Sorted", text.index("def call("))
    end = text.index("        return (", start)
    kernel = re.findall(r"(?m)^(triton_poi\w+) = ", text)[0]
    lines = ["            buf0 = arg0_1\n            stream0 = get_raw_stream(0)\n"]
    lines += [
        _LAUNCH.format(before=number, after=number + 1, kernel=kernel, size=2048 + number % 7)
        for number in range(launches)
    ]
    path.write_text(text[:start] + "".join(lines) + text[end:], encoding="utf-8")


def cost(path: Path, work: str, before: str = "") -> Cost:
    """What some lines of Python cost in a process of their own; `before` is not measured."""
    program = _MEASURE.format(work=work, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seconds, memory = done.stderr.split()[-2:]
    return Cost(float(seconds), float(memory))


def rows(launches: int = 10_000, large: int = 100_000) -> list[Row]:
    """The rows of the table; those with an absolute limit have it as their reference."""
    with tempfile.TemporaryDirectory(prefix="rewriter-bench-") as folder:
        wrapper, many = Path(folder) / "output_code.py", Path(folder) / "large.py"
        write_wrapper(wrapper, launches)
        write_wrapper(many, large)
        parsed = cost(wrapper, "libcst.parse_module(open(path, 'rb').read())", "import libcst")
        made = cost(wrapper, "rewriter.instrument(path)", "import rewriter")
        few, listed = cost(wrapper, _LIST), cost(many, _LIST)
    bare = min(cost(SMALL, "pass").seconds for _ in range(3))
    start = {
        name: min(cost(SMALL, work).seconds for _ in range(3)) - bare
        for name, work in {
            "rewriter --help": "from rewriter import cli\n"
            "try: cli.main(['--help'])\nexcept SystemExit: pass",
            "list of a small file": _LIST,
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
    ]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    args = parser.parse_args()
    return report(rows(args.launches, args.large), args)


if __name__ == "__main__":
    sys.exit(main())
