"""Ranks that compare alike share one comparison: it comes to what a comparison of each would."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import dumps
from dumps import launch, value
from rewriter.commands._documents.compare import document
from rewriter.comparison.dumps import describe_ranks, ranks
from rewriter.comparison.dumps.ranks import compare_ranks
from rewriter.core.documents import as_json
from rewriter.core.errors import RewriterError
from rewriter.dump.document_files import RunTables
from rewriter.dump.reading import open_dump


def _value(name: str, role: str, mean: float, rank: int, **fields: Any) -> dumps.Row:
    digest = hashlib.md5(f"{name}{mean}".encode()).hexdigest()
    row = value(name, role, mean, device=f"cuda:{rank % 8}", **fields)
    return {**row, "fingerprint": digest}


def _write(dump: Path, means: list[list[float]], **fields: Any) -> Path:
    """A dump in which each rank has values around its number, one for each call."""
    for rank, calls in enumerate(means):
        for run, mean in enumerate(calls):
            given = _value("primals_1", "in", 1.0, rank)
            read, made = _value("a", "in", 2.0, rank), _value("b", "out", mean, rank, **fields)
            first = launch(0, "k_0", [given], [{**read, "role": "out"}])
            launches = [first, launch(1, "k_1", [read], [made])]
            known = {"fingerprint": {"name": "test", "version": 1}}
            dumps.write(dump, launches, inputs=[given], rank=rank, run=run, manifest=known)
    return dump


def _shown(dump: Path) -> tuple[str, list[str], str, Any]:
    found = compare_ranks(dump)
    made = as_json(document(found))
    for replica in made["replicas"]:
        assert (replica.pop("alike") is None) == (replica.pop("comparison") is not None)
    return (
        describe_ranks.verdict(found),
        list(describe_ranks.lines(found)),
        describe_ranks.groups(found),
        made,
    )


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few ranks share comparisons."""
    monkeypatch.setattr(ranks, "FEW", 1)


def _edit(dump: Path, rank: int, old: str, new: str) -> None:
    path = dump / f"rank{rank}" / "run0" / "events.jsonl"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")


SAME = [[3.0]] * 4
# The values of the calls of each rank, and what is replaced in the events of rank 1.
CASES: dict[str, tuple[list[list[float]], str, str]] = {
    "equal": ([[3.0, 4.0]] * 5, "", ""),
    "two odd": ([[3.0, 4.0], [3.0, 4.0], [3.0, 9.0], [3.0, 4.0], [3.0, 9.0]], "", ""),
    "each its own": ([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 10.0]], "", ""),
    "the first is odd": ([[9.0], [3.0], [3.0], [3.0 + 1e-9], [3.0]], "", ""),
    "equal to another launch": ([[3.0], [2.0], [3.0], [2.0]], "", ""),
    "NaN": (SAME, '"nan": 0', '"nan": 7'),
    "not finite": (SAME, '"std": 0.5', '"std": "nan"'),
    "no statistic": (SAME, '"std": 0.5', '"std": null'),
    "another device": (SAME, '"cuda:1"', '"cpu"'),
    "another kernel": (SAME, '"k_1"', '"k_2"'),
    "another shape": (SAME, "[4, 8]", "[8, 4]"),
    "not measured": (SAME, '"numel": 32, ', ""),
}


@pytest.mark.parametrize("case", CASES)
def test_shared_comparisons_come_to_the_same(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    means, old, new = CASES[case]
    dump = _write(tmp_path / "dump", means)
    _edit(dump, 1, old, new)
    shared = _shown(dump)
    monkeypatch.setattr(ranks.Reference, "find", lambda *_: None)
    assert _shown(dump) == shared


@pytest.mark.parametrize("number", ["1e999", "01", "+1", "NaN", "1."])
def test_numbers_that_are_none_are_errors(tmp_path: Path, number: str) -> None:
    dump = _write(tmp_path / "dump", [[3.0]] * 4)
    for rank in (2, 3):
        _edit(dump, rank, '"std": 0.5', f'"std": {number}')
    with pytest.raises(RewriterError) as caught:
        compare_ranks(dump)
    assert caught.value.slug == "corrupt-dump"


def test_many_ranks_are_compared_once_for_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    compare = ranks.compare

    def counted(ours: Any, *arguments: Any, **options: Any) -> Any:
        made.append(ours.runs[0].rank)
        return compare(ours, *arguments, **options)

    monkeypatch.setattr(ranks, "compare", counted)
    dump = _write(tmp_path / "dump", [[3.0]] * 20 + [[9.0]] + [[3.0]] * 19)
    found = compare_ranks(dump)
    assert made == [1, 20]
    assert found.odd == (20,)


def test_a_table_of_launches_is_read_once(tmp_path: Path) -> None:
    """As recorders write it: a file that each call has a link to; in a copy, each is a file."""
    dump = _write(tmp_path / "dump", [[3.0, 4.0]] * 3)
    files = sorted(dump.glob("rank*/run*/run.json"))
    content = json.loads(files[0].read_text())
    table = json.dumps({"launches": content.pop("launches")})
    for number, path in enumerate(files):
        path.write_text(json.dumps({**content, "label": "later" if number == 3 else ""}))
        if number % 2:
            path.with_name("launches.json").hardlink_to(files[0].with_name("launches.json"))
        else:
            path.with_name("launches.json").write_text(table)
    opened = open_dump(dump)
    assert len({id(run.facts.launches) for run in opened.runs}) == 1
    assert opened.runs[0].facts.launches
    assert [run.facts.label for run in opened.runs] == ["", "", "", "later", "", ""]


@pytest.mark.parametrize(
    "text",
    [
        '{"artifact": "x", "launches": [{"launch": 0}], "launches": []}',
        '{"launches": [], "artifact": "x", "launches": [{"launch": 0}]}',
        '{"artifact": "x", "launches": [{"launch": 0}]',
        '{"artifact": "x", "launches": [{"launch": 0}], "pid": "x"}',
    ],
)
def test_a_known_table_makes_no_damage_sound(tmp_path: Path, text: str) -> None:
    tables = RunTables()
    path = tmp_path / "run.json"
    path.write_text('{"artifact": "x", "launches": [{"launch": 0}]}', encoding="utf-8")
    assert len(tables.facts(path).launches) == 1
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RewriterError):
        tables.facts(path)
