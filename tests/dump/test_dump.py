from __future__ import annotations

import json
from pathlib import Path

import pytest

import dumps
from rewriter.core.errors import RewriterError
from rewriter.dump.directory import dump_directory
from rewriter.dump.reading import is_dump, open_dump
from rewriter.dump.rows import CoverageRow, MemoryRow, TensorRow, read_row


def two_launches(dump: Path, **where: int) -> Path:
    return dumps.write(
        dump,
        [
            dumps.launch(0, "cpp_fused_add_0", [dumps.value("x")], [dumps.value("buf0", "out")]),
            dumps.launch(1, "cpp_fused_mul_1", [dumps.value("buf0")], [dumps.value("buf1", "out")]),
        ],
        inputs=[dumps.value("x")],
        **where,
    )


def test_steps_come_in_the_order_of_the_run(tmp_path: Path) -> None:
    (run,) = open_dump(two_launches(tmp_path)).runs
    assert [str(step) for step in run.steps] == ["inputs", "#0", "#1"]
    rows = run.rows(run.steps[2])
    assert [(row.phase, row.name) for row in rows] == [
        ("before", "buf0"),
        ("after", "buf0"),
        ("after", "buf1"),
    ]
    assert run.table[1].line == 101
    assert run.artifact == "output_code.py"


def test_iterations_are_steps_of_their_own(tmp_path: Path) -> None:
    body = [
        dumps.launch(3, "cpp_fused_0", [dumps.value("x")], [dumps.value("y", "out")], iteration=n)
        for n in range(3)
    ]
    (run,) = open_dump(dumps.write(tmp_path, body)).runs
    assert [str(step) for step in run.steps] == ["#3", "#3.1", "#3.2"]


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("", ["rank0/run0", "rank0/run2", "rank0/run10", "rank1/run0"]),
        ("rank0", ["rank0/run0", "rank0/run2", "rank0/run10"]),
        ("rank0/run10", ["rank0/run10"]),
    ],
)
def test_a_part_of_a_dump_is_named_by_its_path(tmp_path: Path, part: str, names: list[str]) -> None:
    for rank, run in [(0, 0), (0, 10), (0, 2), (1, 0)]:
        two_launches(tmp_path, rank=rank, run=run)
    dump = open_dump(tmp_path / part)
    assert [run.name for run in dump.runs] == names
    assert dump.manifest.torch == "2.13.0"


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    events = two_launches(tmp_path) / "rank0/run0/events.jsonl"
    events.write_bytes(events.read_bytes()[:-20])
    (run,) = open_dump(tmp_path).runs
    assert len(run.rows(run.steps[-1])) == 2


@pytest.mark.parametrize("damaged", ["events.jsonl", "run.json"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, damaged: str) -> None:
    file = two_launches(tmp_path) / "rank0/run0" / damaged
    file.write_text("[1, 2]\n{\n")
    with pytest.raises(RewriterError, match=damaged) as error:
        _ = [run.steps for run in open_dump(tmp_path).runs]
    assert error.value.slug == "corrupt-dump"


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("manifest.json", {"torch": 1, "seed": "", "inputs": "others", "probes": {}}),
        ("manifest.json", {"version": "2", "command": ["rewriter"], "device": None}),
        ("rank0/run0/run.json", {"format": "other", "version": "2", "label": 1, "call": -1}),
    ],
)
def test_what_is_only_shown_of_a_dump_is_no_damage(
    tmp_path: Path, file: str, fields: dict[str, object]
) -> None:
    path = two_launches(tmp_path) / file
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    dump = open_dump(tmp_path)
    assert [str(step) for step in dump.runs[0].steps]
    assert dump.manifest.artifact


@pytest.mark.parametrize("field", [{"time": [1]}, {"error": 1}, {"type": 1}])
def test_a_field_of_another_row_has_to_be_sound(tmp_path: Path, field: dict[str, object]) -> None:
    events = two_launches(tmp_path) / "rank0/run0/events.jsonl"
    first, *rest = events.read_text().splitlines()
    events.write_text("\n".join([json.dumps(json.loads(first) | field), *rest]) + "\n")
    with pytest.raises(RewriterError, match=f"line 1: {next(iter(field))} ") as error:
        _ = open_dump(tmp_path).runs[0].steps
    assert error.value.slug == "corrupt-dump"


def test_events_that_cannot_be_read(tmp_path: Path) -> None:
    events = two_launches(tmp_path) / "rank0/run0/events.jsonl"
    events.unlink()
    events.mkdir()
    with pytest.raises(RewriterError, match=r"events.jsonl: cannot be read") as error:
        open_dump(tmp_path)
    assert error.value.slug == "corrupt-dump"


@pytest.mark.parametrize("what", ["missing", "a file", "empty"])
def test_what_is_no_dump(tmp_path: Path, what: str) -> None:
    path = tmp_path / "dump"
    if what == "a file":
        path.write_text("")
    elif what == "empty":
        path.mkdir()
    with pytest.raises(RewriterError) as error:
        open_dump(path)
    assert error.value.slug == "not-a-dump"


@pytest.mark.parametrize(
    ("low", "high", "magnitude"),
    [(-3, 2.0, 3.0), (0, 10**400, None), (0.0, "inf", None), (0.0, "nan", None), (None, 1, None)],
)
def test_the_magnitude_is_a_number_or_unknown(low: object, high: object, magnitude: object) -> None:
    row = read_row({**dumps.value("x"), "phase": "after", "min": low, "max": high})
    assert isinstance(row, TensorRow)
    assert row.magnitude == magnitude


MEMORY = [
    {"event": "memory", "probe": "bounds", "what": "store out of bounds", "launch": 1, "since": 0,
     "buffer": "buf1", "allocated": 3, "side": "behind", "dtype": "float32", "value": "2.5"},
    {"event": "coverage", "probe": "poison", "done": 2, "skipped": 1, "why": {"pinned": 1}},
]  # fmt: skip


def test_rows_of_memory(tmp_path: Path) -> None:
    dump = two_launches(tmp_path)
    assert open_dump(dump).runs[0].memory == ()
    path = dump / "rank0/run0/memory.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MEMORY) + '{"event": "mem')
    store, coverage = open_dump(dump).runs[0].memory
    assert isinstance(store, MemoryRow)
    assert (store.launch, store.since, store.side, store.distance, store.count) == (
        1, 0, "behind", 0, 1
    )  # fmt: skip
    assert isinstance(coverage, CoverageRow)
    assert (coverage.done, coverage.why) == (2, {"pinned": 1})
    path.write_text(json.dumps({**MEMORY[0], "side": "beside"}) + "\n")
    with pytest.raises(RewriterError, match=r"memory.jsonl: line 1"):
        open_dump(dump).runs[0].memory  # noqa: B018


def test_what_is_a_dump_or_a_part_of_one(tmp_path: Path) -> None:
    dump = dumps.write(tmp_path / "x.dump", [])
    (dump / "w.py").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/manifest.json").write_text('{"format": "rewriter.dump"}')
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text('{"name": "a page"}')
    for none in (".", "nothing", "other", "x.dump/w.py", "x.dump/rank0/run0/run.json"):
        assert not is_dump(tmp_path / none)
    for one in ("x.dump", "x.dump/rank0", "x.dump/rank0/run0", "empty"):
        assert is_dump(tmp_path / one)
    (dump / "manifest.json").unlink()
    assert is_dump(dump)


def test_of_a_whole_diagnosis_the_run_that_recorded_most(tmp_path: Path) -> None:
    """`report`, `compare` and others take the directory that `diagnose` names, also of one that was
    interrupted before it wrote its document."""
    health = two_launches(tmp_path / "health")
    assert open_dump(tmp_path).path == health
    values = two_launches(tmp_path / "values")
    assert is_dump(tmp_path)
    assert open_dump(tmp_path).path == values
    with pytest.raises(RewriterError, match="holds a dump already"):
        dump_directory(Path("model.py"), tmp_path, overwrite=False)
    assert dump_directory(Path("model.py"), tmp_path, overwrite=True) == tmp_path
    assert not any(tmp_path.iterdir())


def test_a_directory_is_overwritten_also_by_its_usual_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two_launches(tmp_path / "model.dump")
    (tmp_path / "model.dump/manifest.json").write_text("{}")
    other = dump_directory(Path("model.py"), None, overwrite=False)
    assert other == tmp_path / "model.dump-2"
    assert dump_directory(Path("model.py"), None, overwrite=True) == tmp_path / "model.dump"
    assert not any((tmp_path / "model.dump").iterdir())
