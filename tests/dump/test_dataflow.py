"""What launches were given, where each value is recorded once: `Flow.rows`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dumps
from dumps import value
from rewriter.dump.dataflow import Flow
from rewriter.dump.launched import reads, results, tensors
from rewriter.dump.reading import open_dump
from rewriter.dump.summary import DumpSummary, summarise

X = value("x", mean=3.0)


def launch(
    index: int,
    written: dumps.Row,
    *names: str,
    role: str = "in",
    shown: Sequence[dumps.Row] = (),
    **facts: Any,
) -> tuple[dumps.Row, list[dumps.Row]]:
    """A launch that reads these names, and `shown` of which there is a row at it."""
    table, rows = dumps.launch(index, "k", shown, [written], when="after", **facts)
    return {**table, "reads": [[role, name] for name in names]}, rows


def given(dump: Path) -> list[dict[str, tuple[str, Any]]]:
    """Of each launch, by name, the role and the mean of what it was given."""
    (run,) = open_dump(dump).runs
    flow = Flow(run)
    nodes = [node for node in flow.nodes if node.step.launch is not None]
    return [{row.arg: (row.role, row.mean) for row in tensors(reads(flow.rows(x)))} for x in nodes]


def test_what_earlier_launches_and_the_call_had(tmp_path: Path) -> None:
    memory = {"buf1": "buf0"}
    launches = [
        launch(0, value("buf0", "out", 1.0), "x"),
        launch(1, value("buf1", "inout", 2.0), "buf1", role="inout", buffers=memory),
        launch(2, value("y", "out"), "buf1", "x", buffers=memory),
    ]
    assert given(dumps.write(tmp_path, launches, inputs=[X])) == [
        {"x": ("in", 3.0)},
        {"buf1": ("inout", 1.0)},
        {"buf1": ("in", 2.0), "x": ("in", 3.0)},
    ]


def test_what_an_operator_without_a_schema_left_with_another_value(tmp_path: Path) -> None:
    """As one of the program in a C++ wrapper: its arguments are recorded after it, as read."""
    own = {"kind": "custom_op"}
    launches = [
        launch(0, value("buf0", "out", 1.0)),
        launch(1, value("buf1", "out", 5.0), shown=[value("buf0", mean=1.0)], **own),
        launch(2, value("buf2", "out", 5.0), shown=[value("buf0", mean=2.0)], **own),
        launch(3, value("buf3", "out"), "buf0"),
        # In a loop, the next turn has another value of this name.
        launch(4, value("buf4", "out", 5.0), shown=[value("buf0", mean=7.0)], iteration=1, **own),
    ]
    (run,) = open_dump(dumps.write(tmp_path, launches)).runs
    flow = Flow(run)
    assert [node.updated for node in flow.nodes] == [set(), set(), {"buf0"}, set(), set()]
    assert [row.arg for row in results(flow.rows(flow.nodes[2]))] == ["buf0", "buf2"]
    assert given(tmp_path)[3] == {"buf0": ("in", 2.0)}


def test_parts_of_a_buffer_that_several_launches_wrote(tmp_path: Path) -> None:
    memory = {"buf1": "buf3", "buf2": "buf3"}
    parts = [launch(n, value(f"buf{n}", "out", n), buffers=memory) for n in (1, 2)]
    found = given(dumps.write(tmp_path, [*parts, launch(3, value("y", "out"), "buf3")]))
    assert found[2] == {"buf3[buf1]": ("in", 1), "buf3[buf2]": ("in", 2)}


def test_memory_that_was_taken_over_holds_its_last_value(tmp_path: Path) -> None:
    """`buf2 = buf0` is written as a whole, and `buf4 = buf2` updated, as Inductor reuses memory."""
    memory = {"buf2": "buf0", "buf4": "buf0", "buf5": "x"}
    updated = launch(2, value("buf4", "inout", 3.0), buffers=memory, shown=[value("buf4", "inout")])
    updated[1].insert(0, {**updated[1][0], "phase": "before", **value("buf4", "inout", 2.0)})
    launches = [
        launch(0, value("buf0", "out", 1.0)),
        launch(1, value("buf2", "out", 2.0), "buf0", buffers=memory),
        updated,
        launch(3, value("buf5", "inout", 4.0), "buf5", role="inout", buffers=memory),
    ]
    (run,) = open_dump(dumps.write(tmp_path, launches, inputs=[X], outputs=["buf0"])).runs
    nodes = Flow(run).nodes
    assert [{name: [x.step for x in of] for name, of in node.given.items()} for node in nodes] == [
        {},
        {},
        {"buf0": [1]},
        {"buf4": [2]},
        {"buf5": [0]},  # an input of the call
        {"0: buf0": [3]},
    ]
    assert nodes[-1].earlier == {"0: buf0": ()}


def test_a_part_that_is_updated_leaves_the_others(tmp_path: Path) -> None:
    memory = {"buf1": "buf3", "buf2": "buf3", "buf4": "buf3"}
    part = {"shape": [2, 8], "numel": 16}
    launches = [
        launch(1, value("buf1", "out", 1, **part), buffers=memory),
        launch(2, value("buf2", "out", 2, **part), buffers=memory),
        launch(3, value("buf1", "inout", 3, **part), "buf1", role="inout", buffers=memory),
        launch(4, value("y", "out"), "buf3"),
        launch(5, value("buf4", "inout", 5), "buf4", role="inout", buffers=memory),
        launch(6, value("z", "out"), "buf3"),
    ]
    found = given(dumps.write(tmp_path, launches))
    assert found[3] == {"buf3[buf1]": ("in", 3), "buf3[buf2]": ("in", 2)}
    assert found[5] == {"buf3": ("in", 5)}


def test_what_nobody_recorded_is_not_made_up(tmp_path: Path) -> None:
    constant = launch(0, value("buf0", "out"), "lost", shown=[value("weight")])
    dump = dumps.write(tmp_path, [constant])
    assert given(dump) == [{"weight": ("in", 0.0)}]
    (run,) = open_dump(dump).runs
    (node,) = Flow(run).nodes
    assert node.given == {"weight": (), "lost": ()}


def test_a_name_of_another_function_is_another_value(tmp_path: Path) -> None:
    written, inner = (
        launch(0, value("buf0", "out")),
        launch(1, value("y", "out"), "buf0", scope="f"),
    )
    assert given(dumps.write(tmp_path, [written, inner]))[1] == {}


def test_every_run_of_a_loop_has_its_own(tmp_path: Path) -> None:
    runs = [
        launch(index, value(f"buf{index}", "out", mean), *["buf0"] * index, iteration=turn)
        for turn, means in enumerate(((1.0, 2.0), (3.0, 4.0)))
        for index, mean in enumerate(means)
    ]
    found = given(dumps.write(tmp_path, runs))
    assert found == [{}, {"buf0": ("in", 1.0)}, {}, {"buf0": ("in", 3.0)}]


def test_the_rows_of_the_dump_stay_as_they_are(tmp_path: Path) -> None:
    dump = dumps.write(
        tmp_path, [dumps.launch(0, "k", [X], [value("buf0", "out", 1.0)])], inputs=[X]
    )
    (run,) = open_dump(dump).runs
    flow = Flow(run)
    assert [flow.rows(node) for node in flow.nodes] == [run.rows(node.step) for node in flow.nodes]
    assert [row.arg for row in results(flow.rows(flow.nodes[1]))] == ["buf0"]


def test_calls_launches_and_the_first_input_that_does_not_fit(tmp_path: Path) -> None:
    assert summarise(tmp_path) == DumpSummary()
    plain = [dumps.launch(0, "k", [X], [value("buf0", "out")]), launch(1, value("buf1", "out"))]
    dumps.write(tmp_path, plain, artifact="a.py")
    wrong = {**X, "unexpected": "not contiguous"}
    # The tenth call comes after the second.
    dumps.write(tmp_path, plain[:1], run=10, artifact="a.py", inputs=[wrong])
    dumps.write(tmp_path, plain, run=2, artifact="b.py", inputs=[wrong])
    seen = summarise(tmp_path)
    assert (seen.calls, seen.launches) == ({"a.py": 2, "b.py": 1}, 2 + 1 + 2)
    assert seen.unexpected is not None
    assert (seen.unexpected.artifact, seen.unexpected.run) == ("b.py", "rank0/run2")
    assert seen.unexpected.row.unexpected == "not contiguous"
