"""Mutated dumps through `report`, `compare` and the readers of other commands: refused, or read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dump_mutators
import fuzzing
from fuzzing import Case
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis import triage
from rewriter.dump import timing
from rewriter.dump.summary import summarise

pytestmark = pytest.mark.properties

_PARTS = (*[""] * 12, "rank0", "rank0/run0", "rank1", "rank7")


def fuzz_dump(case: Case) -> None:
    """Make a dump, mutate it or a copy, and hand both to every reader."""
    choices = case.random
    a = dump_mutators.make(choices, case.folder / "a")
    b = case.folder / "b"
    if choices.random() < 0.8:
        shutil.copytree(a, b)
    else:
        dump_mutators.make(choices, b)
    dump_mutators.mutate(choices, choices.choice((a, b)))
    a, b = a / choices.choice(_PARTS), b / choices.choice(_PARTS)
    if choices.random() < 0.5:
        a, b = b, a
    _json(case, "report", a, "--json")
    case.run("report", a, "-o", case.folder / "report.html")
    act = choices.random()
    if act < 0.3:
        case.run("compare", a, b)
    elif act < 0.6:
        _json(case, "compare", a, b, "--json")
    elif act < 0.8:
        case.run("compare", a, b, "--html", case.folder / "compared.html")
    else:
        _json(case, "compare", a, "--ranks", "--json", *choices.choice(((), ("--data", "arg*"))))
    for reader in (_triage, summarise, timing.table):
        _reads(case, reader, a)


def _json(case: Case, *argv: str | Path) -> None:
    """What `--json` prints is strict JSON."""
    done = case.run(*argv)
    if done.code < 2:
        json.loads(done.output, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _triage(dump: Path) -> object:
    return triage.examine(dump, ExitStatus.of(-11))


def _reads(case: Case, reader: Callable[[Path], object], dump: Path) -> None:
    try:
        reader(dump)
    except RewriterError as error:
        case.expect(error.code == 2, f"{error.slug} is said to be our own failure")


test_mutated_dumps = fuzzing.seeded_test("dumps", fuzz_dump, few=12, many=5_000)
