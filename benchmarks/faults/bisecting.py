"""Plants faults in Python wrappers, and has `rewriter bisect` name the launch by exit codes alone.

    python -m benchmarks.faults.bisecting [--count N] [--seed N] [--jobs N] [--only TEXT] [--pairs]

A fault counts where a program that compares what its wrapper returns with what it returned before
fails. With `--pairs`, each artifact has two faults, in different launches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.corpus import Fault, corpus
from benchmarks.faults.judge import Judge, warm_python
from benchmarks.faults.models import FORMS
from benchmarks.faults.programs import Program, compiled
from benchmarks.faults.source import Source

RIGHT, PART, MORE = "right", "one of two", "right, and others"
OTHER, NONE = "another launch", "no launch"
KEPT, SAME = "never replaced", "its outputs are as before"
_OF_MEMORY = ("early free", "stale reuse")
_CHECK = Path(__file__).with_name("check.py")


@dataclass(frozen=True)
class Planted:
    """Faults in one source, the launches where they are, and those that may be named for them."""

    name: str
    program: Program
    source: Source
    launches: frozenset[int]
    culprits: frozenset[int]


def planted(faults: Sequence[Fault], programs: dict[str, Program], *, pairs: bool) -> list[Planted]:
    """Faults whose culprits are launches of the unchanged order, alone or in pairs. What is wrong
    with the memory that a launch is given, nothing in its place can mend."""
    known = (x for x in faults if x.change.culprits and not x.change.order)
    fit = [x for x in known if x.kind not in _OF_MEMORY]
    if not pairs:
        return [_of(programs, x) for x in fit]
    found = []
    for _, some in itertools.groupby(sorted(fit, key=_artifact), key=_artifact):
        several = list(some)
        found += [_of(programs, *x) for x in zip(several[::2], several[1::2], strict=False)
                  if not set(x[0].change.culprits) & set(x[1].change.culprits)]  # fmt: skip
    return found


def _artifact(fault: Fault) -> str:
    return fault.source.name


def _of(programs: dict[str, Program], *faults: Fault) -> Planted:
    edits = tuple(edit for one in faults for edit in one.change.edits)
    culprits = frozenset(x for one in faults for x in one.change.culprits)
    launches, first = frozenset(one.launch for one in faults), faults[0]
    name = "+".join(one.name for one in faults)
    source = first.source.edited(edits)
    return Planted(name, programs[first.source.name], source, launches, culprits)


class Bisections:
    """Asks about planted faults; what each clean wrapper returns is computed once."""

    def __init__(self, judge: Judge, python: str, work: Path) -> None:
        self._judge, self._python, self._work = judge, python, work

    def ask(self, one: Planted) -> dict[str, Any]:
        folder = self._work / "bisected" / one.name[:120]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        expected = folder / "expected.pt"
        with one.program.installed(one.program.source, folder) as (placed, path):
            given = [str(path), one.program.args, str(expected)]
            subprocess.run(
                [sys.executable, str(_CHECK), *given],
                cwd=folder,
                env=placed.environment,
                check=True,
            )
        with one.program.installed(one.source, folder) as (placed, path):
            given = [str(path), one.program.args, str(expected)]
            command = ["bisect", "--precise", "--json", "--timeout", "60"]
            ended = self._judge.run(
                placed, [*command, "--", self._python, str(_CHECK), *given], folder
            )
        shutil.rmtree(folder)
        document = ended.document or {}
        named = frozenset(x["launch"] for x in document.get("launches", ()))
        kept = {x["launch"]: x["reason"] for x in document.get("never_replaced", ())}
        runs = document.get("runs", ())
        return {
            "name": one.name,
            "culprits": sorted(one.culprits),
            "named": sorted(named),
            "runs": len(runs),
            "candidates": document.get("candidates", 0),
            "outcome": _outcome(one, named, kept, runs),
            "why": [kept[x] for x in one.launches if x in kept] or ended.errors[-300:],
        }


def _outcome(one: Planted, named: frozenset[int], kept: dict[int, str], runs: Sequence[Any]) -> str:
    if len(runs) == 1 and runs[0]["passed"]:
        return SAME
    is_right = named <= one.culprits  # a kernel of two launches may be wrong in one of them
    if named and is_right and len(named) >= len(one.launches):
        return RIGHT
    if is_right and one.launches & kept.keys():
        return KEPT
    if not named:
        return NONE
    return PART if is_right else MORE if named & one.culprits else OTHER


def _report(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    outcomes = Counter(x["outcome"] for x in rows)
    effective = [x for x in rows if x["outcome"] not in (SAME, KEPT)]
    right = [x for x in effective if x["outcome"] == RIGHT]
    yield f"{len(rows)} planted: " + ", ".join(f"{n} {x}" for x, n in outcomes.most_common())
    if effective:
        share = len(right) / len(effective)
        yield f"{len(right)} of {len(effective)} whose launch has a reference: {share:.0%}"
        runs = sorted(x["runs"] for x in effective)
        yield f"runs: {runs[0]} to {runs[-1]}, {sum(runs) / len(runs):.1f} on average"
    for one in rows:
        if one["outcome"] not in (RIGHT, SAME):
            yield f"{one['outcome']}: {one['name']}: {one['culprits']}, named {one['named']}"
            yield f"    {one['why']}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=66, help="how many faults are planted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--pairs", action="store_true", help="two faults in each artifact")
    parser.add_argument("--models", nargs="+", metavar="MODEL", default=FORMS["python"])
    parser.add_argument("--work", type=Path, default=Path("build/faults"), metavar="DIR")
    arguments = parser.parse_args(argv)
    work = arguments.work.resolve()
    programs = compiled(work, "cpu", {"python": tuple(arguments.models)}, arguments.jobs)
    faults = corpus([x.source for x in programs], arguments.count, arguments.seed)
    cases = planted(faults, {x.name: x for x in programs}, pairs=arguments.pairs)
    python, server = warm_python()
    bisections = Bisections(Judge(python, 600), python, work)
    rows = []
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            chosen = [x for x in cases if arguments.only in x.name]
            for row in pool.map(bisections.ask, chosen):
                rows.append(row)
                print(f"{row['outcome']:25} {row['runs']:2} runs  {row['name']}", flush=True)
    finally:
        if server is not None:
            server.close()
    print(*_report(rows), sep="\n")
    (work / "bisected.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
