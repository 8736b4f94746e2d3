"""Asks `verify`, `diagnose` and `sanitize` about programs that are right, and prints what they say.

    python -m benchmarks.clean [--device cpu|cuda] [--random N] [--only TEXT] [--jobs N]

Whatever is found is a false accusation. Programs run in lots, since imports take longer than most
of them. Rows stay in the directory of `--work`: a run that was stopped continues where it was, and
`--again` repeats the lots that were accused or failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.judge import Ended, Judge
from benchmarks.faults.programs import environment_with

_RANDOM, _NAMED = 20, 6  # programs in one process: imports take longer than most of them
_COMMANDS = ("diagnose", "verify", "sanitize")


@dataclass(frozen=True)
class Lot:
    """Programs that are right, of one library: their names, and the command that runs them."""

    name: str
    group: str
    programs: tuple[str, ...]
    command: tuple[str, ...]
    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"TORCHINDUCTOR_COMPILE_THREADS": "1", **environment_with(self.cache)}


def lots(arguments: argparse.Namespace) -> Iterator[Lot]:
    """The programs to ask about: those drawn at random, or those of libraries."""
    work = arguments.work.resolve()
    python = (sys.executable, "-m")
    if arguments.random:
        for first in range(0, arguments.random, _RANDOM):
            seeds = range(first, min(first + _RANDOM, arguments.random))
            command = (*python, "benchmarks.faults.random_models", str(first), str(seeds.stop))
            name = f"random-{first}"
            yield Lot(name, "random", tuple(map(str, seeds)), command, work / name / "cache")
        return
    from benchmarks.clean.programs import LIBRARIES

    for group in dict.fromkeys(LIBRARIES.values()):
        names = [x for x, library in LIBRARIES.items() if library == group]
        for number, first in enumerate(range(0, len(names), _NAMED)):
            some = tuple(names[first : first + _NAMED])
            command = (*python, "benchmarks.clean.programs", arguments.device, *some)
            name = f"{group}-{number}"
            yield Lot(name, group, some, command, work / name / "cache")


def ask(lot: Lot, judge: Judge, commands: Sequence[str]) -> dict[str, Any]:
    """Run the commands on one lot. Returns its row."""
    import torch

    folder = lot.cache.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    row: dict[str, Any] = {
        "name": lot.name,
        "group": lot.group,
        "programs": lot.programs,
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
    }
    recorded = ""
    for command in commands:
        started = time.monotonic()
        words = ["--json", "-d", str(folder / command), "--", *lot.command]
        if command == "verify" and recorded:
            words = ["--json", recorded]  # what `diagnose` has recorded
        ended = judge.run(lot, [command, *words], folder)
        runs = (ended.document or {}).get("runs", ())
        recorded = next((x["dump"] for x in reversed(runs) if "save" in x["what"]), recorded)
        row[command] = {**_read(ended), "seconds": round(time.monotonic() - started, 1)}
        (folder / f"{command}.txt").write_text(ended.errors)
        (folder / f"{command}.json").write_text(json.dumps(ended.document, indent=1))
    if not (_answers(row, "accuses") or _answers(row, "failed")):
        shutil.rmtree(folder, ignore_errors=True)
    return row


def _read(ended: Ended) -> dict[str, Any]:
    document = ended.document or {}
    launches = document.get("launches", 0)
    total = launches if isinstance(launches, int) else len(launches)
    checked = document.get("checked", total - document.get("unchecked", total))
    findings = document.get("findings") or (
        [document["finding"]] if document.get("finding") else []
    )
    said = str(document.get("headline") or document.get("verdict") or "")
    accuses = bool(findings) or (ended.code == 1 and bool(said))
    answered = document and (ended.code == 0 or accuses)  # else the program itself failed
    return {
        "code": ended.code,
        "accuses": accuses,
        "failed": "" if answered else ended.errors[-600:] or "no answer",
        "said": said[:400],
        "launches": total,
        "checked": checked,
    }


def report(rows: Iterable[dict[str, Any]]) -> str:
    """The table of all groups, and a line for each answer that accuses or failed."""
    rows = list(rows)
    columns = ("", "programs", "lots accused", "lots failed", "launches", "checked by `verify`")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for group in (*sorted({x["group"] for x in rows}), "all"):
        some = [x for x in rows if group in (x["group"], "all")]
        launches, checked = (
            sum(x.get("verify", {}).get(key, 0) for x in some) for key in ("launches", "checked")
        )
        cells = (
            group,
            sum(len(x["programs"]) for x in some),
            *(sum(bool(_answers(x, key)) for x in some) for key in ("accuses", "failed")),
            launches,
            f"{checked} ({checked / max(1, launches):.0%})",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, *(line for row in rows for line in _complaints(row))])


def _complaints(row: dict[str, Any]) -> Iterator[str]:
    for key in ("accuses", "failed"):
        for command in _answers(row, key):
            said = row[command]["said"] or row[command]["failed"]
            yield f"{row['name']}: {command} {key}: {said}"


def _answers(row: dict[str, Any], key: str) -> list[str]:
    return [x for x in _COMMANDS if x in row and row[x][key]]


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    arguments.work.mkdir(parents=True, exist_ok=True)
    file = arguments.work / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = {x["name"]: x for x in map(json.loads, lines)}
    if arguments.again:
        rows = {name: x for name, x in rows.items() if not list(_complaints(x))}
    asked = [x for x in lots(arguments) if any(one in x.name for one in arguments.only)]
    judge, lock = Judge(sys.executable, arguments.timeout), threading.Lock()

    def one(lot: Lot) -> None:
        row = ask(lot, judge, arguments.commands)
        with lock, file.open("a") as stream:
            rows[lot.name] = row
            stream.write(json.dumps(row) + "\n")
            print("\n".join(_complaints(row)) or f"{lot.name}: nothing is accused", flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, () if arguments.report else [x for x in asked if x.name not in rows]))
    found = [rows[x.name] for x in asked if x.name in rows]
    print(report(found))
    return int(arguments.check and any(_answers(x, "accuses") for x in found))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--random", type=int, default=0, metavar="N", help="ask about N random programs"
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="lots that have it in their name"
    )
    parser.add_argument("--commands", nargs="+", choices=_COMMANDS, default=_COMMANDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of one command")
    parser.add_argument("--again", action="store_true", help="ask about what was accused or failed")
    parser.add_argument("--report", action="store_true", help="only print what was said so far")
    parser.add_argument("--work", type=Path, default=Path(os.environ.get("WORK", "build/clean")))
    parser.add_argument("--check", action="store_true", help="exit 1 where one was accused")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
