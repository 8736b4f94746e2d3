"""Whether what launches received is what was written: dumps written by hand, beside a wrapper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dumps
from rewriter.diagnosis.corruption import changed_values, examine_corruption
from rewriter.diagnosis.verification import functional
from rewriter.dump.reading import Dump, open_dump

WRAPPER = """
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf1)
    buf2 = buf0; del buf0  # reuse
    LINE
    buf3 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(buf1, buf2, out=buf3)
    return (buf3, )
"""

MM = "extern_kernels.mm"
FACTS: dict[str, Any] = {"kind": "extern_out", "scope": "call"}


def _value(name: str, role: str = "in", mean: float = 0.0, **more: Any) -> dumps.Row:
    return dumps.value(name, role, mean, **{"fingerprint": f"{mean}", **more})


X = _value("arg0_1", mean=5.0)


def _written(
    folder: Path, launches: list[Any], text: str = WRAPPER.replace("    LINE\n", "")
) -> Dump:
    where = {"artifact": "wrapper.py", "wrapper": text}
    return open_dump(dumps.write(folder / "x.dump", launches, inputs=[X], **where))


def _dump(tmp_path: Path, received: float, line: str = "", kernel: str = MM, **more: Any) -> Dump:
    """#0 writes buf0 around 1, #1 writes buf1; #2 receives buf0, as buf2, around `received`."""
    more = {**FACTS, "buffers": {"buf2": "buf0"}, **more}
    read = [_value("buf1", "in", 2.0), _value("buf2", "in", received)]
    launches = [
        dumps.launch(0, MM, [X], [_value("buf0", "out", 1.0)], line=14, **FACTS),
        dumps.launch(1, MM, [X], [_value("buf1", "out", 2.0)], line=16, **FACTS),
        dumps.launch(2, kernel, read, [_value("buf3", "out", 3.0)], line=20, **more),
    ]
    return _written(tmp_path, launches, WRAPPER.replace("    LINE\n", f"    {line}\n" * bool(line)))


def test_what_changed_between_two_launches_names_the_one_in_between(tmp_path: Path) -> None:
    (found,) = examine_corruption(_dump(tmp_path, received=1.5)).findings
    assert (found.kind, found.launch, found.certainty) == ("corrupted", 1, "likely")
    assert "changes buf2, which it is not given" in found.headline
    assert "mean 1 " in found.text[0]
    assert "mean 1.5 " in found.text[1]


def test_what_is_received_as_it_was_written_is_counted(tmp_path: Path) -> None:
    found = examine_corruption(_dump(tmp_path, received=1.0))
    assert found.findings == ()
    assert "received as they had been written" in found.ruled_out


@pytest.mark.parametrize(
    ("line", "more"),
    [
        pytest.param("buf2.zero_()", {}, id="updated-by-a-line"),
        pytest.param("helper(buf2)", {}, id="call-that-nobody-knows"),
        pytest.param("", {"repeats": True}, id="of-a-loop"),
    ],
)
def test_what_else_may_have_written_it_is_no_finding(
    line: str, more: dict[str, Any], tmp_path: Path
) -> None:
    assert examine_corruption(_dump(tmp_path, 1.5, line, **more)).findings == ()


def _changing(dump: Dump, **to: Any) -> Dump:
    """The same dump, but #2 changes `buf1`."""

    def change(rows: list[dumps.Row]) -> None:
        for row in rows:
            if (row.get("launch"), row["phase"], row["arg"]) == (2, "after", "buf1"):
                row.update(to or {"fingerprint": "another"})

    dumps.change_rows(dump.path, change)
    return open_dump(dump.path)


@pytest.mark.parametrize("to", [{"fingerprint": "another"}, {"fingerprint": "", "mean": 7.0}])
@pytest.mark.parametrize("schema", ["", "own::mix(Tensor a, Tensor b) -> Tensor"])
def test_what_an_operator_without_a_schema_changes_it_may_update(
    schema: str, to: dict[str, Any], tmp_path: Path
) -> None:
    facts = {"kind": "custom_op", "schema": schema}
    dump = _changing(_dump(tmp_path, 1.0, kernel="torch.ops.own.mix.default", **facts), **to)
    found = [x.headline for x in examine_corruption(dump).findings]
    assert len(found) == bool(schema)
    assert all("changes buf1, which it is only given to read" in x for x in found)
    changed = functional.changed_by(dump.runs[0])
    assert changed == ({} if schema else {"own.mix.default": frozenset({0})})


@pytest.mark.parametrize("unread", [(), ("buf0",)])
def test_at_which_place_it_is_given_that_is_known_if_all_inputs_were_recorded(
    unread: tuple[str, ...], tmp_path: Path
) -> None:
    facts = {**FACTS, "kind": "custom_op"}
    read, made = [_value("buf1", "in", 2.0)], [_value("buf3", "out", 3.0)]
    table, rows = dumps.launch(2, "torch.ops.own.mix.default", read, made, **facts)
    table["reads"] = [["in", name] for name in unread]
    dump = _changing(_written(tmp_path, [(table, rows)], WRAPPER))
    changed = functional.changed_by(dump.runs[0])
    assert changed == ({} if unread else {"own.mix.default": frozenset({0})})


def test_what_a_launch_is_only_given_to_read_and_changes_names_it(tmp_path: Path) -> None:
    dump = _changing(_dump(tmp_path, received=1.0))
    (found,) = examine_corruption(open_dump(dump.path)).findings
    assert (found.kind, found.launch, found.certainty) == ("corrupted", 2, "shown")
    assert "changes buf1, which it is only given to read" in found.headline
    assert [line.partition(":")[0] for line in found.text] == [
        "buf1 as #2 received it", "buf1 as #2 left it"
    ]  # fmt: skip


def _at_ends(tmp_path: Path, left: list[float]) -> Dump:
    """A dump of both ends of values: `left` is the mean of the input behind each of three launches,
    of which the last two read it."""
    launches = []
    for n, (mean, line) in enumerate(zip(left, (14, 16, 20), strict=True)):
        read = [_value("arg0_1", "in", mean)] * bool(mean)
        made = [_value(f"buf{n}", "out", n)]
        launches.append(dumps.launch(n, MM, read, made, line=line, when="after", **FACTS))
    return _written(tmp_path, launches)


def test_what_changed_between_its_ends_is_named_by_looks_behind_each_launch(tmp_path: Path) -> None:
    ends = _at_ends(tmp_path, [0.0, 5.5, 0.0])
    (changed,) = changed_values(ends)[0]
    assert changed.is_open
    assert [step.launch for step in changed.between] == [0, 1]
    (found,) = examine_corruption(ends).findings
    assert (found.launch, found.certainty, found.others) == (1, "likely", (0, 1))
    assert "it, or a launch in between, changed it" in found.headline
    watched = _at_ends(tmp_path / "again", [5.5, 5.5, 0.0])
    (found,) = examine_corruption(ends, watched).findings
    assert (found.launch, found.certainty) == (0, "shown")
    assert "changes arg0_1, which it is only given to read" in found.headline


def test_an_input_that_does_not_change_when_it_is_watched_changed_before(tmp_path: Path) -> None:
    ends, watched = _at_ends(tmp_path, [0.0, 5.5, 0.0]), _at_ends(tmp_path / "again", [5.0] * 3)
    (found,) = examine_corruption(ends, watched).findings
    assert (found.launch, found.certainty, found.others) == (1, "likely", (0, 1))


def test_an_input_is_not_watched_where_one_launch_alone_reads_it(tmp_path: Path) -> None:
    (changed,) = changed_values(_at_ends(tmp_path, [5.5, 0.0, 0.0]))[0]
    assert [step.launch for step in changed.between] == [0]
    assert not changed.is_open


def test_what_is_at_its_last_reader_as_it_was_given_is_ruled_out(tmp_path: Path) -> None:
    found = examine_corruption(_at_ends(tmp_path, [0.0, 5.0, 0.0]))
    assert "1 value was received as it had been written" in found.ruled_out


def test_memory_that_is_written_through_a_part_of_its_new_owner_is_another_value(
    tmp_path: Path,
) -> None:
    """A concatenation takes over a buffer, and is written by two launches; the second reads what
    the first wrote through the whole."""
    text = WRAPPER.replace("    LINE\n", "    buf4 = reinterpret_tensor(buf2, (2, 8), (8, 1), 0)\n")
    text = text.replace("buf2 = buf0; del buf0  # reuse", "buf2 = buf9; del buf9  # reuse")

    def launch(n: int, line: int, read: dumps.Row, made: dumps.Row, buffers: dict[str, str]) -> Any:
        return dumps.launch(n, MM, [read], [made], line=line, buffers=buffers, **FACTS)

    part = _value("buf4", "out", 2.0, shape=[2, 8], numel=16)
    launches = [
        launch(0, 14, X, _value("buf9", "out", 1.0), {"buf9": "buf0"}),
        launch(1, 16, X, part, {"buf4": "buf0"}),
        launch(2, 20, _value("buf2", "in", 3.0), _value("buf3", "out", 4.0), {"buf2": "buf0"}),
    ]
    assert examine_corruption(_written(tmp_path, launches, text)).findings == ()
