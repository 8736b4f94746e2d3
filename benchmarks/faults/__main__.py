"""Plants faults in real artifacts, asks the command line about each, and prints the score.

    python -m benchmarks.faults [--device cpu|cuda] [--count N] [--seed N] [--jobs N]
    python -m benchmarks.faults --random 2000     one fault in every third random program

Compiled artifacts and results stay in the directory of `--work`: a run that was stopped continues
where it was, and `--again` repeats the cases that were missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.faults import oracle, score
from benchmarks.faults.corpus import Fault, controls, corpus
from benchmarks.faults.judge import Answer, Judge, warm_python
from benchmarks.faults.kinds.base import Change
from benchmarks.faults.programs import BuildError, Program, compiled

_Clean = tuple[oracle.Results, Answer, dict[int, set[str]]]
_OPEN = (score.MISSED, score.UNCHECKED, score.AMONG, score.ALARM)
_EVERY = 3  # of the random programs, one in so many is compiled once more with a fault


class Bench:
    """One run of the benchmark: the programs, their correct results, and the rows so far."""

    def __init__(self, judge: Judge, work: Path, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.programs: dict[tuple[str, str], Program] = {}
        self.judge = judge
        self.work = work
        self._file = work / "results.jsonl"
        self._lock = threading.Lock()
        self._clean: dict[tuple[str, str], _Clean] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            rows = map(json.loads, self._file.read_text().splitlines())
            self.rows = {
                x["key"]: x for x in rows if not (arguments.again and x["outcome"] in _OPEN)
            }

    def take(self, programs: list[Program]) -> None:
        """Ask about these from now on."""
        self.programs = {(x.form, x.name): x for x in programs}
        self._clean.clear()
        self._locks = {key: threading.Lock() for key in self.programs}

    def clean(self, program: Program) -> _Clean:
        """Diagnose the unchanged artifact, once.

        Returns its results, the answer, and for each launch that `verify` can check the names of
        the results that it checks.
        """
        key = program.form, program.name
        with self._locks[key]:
            if key not in self._clean:
                folder = _folder(self.work / "clean" / "-".join(key))
                with program.installed(program.source, folder) as (placed, path):
                    answer = self.judge.ask(placed, path, folder)
                dump = answer.dump
                checked = self.judge.checked(program, dump, folder) if dump else {}
                results = oracle.results(Path(dump)) if dump else {}
                self._clean[key] = results, answer, checked
            return self._clean[key]

    def control(self, program: Program) -> dict[str, Any]:
        """The row of an unchanged artifact: anything that is named there is a false alarm."""
        _, answer, _ = self.clean(program)
        what = Change("as it is", (), ())
        name = control_name(program)
        fault = Fault(name, "as it is", program.source, 0, what, 0, harmless=True)
        return score.row(fault, answer, (), True)

    def case(self, fault: Fault) -> dict[str, Any]:
        """Plant a fault, diagnose it, and compare the values with those of the clean run."""
        program = self.programs[fault.source.form, fault.source.name]
        clean, _, checked = self.clean(program)
        folder = _folder(self.work / "cases" / fault.name)
        try:
            with program.installed(fault.changed, folder) as (placed, path):
                answer = self.judge.ask(placed, path, folder)
            differences = self._differences(clean, answer.dump, fault)
        except BuildError as error:
            answer, differences = Answer(broken=str(error)), []
        shutil.rmtree(folder)
        order = fault.change.order
        originals = {order[x] if order else x for x in fault.change.culprits} or {fault.launch}
        known = any(_is_checked(one, checked, differences, order) for one in originals)
        return score.row(fault, answer, differences, known)

    def _differences(self, clean: oracle.Results, dump: str, fault: Fault) -> list[oracle.Changed]:
        if not dump or not any(Path(dump).glob("rank*/run*/events.jsonl")):
            return []  # the program ended before its first launch
        return oracle.changed(clean, oracle.results(Path(dump)), fault.change.order)

    def keep(self, key: str, row: dict[str, Any]) -> None:
        with self._lock:
            self.rows[key] = row
            with self._file.open("a") as stream:
                dated = {"key": key, "date": time.strftime("%Y-%m-%d"), **row}
                stream.write(json.dumps(dated) + "\n")
            self._write_miss(row)
            print(f"{row['outcome']:25} {row['name']}: {row['what'][:90]}", flush=True)

    def _write_miss(self, row: dict[str, Any]) -> None:
        """With `--misses`: write a file about a missed case, or remove it once it is not missed."""
        if self._arguments.misses is None:
            return
        self._arguments.misses.mkdir(parents=True, exist_ok=True)
        file = self._arguments.misses / f"{row['name']}.md"
        if row["outcome"] not in _OPEN:
            file.unlink(missing_ok=True)
            return
        asked = self._arguments
        many = f"--random {asked.random}" if asked.random else f"--count {asked.count}"
        command = (
            f"python -m benchmarks.faults --device {asked.device} {many} --seed {asked.seed} "
            f"--again --only {row['name']}"
        )
        file.write_text(score.describe(row, command))


def _is_checked(
    launch: int,
    checked: dict[int, set[str]],
    differences: Sequence[oracle.Changed],
    order: Sequence[int],
) -> bool:
    """Whether `verify` checks one of the results of a launch that a fault changes.

    Of a kernel with several results it may check only some.
    """
    if launch not in checked:
        return False
    wrong = {
        one.arg
        for one in differences
        if one.beyond
        and one.launch != oracle.RETURNED
        and (order[one.launch] if order else one.launch) == launch
    }
    return not wrong or bool(wrong & checked[launch])


def _folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    work = arguments.work.resolve()
    # A forked process cannot use a GPU that its parent used.
    cold = arguments.device == "cuda" and not arguments.warm
    idle = cold or arguments.report or arguments.list
    python, server = (sys.executable, None) if idle else warm_python()
    asked: set[str] = set()
    try:
        bench = Bench(Judge(python, arguments.timeout), work, arguments)
        for forms in _forms(arguments):
            programs = compiled(work, arguments.device, forms, arguments.jobs)
            faults = [x for x in _planted(programs, arguments) if arguments.only in x.name]
            bench.take(programs)
            asked |= {f"{x.name} {hash_of(x)}" for x in faults}
            asked |= {f"{x.form} {x.name} as it is" for x in programs}
            if arguments.list:
                print(*(f"{x.name}: {x.change.what}" for x in faults), sep="\n")
            elif not arguments.report:
                _run(bench, faults, arguments)
    finally:
        if server is not None:
            server.close()
    return 0 if arguments.list else _report(bench, asked, arguments)


def _planted(programs: Sequence[Program], arguments: argparse.Namespace) -> list[Fault]:
    sources = [x.source for x in programs]
    if arguments.random:  # one program; the kinds take turns
        (number,) = {int(x.name.removeprefix("random-").partition(".")[0]) for x in programs} or {0}
        return corpus(sources, 1, arguments.seed, first=number // _EVERY)
    faults = corpus(sources, arguments.count, arguments.seed)
    return faults + controls(sources, arguments.controls, arguments.seed)


def _run(bench: Bench, faults: list[Fault], arguments: argparse.Namespace) -> None:
    def one(fault: Fault) -> None:
        key = f"{fault.name} {hash_of(fault)}"
        if key not in bench.rows:
            bench.keep(key, bench.case(fault))

    def control(program: Program) -> None:
        key = f"{program.form} {program.name} as it is"
        if key not in bench.rows and arguments.only in control_name(program):
            bench.keep(key, bench.control(program))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, faults))
        list(pool.map(control, bench.programs.values()))


def control_name(program: Program) -> str:
    return f"as-it-is-{program.name}-{program.form}"


def hash_of(fault: Fault) -> str:
    text = "".join(fault.changed.texts.values())
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _report(bench: Bench, asked: set[str], arguments: argparse.Namespace) -> int:
    rows = sorted((x for key, x in bench.rows.items() if key in asked), key=lambda x: x["name"])
    print(f"\n{score.table(rows)}")
    missed = [x for x in rows if x["outcome"] in _OPEN]
    for case in missed:
        print(f"{case['outcome']}: {case['name']}: {case['what']}\n    {case['answer']['verdict']}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    honest = (score.UNCHECKED,) if arguments.random else ()
    return int(arguments.check and any(x["outcome"] not in honest for x in missed))


def _forms(arguments: argparse.Namespace) -> Iterator[dict[str, tuple[str, ...]]]:
    """The models to compile to each form, in lots."""
    from benchmarks.faults.models import FORMS

    if arguments.random:
        for seed in range(0, arguments.random, _EVERY):
            yield {"python": (f"random-{seed}",)}
        return
    yield {
        form: tuple(x for x in names if x in (arguments.models or names))
        for form, names in FORMS.items()
        if form in (arguments.forms or FORMS)
    }


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=140, help="how many faults are planted")
    parser.add_argument("--controls", type=int, default=15, help="how many harmless changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one command")
    parser.add_argument(
        "--random",
        type=int,
        default=0,
        metavar="N",
        help="one fault in every third of N programs drawn at random",
    )
    parser.add_argument("--forms", nargs="+", choices=("python", "cpp_wrapper", "aoti"))
    parser.add_argument("--models", nargs="+", metavar="MODEL")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases that have it in their name"
    )
    parser.add_argument(
        "--warm", action="store_true", help="fork from a process with torch on a GPU, too"
    )
    parser.add_argument("--again", action="store_true", help="ask about what was missed once more")
    parser.add_argument("--list", action="store_true", help="only list the corpus")
    parser.add_argument("--report", action="store_true", help="only score what was asked so far")
    parser.add_argument("--work", type=Path, default=Path("build/faults"), metavar="DIR")
    parser.add_argument("--misses", type=Path, metavar="DIR", help="write a file for each miss")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all cases there")
    parser.add_argument("--check", action="store_true", help="exit 1 where one was missed")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
