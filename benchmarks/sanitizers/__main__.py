"""Plants memory faults in real artifacts, asks `rewriter sanitize` about each, prints the score.

    python -m benchmarks.sanitizers [--device cpu|cuda] [--count N] [--forms FORM ...] [--jobs N]

`--count` faults are planted for each check and form. With `--beside`, `compute-sanitizer` also runs
on the same cases, if it is installed, and is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.faults.judge import Judge, warm_python
from benchmarks.faults.kinds.base import Change
from benchmarks.faults.programs import BuildError, Program, compiled
from benchmarks.faults.source import Source, Target
from benchmarks.sanitizers import ask
from benchmarks.sanitizers.artifacts import Artifact, artifacts_in
from benchmarks.sanitizers.kinds import KINDS

# Models in addition to those of `benchmarks.faults`, by form: small packages have few places.
MORE = {"aoti": ("transformer", "dtypes", "scatter", "customop")}
FIRST, NAMED, MISSED, BROKEN = "first", "named", "missed", "does not compile"
LATE = "no answer in time"
ELSEWHERE = "cannot run here"  # needs another torch or device
CLEAN, ALARM = "clean", "false alarm"


@dataclass(frozen=True)
class Case:
    """A planted fault, or an unchanged artifact (`change` is None)."""

    check: str
    kind: str
    program: Program | Artifact
    launch: int
    change: Change | None
    number: int = 0  # among the changes of this kind at the launch

    @property
    def name(self) -> str:
        what = self.kind.replace(" ", "-") if self.change else "as-it-is"
        place = f"{self.launch}.{self.number}" if self.number else f"{self.launch}"
        check = self.check.replace(", ", "-")
        return f"{check}-{what}-{self.program.name}-{self.program.form}-{place}"

    @property
    def source(self) -> Source:
        source = self.program.source
        return source.edited(self.change.edits) if self.change else source


def cases(programs: Sequence[Program | Artifact], count: int, seed: int) -> Iterator[Case]:
    """Draw up to `count` faults for each check and form.

    Checks and forms take turns; within each, the kinds, and within a kind, the artifacts.
    """
    chosen = [
        _of_check(check, form, programs, count, seed)
        for form in sorted({one.form for one in programs})
        for check in KINDS
    ]
    for turn in zip_longest(*chosen):
        yield from (case for case in turn if case is not None)


def _of_check(
    check: str, form: str, programs: Sequence[Program | Artifact], count: int, seed: int
) -> list[Case]:
    queues = []
    for kind in KINDS[check]:
        ways = [
            Case(check, kind.name, program, launch.index, change, number)
            for program in programs
            if program.form == form
            for launch in program.source.launches
            for number, change in enumerate(kind.changes(Target(program.source, launch)))
        ]
        random.Random(f"{seed} {check} {form} {kind.name}").shuffle(ways)
        turns: Counter[str] = Counter()
        ranked = []
        for way in ways:
            turns[way.program.name] += 1
            ranked.append((turns[way.program.name], len(ranked), way))
        queues.append([way for _, _, way in sorted(ranked, key=lambda one: one[:2])])
    in_turn = (case for turn in zip_longest(*queues) for case in turn if case is not None)
    return list(islice(in_turn, count))


class Bench:
    """One run of the benchmark. Its rows are kept in a file, so that it can be continued."""

    def __init__(self, judge: Judge, arguments: argparse.Namespace, work: Path) -> None:
        self._judge = judge
        self._arguments = arguments
        self._work = work
        self._file = work / "sanitized.jsonl"
        self._lock = threading.Lock()
        self.rows: dict[str, dict[str, Any]] = {}
        if self._file.exists() and not arguments.again:
            for line in self._file.read_text().splitlines():
                row = json.loads(line)
                self.rows[row["name"]] = row

    def run(self, case: Case) -> None:
        if case.name in self.rows:
            return
        folder = self._work / "cases" / case.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with case.program.installed(case.source, folder) as (program, path):
                answer = ask.sanitize(self._judge, program, path, folder)
                beside = None
                if self._arguments.beside and program.form != "aoti":
                    beside = ask.compute_sanitizer(program, path, folder)
            row = _row(case, answer, beside)
        except BuildError as error:
            row = {**_about(case), "outcome": BROKEN, "verdict": str(error)[-300:]}
        if not self._arguments.keep:
            shutil.rmtree(folder)
        with self._lock:
            self.rows[case.name] = row
            with self._file.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            print(f"{row['outcome']:12} {case.name}: {row['verdict'][:140]}", flush=True)


def _about(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "check": case.check,
        "kind": case.kind,
        "form": case.program.form,
        "artifact": case.program.name,
        "launch": case.launch,
        "culprits": list(case.change.culprits) if case.change else [],
        "what": case.change.what if case.change else "as it is",
    }


def _row(case: Case, answer: ask.Answer, beside: ask.Beside | None) -> dict[str, Any]:
    row = {
        **_about(case),
        "outcome": _outcome(case, answer),
        "verdict": answer.verdict,
        "finding": answer.kind,
        "named": list(answer.named),
        "unchanged": answer.unchanged,
        "runs": answer.runs,
        "seconds": round(answer.seconds, 2),
        "failed": answer.failed,
    }
    if beside is not None:
        row |= {"beside": beside.errors, "beside_seconds": round(beside.seconds, 2)}
    return row


def _outcome(case: Case, answer: ask.Answer) -> str:
    if "CppCompileError" in answer.failed or "compiler.errors." in answer.verdict:
        return BROKEN  # by the C++ compiler, or by Triton
    if answer.failed.startswith("it took more than"):
        return LATE
    if "error[missing-module]" in answer.failed or "error[no-device]" in answer.failed:
        return ELSEWHERE
    if case.change is None and "fails, also without filling" in answer.verdict:
        return ELSEWHERE
    if case.change is None:
        return ALARM if answer.named or answer.kind or answer.failed else CLEAN
    culprits = set(case.change.culprits)
    if culprits & set(answer.named[:1]):
        return FIRST
    return NAMED if culprits & set(answer.named) else MISSED


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table of faults that were named first by check and form, and the summary."""
    planted = [x for x in rows if x["outcome"] in (FIRST, NAMED, MISSED)]
    forms = [x for x in ("python", "cpp_wrapper", "aoti") if any(y["form"] == x for y in planted)]
    lines = [["check", *forms, "outputs unchanged"], ["---"] * (len(forms) + 2)]
    for check in KINDS:
        of_check = [x for x in planted if x["check"] == check]
        cells = [
            f"{sum(x['outcome'] == FIRST for x in of_form)} of {len(of_form)}" if of_form else ""
            for of_form in ([x for x in of_check if x["form"] == form] for form in forms)
        ]
        unseen = sum(bool(x["unchanged"]) for x in of_check)
        lines.append([check, *cells, f"{unseen} of {len(of_check)}"])
    controls = [x for x in rows if x["outcome"] in (CLEAN, ALARM)]
    alarms = sum(x["outcome"] == ALARM for x in controls)
    broken = sum(x["outcome"] == BROKEN for x in rows)
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    text += f"\n\nnamed first; false alarms: {alarms} of {len(controls)} artifacts as they are"
    late = sum(x["outcome"] == LATE for x in rows)
    elsewhere = sum(x["outcome"] == ELSEWHERE for x in rows)
    text += f"; {broken} do not compile, {late} had no answer in time, {elsewhere} cannot run here"
    beside = [x for x in planted if "beside" in x]
    if beside:
        seen = sum(bool(x["beside"]) for x in beside)
        ours = sum(x["seconds"] for x in beside) / len(beside)
        theirs = sum(x["beside_seconds"] for x in beside) / len(beside)
        text += (
            f"\ncompute-sanitizer reports something in {seen} of {len(beside)}; seconds of a case: "
            f"{ours:.1f} ours, {theirs:.1f} compute-sanitizer"
        )
    return text


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    from benchmarks.faults.models import FORMS

    forms = {
        form: tuple(x for x in (*names, *MORE.get(form, ())) if x in (arguments.models or (x,)))
        for form, names in FORMS.items()
        if form in (arguments.forms or FORMS)
    }
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    programs: list[Program | Artifact]
    if arguments.artifacts is not None:
        cache = work / "cache"
        programs = [*artifacts_in(arguments.artifacts.resolve(), tuple(forms), cache)]
        programs = [x for x in programs if x.name in (arguments.models or (x.name,))]
    else:
        programs = [*compiled(work, arguments.device, forms, arguments.jobs)]
    chosen = [Case("clean", "", one, 0, None) for one in programs] if arguments.clean else []
    chosen += cases(programs, arguments.count, arguments.seed)
    chosen = [x for x in chosen if arguments.only in x.name]
    if arguments.list:
        for case in chosen:
            print(case.name, case.change.what if case.change else "")
        return 0
    # A fork cannot use CUDA once its parent has asked for devices, as importing Inductor does.
    cold = arguments.device == "cuda"
    if cold:
        # Inductor starts a pool of compilers, one for each core, in every process that has kernels
        # to compile. A few small kernels take less time than the pool.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    python, server = (sys.executable, None) if cold else warm_python()
    try:
        bench = Bench(Judge(python, arguments.timeout), arguments, work)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(bench.run, chosen))
    finally:
        if server is not None:
            server.close()
    rows = [bench.rows[x.name] for x in chosen]
    print(f"\n{table(rows)}")
    for row in rows:
        if row["outcome"] in (MISSED, NAMED, ALARM):
            print(f"{row['outcome']}: {row['name']}: {row['what']}\n    {row['verdict'][:300]}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=12, help="faults for each check and form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one command")
    parser.add_argument("--forms", nargs="+", choices=("python", "cpp_wrapper", "aoti"))
    parser.add_argument("--models", nargs="+", metavar="MODEL")
    parser.add_argument(
        "--artifacts", type=Path, metavar="DIR", help="such as fixtures/artifacts/cpu-torch2.13"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with it in their name")
    parser.add_argument("--no-clean", dest="clean", action="store_false", help="no controls")
    parser.add_argument("--beside", action="store_true", help="ask compute-sanitizer, too")
    parser.add_argument("--again", action="store_true", help="forget what was asked before")
    parser.add_argument("--keep", action="store_true", help="keep the dumps")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--work", type=Path, default=Path("build/faults"), metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all cases there")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
