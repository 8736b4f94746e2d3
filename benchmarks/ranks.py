"""How long `compare --ranks` and `report` take over the dump of a job of many ranks.

The benchmark makes the dump: each rank has rows of all launches in all calls, with different
statistics and fingerprints. The limits, 60 seconds and 2 GiB on two cores, are meant for
`--ranks 1024 --launches 1000 --calls 10`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rows
from benchmarks.rows import Row

FULL = (1024, 1000, 10)
SECONDS, GIBIBYTES = 60.0, 2.0


@dataclass(frozen=True)
class Spent:
    wall: float  # seconds
    cpu: float
    memory: float  # the most of one process, GiB
    output: str
    code: int


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--full", action="store_true", help="1,024 ranks, 1,000 launches, 10 calls")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the dump is made"
    )
    parser.add_argument(
        "--apart",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="ranks that part at places of their own (default: none)",
    )
    args = parser.parse_args(argv)
    if args.full:
        args.ranks, args.launches, args.calls = FULL
    made = []
    with tempfile.TemporaryDirectory(prefix="ranks", dir=args.folder) as name:
        dump = Path(name, "many.dump")
        write(dump, args.ranks, args.launches, args.calls, apart=args.apart)
        files = list(dump.rglob("*"))
        size = sum({x.stat().st_ino: x.stat().st_size for x in files if x.is_file()}.values())
        for what, words in (
            ("compare --ranks", ("compare", str(dump), "--ranks")),
            ("report", ("report", str(dump), "-o", str(Path(name, "page.html")), "--overwrite")),
        ):
            spent = run(*words)
            if spent.code not in (0, 1):
                sys.stderr.write(spent.output)
                return 3
            sys.stderr.write(f"{what}: {spent.output.splitlines()[-1][:150]}\n")
            made += [
                Row(f"{what}, wall", spent.wall, SECONDS, 1.0, "s"),
                Row(f"{what}, CPU", spent.cpu, 2 * SECONDS, 1.0, "s"),
                Row(f"{what}, memory", spent.memory, GIBIBYTES, 1.0, "GiB"),
            ]
    facts = {"ranks": args.ranks, "launches": args.launches, "calls": args.calls, "bytes": size}
    return rows.report(made, args, **facts)


def write(dump: Path, ranks: int, launches: int, calls: int, *, apart: float = 0.0) -> None:
    """Write a dump as the runtimes do.

    With `apart` all ranks have equal values, except this share of them: each of those differs from
    one launch on, which is drawn for it.
    """
    table = {
        "format": "rewriter.run-launches",
        "version": 1,
        "outputs": {"": [f"buf{launches - 1}"]},
        "launches": [_launch(number) for number in range(launches)],
    }
    dump.mkdir(parents=True)
    manifest = {
        "format": "rewriter.dump", "version": 1, "artifact": "w.py", "sha256": "0" * 64,
        "rewriter": "0", "probes": ["print", "hash"], "torch": "2.13.0", "device": "cpu",
        "fingerprint": {"name": "nh128", "version": 1}, "ranks": ranks,
    }  # fmt: skip
    (dump / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    template = "".join(_rows(number) for number in range(launches))
    draw = random.Random(0)
    same = [_values(draw, launches) for _ in range(calls)]
    for rank in range(ranks):
        mine = random.Random(rank)
        is_apart = rank and mine.random() < apart
        part = mine.randrange(launches) if is_apart else launches
        shared = ""
        for call in range(calls):
            folder = dump / f"rank{rank}/run{call}"
            folder.mkdir(parents=True)
            if shared:
                os.link(shared, folder / "launches.json")
            else:
                (folder / "launches.json").write_text(json.dumps(table, indent=1) + "\n")
            shared = str(folder / "launches.json")
            facts = {
                "format": "rewriter.run", "version": 1, "artifact": "w.py", "sha256": "0" * 64,
                "label": "", "host": f"node{rank // 8}", "call": call, "pid": 1000 + rank,
                "thread": 1, "started": 1.7e9 + call,
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
            values = _values(mine, launches) if not apart else list(same[call])
            if is_apart:
                values[4 * part :] = _values(mine, launches - part)
            head = _INPUT % _value(random.Random(0) if apart else mine)
            (folder / "events.jsonl").write_text(head + template % tuple(values))


_STATISTICS = (
    '"dtype": "float32", "shape": [32, 256], "stride": [256, 1], "device": "cpu", "numel": 8192, '
    '"min": -%r, "max": %r, "mean": 0.001, "std": %r, "nan": 0, "inf": 0, '
    '"fingerprint": "%032x"'
)
_INPUT = '{"phase": "inputs", "arg": "primals_1", "role": "in", ' + _STATISTICS + "}\n"


def _rows(number: int) -> str:
    start = f'{{"launch": {number}, "phase": "after", "kernel": "{_kernel(number)}", '
    return f'{start}"arg": "buf{number}", "role": "out", {_STATISTICS}}}\n'


def _values(draw: random.Random, launches: int) -> list[object]:
    return [x for _ in range(launches) for x in _value(draw)]


def _value(draw: random.Random) -> tuple[object, ...]:
    return 1 + draw.random(), 1 + draw.random(), 0.5 + draw.random(), draw.getrandbits(128)


def _kernel(number: int) -> str:
    return f"triton_poi_fused_add_mul_{number}"


def _launch(number: int) -> dict[str, object]:
    given = f"buf{number - 1}" if number else "primals_1"
    return {
        "launch": number, "kernel": _kernel(number), "kind": "triton", "scope": "", "line": number,
        "source_nodes": [f"add_{number}"], "origins": ["aten.add"], "repeats": False,
        "after": [["out", f"buf{number}"]], "reads": [["in", given]],
    }  # fmt: skip


def run(*words: str) -> Spent:
    """Run a command of the rewriter. Returns its cost, child processes included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "rewriter", *words], capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu, after.ru_maxrss / 2**20, done.stdout + done.stderr, done.returncode)


if __name__ == "__main__":
    sys.exit(main())
