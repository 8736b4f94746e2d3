"""Mutated wrappers through `list`, `instrument`, `strip` and `diff`: refused, or right."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

import fuzzing
import mutators
from artifacts import CPP_FIXTURES, FIXTURES
from fuzzing import Case, Outcome

pytestmark = pytest.mark.properties

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
# Small ones, so that many cases fit into a run.
_LARGEST = {"python": 18_000, "cpp_wrapper": 16_000, "wrapper.cpp": 36_000}
_PROBES = (
    ("--probe", "names"),
    ("--probe", "print"),
    ("--probe", "print", "--when", "both"),
    ("--probe", "inputs,print"),
    ("--probe", "names,print,save", "--when", "both"),
    ("--probe", "hash,names,print,save,sync,time,inputs", "--when", "both"),
    ("--probe", "print", "--format", "upstream", "--when", "both"),
    ("--probe", "print", "--launches", "0-1"),
    ("--probe", "print", "--standalone"),
)


@lru_cache(maxsize=1)
def corpus() -> dict[str, tuple[tuple[str, bytes], ...]]:
    """By language: name and text of each wrapper that is small enough."""
    found: dict[str, list[tuple[str, bytes]]] = {kind: [] for kind in _LARGEST}
    for fixture in (*FIXTURES, *CPP_FIXTURES):
        kind = fixture.path.name if fixture.path.suffix == ".cpp" else fixture.kind
        if len(fixture.data) <= _LARGEST[kind]:
            found[kind].append((fixture.path.name, fixture.data))
    found["traced"] = [
        (path.name, path.read_bytes())
        for path in sorted(TRACES.rglob("*"))
        if path.suffix in (".log", ".txt", ".html") or path.name == "output_code.py"
    ]
    return {kind: tuple(members) for kind, members in found.items()}


def fuzz_wrapper(case: Case) -> None:
    """Mutate a wrapper; where it can be instrumented, mutate the result, too."""
    choices = case.random
    kind = choices.choices(("python", "cpp_wrapper", "wrapper.cpp", "traced"), (5, 3, 2, 2))[0]
    name, data = choices.choice(corpus()[kind])
    others = tuple(text for texts in corpus().values() for _, text in choices.sample(texts, 1))
    mutant = case.write(name, mutators.mutate(choices, data, others))
    original = mutant.read_bytes()
    case.run("list", mutant, *choices.choice(((), ("--json",))))
    if kind == "traced" and mutant.suffix != ".py":
        _through_directory(case, mutant)
        return
    result = case.folder / f"result{mutant.suffix}"
    done = case.run("instrument", mutant, "-o", result, *choices.choice(_PROBES))
    case.expect(done.code == 0 or done.code == 2, "instrument neither did it nor refused")
    if done.code == 2:
        _stays_as_it_is(case, mutant, original)
        return
    _restores(case, result, original)
    if b"rewriter:" not in original:
        same = case.run("diff", mutant, result)
        case.expect(same.code == 0, "diff finds a difference between a wrapper and its probes")
    other = case.folder / f"other{mutant.suffix}"
    case.run("instrument", result, "--replace", "-o", other, *choices.choice(_PROBES))
    case.expect(case.outcomes[-1].code == 0, "probes cannot be replaced")
    _restores(case, other, original)
    if choices.random() < 0.5:
        _mutate_instrumented(case, result, mutant)


def _restores(case: Case, result: Path, original: bytes) -> None:
    stripped = case.folder / f"stripped{result.suffix}"
    case.run("strip", result, "-o", stripped, "--overwrite")
    case.expect(case.outcomes[-1].code == 0, "strip refuses what instrument wrote")
    case.expect(stripped.read_bytes() == original, "strip is not exact")


def _stays_as_it_is(case: Case, mutant: Path, original: bytes) -> None:
    """A refusal of `instrument` is one of `--in-place`, and says the file."""
    refused = case.outcomes[-1]
    case.expect(_tells(refused, mutant), "a refusal without a name or a place")
    if case.random.random() < 0.1:
        again = case.run("instrument", mutant, "--in-place")
        case.expect(again.code == 2 or again.slug == "", "refused otherwise in place")
    case.expect(mutant.read_bytes() == original, "the wrapper changed")


def _tells(refused: Outcome, mutant: Path) -> bool:
    return bool(refused.slug) and mutant.name in refused.errors


def _mutate_instrumented(case: Case, result: Path, mutant: Path) -> None:
    """An instrumented file that somebody edited: every command takes it or refuses it."""
    choices = case.random
    edited = case.write(f"edited{result.suffix}", mutators.mutate(choices, result.read_bytes()))
    case.run("list", edited)
    case.run("strip", edited, "-o", case.folder / f"plain{result.suffix}")
    case.run("instrument", edited, "--replace", "--in-place", *choices.choice(_PROBES))
    case.run("diff", mutant, edited, *choices.choice(((), ("-u",), ("--json",), ("--all",))))


def _through_directory(case: Case, mutant: Path) -> None:
    """A log, or a page of one: its wrappers go into a directory, and come back from it."""
    folder = case.folder / "out"
    done = case.run("instrument", mutant, "-o", folder, *case.random.choice(_PROBES))
    if done.code == 0 and folder.is_dir():
        case.run("strip", folder, "-o", case.folder / "plain")
        case.run("diff", mutant, folder)


test_mutated_wrappers = fuzzing.seeded_test("wrappers", fuzz_wrapper, few=25, many=20_000)
