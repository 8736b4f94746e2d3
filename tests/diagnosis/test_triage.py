"""What `examine` says of dumps written by hand: the launch, its arguments, where they came from."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dumps
import rewriter
import schemas
from artifacts import get
from rewriter.cli import main
from rewriter.core.documents import as_json
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.ruling import of_end, of_inputs
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict_text import describe
from rewriter.dump import names, timing
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import TensorRow, TimeRow
from rewriter.execution.conclusion import Conclusion, write_conclusion

ABORTED = ExitStatus(None, int(signal.SIGABRT))
X = dumps.value("x", mean=3.0)
MLP = get("cpu-torch2.13/mlp")

OUT = dumps.value("buf1", "out", 2.0)


def launches(*, last: str = "before") -> list[Any]:
    """Three launches of one call, the record of the last one up to some phase."""
    facts = {"kind": "extern_out", "source_nodes": ["matmul"], "origins": ["aten.mm"]}
    before = [["in", "buf1"], ["in", "x"]]
    labels = {"before": before, "after": [*before, ["out", "buf2"]]}
    read, made = [dumps.value("buf1", mean=2.0), X], [dumps.value("buf2", "out")]
    return [
        dumps.launch(0, "cpp_fused_add_0", [X], [dumps.value("buf0", "out", 1.0)]),
        dumps.launch(1, "cpp_fused_mul_1", [dumps.value("buf0", mean=1.0)], [OUT]),
        dumps.launch(2, "extern_kernels.mm", read, made, when=last, **facts, **labels),
    ]


def write(dump: Path, found: list[Any], **where: Any) -> Path:
    return dumps.write(dump, found, inputs=[X], **where)


def add(dump: Path, row: dict[str, Any], rank: int = 0, run: int = 0) -> None:
    with (dump / f"rank{rank}/run{run}/events.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def stopped(dump: Path, seconds: float, *, rank: int = 0, run: int = 0) -> None:
    os.utime(dump / f"rank{rank}/run{run}/events.jsonl", (seconds, seconds))


INPUT = '{"phase": "inputs", "arg": "x", "role": "in", "type": "int", "value": "3"}\n'


@pytest.mark.parametrize("content", [None, "", INPUT])
def test_a_record_without_a_launch_gives_no_verdict(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "rank0/run0").mkdir(parents=True)
        (tmp_path / "rank0/run0/events.jsonl").write_text(content)
    assert examine(tmp_path, ABORTED) == ()


def test_the_launch_that_began_and_did_not_end(tmp_path: Path) -> None:
    (verdict,) = examine(write(tmp_path, launches()), ABORTED)
    assert (verdict.state, verdict.launch, verdict.kernel) == ("running", 2, "extern_kernels.mm")
    assert (verdict.kind, verdict.line, verdict.run) == ("extern_out", 102, "rank0/run0")
    assert (verdict.source_nodes, verdict.origins) == (("matmul",), ("aten.mm",))
    of = {argument.name: argument for argument in verdict.arguments}
    assert [argument.role for argument in verdict.arguments] == ["in", "in", "out"]
    made = of["buf1"].producer
    assert made is not None
    assert (made.launch, made.kernel, made.line) == (1, "cpp_fused_mul_1", 101)
    assert isinstance(made.row, TensorRow)
    assert made.row.mean == 2.0
    given = of["x"].producer
    assert given is not None
    assert given.launch is None
    assert of["buf2"].producer is None
    assert of["buf2"].row is None
    assert verdict.notes == ()
    text = describe(verdict, next_command="rewriter run x.py")
    assert text.splitlines()[0] == (
        "verdict: the program ended in launch #2 extern_kernels.mm (line 102): signal SIGABRT"
    )
    assert "written by #1 cpp_fused_mul_1 (line 101)" in text
    assert "f32[4, 8] stride [8, 1]  cpu  min 1 max 3 mean 2 nan 0 inf 0" in text
    assert "out   buf2  not recorded" in text
    assert "next: rewriter run x.py" in text
    json.dumps(as_json(verdict), allow_nan=False)


def test_what_it_was_given_is_known_where_each_value_is_recorded_once(tmp_path: Path) -> None:
    """As `--probe names,print` records it: nothing is read before a launch."""
    whole = examine(write(tmp_path / "whole", launches()), ABORTED)
    *done, (table, _) = dumps.each_once(launches(), [X])
    del table["before"]
    table |= {"after": [["out", "buf2"]], "reads": [["in", "buf1"], ["in", "x"]]}
    named = {"launch": 2, "phase": "before", "kernel": "extern_kernels.mm"}
    once = examine(write(tmp_path / "once", [*done, (table, [named])]), ABORTED)
    assert [x.notes for x in once] == [()]
    texts = [[describe(x, next_command="") for x in found] for found in (once, whole)]
    assert texts[0] == texts[1]


def test_without_names_the_next_launch_may_have_been_running(tmp_path: Path) -> None:
    """As `--probe print` records it: a launch is not in the record before it is over."""
    (verdict,) = examine(write(tmp_path, dumps.each_once(launches()[:2], [X])), ABORTED)
    assert (verdict.state, verdict.launch) == ("over", 1)
    dump = write(tmp_path / "more", dumps.each_once(launches(), [X])[:2])
    table = json.loads((dump / "rank0/run0/run.json").read_text())["launches"]
    dumps.change_facts(dump, launches=[*table, launches()[2][0]])
    (verdict,) = examine(dump, ABORTED)
    assert verdict.headline == (
        "the program ended after launch #1 cpp_fused_mul_1, in the next one or before it: "
        "signal SIGABRT"
    )
    assert "`--probe names,print` says which one was" in verdict.notes[0]
    assert verdict.wants[0] == "--probe names,print --args all"


@pytest.mark.parametrize("repeats", [False, True])
def test_a_launch_that_ended_is_not_the_one(repeats: bool, tmp_path: Path) -> None:
    """Nor is the last one of a loop the last of the call."""
    found = launches(last="both")
    found[2][0]["repeats"] = repeats
    found = found if repeats else [*found[:2], (found[2][0], [])]
    (verdict,) = examine(write(tmp_path, found), ExitStatus(3))
    assert verdict.state == "after"
    assert verdict.headline.startswith("the program ended after launch #")
    assert verdict.headline.endswith(", before another one began: exit code 3")


def test_after_the_last_launch_of_a_call_none_was_running(tmp_path: Path) -> None:
    dump = write(tmp_path, launches(last="both"))
    (verdict,) = examine(dump, ExitStatus(3))
    assert verdict.state == "over"
    assert verdict.headline == (
        "the program ended outside of launches, after launch #2 extern_kernels.mm (line 102), the "
        "last one of its call: exit code 3"
    )
    assert verdict.wants == ("", "")
    (verdict,) = examine(dump, ExitStatus(None, timed_out=True, message="still running after 9 s"))
    assert verdict.headline.startswith("still running after 9 s outside of launches, after launch")


def test_the_last_launch_that_is_probed_may_not_be_the_last(tmp_path: Path) -> None:
    """The copy of the wrapper has more."""
    dump = write(tmp_path, launches(last="both"), wrapper=MLP.data)
    assert len(rewriter.open(MLP.path).launches) > 3
    assert [verdict.state for verdict in examine(dump, ABORTED)] == ["after"]


def test_without_rows_after_launches_it_may_have_ended(tmp_path: Path) -> None:
    found = launches()
    del found[2][0]["after"]
    (verdict,) = examine(write(tmp_path, found), ABORTED)
    assert verdict.state == "begun"
    assert "the program ended in or after launch #2" in verdict.headline


def test_of_two_threads_the_one_in_a_launch_is_named(tmp_path: Path) -> None:
    """Though the other one was heard of later; where it was within a call, too, so is that."""
    for run, last in enumerate(("before", "both")):
        write(tmp_path, launches(last=last), run=run, pid=7, thread=run)
        stopped(tmp_path, 100 + run, run=run)
    (verdict,) = examine(tmp_path, ABORTED)
    assert (verdict.run, verdict.state, verdict.notes) == ("rank0/run0", "running", ())
    write(tmp_path, launches(), run=2, pid=7, thread=1)
    stopped(tmp_path, 102, run=2)
    both = examine(tmp_path, ABORTED)
    assert [verdict.run for verdict in both] == ["rank0/run0", "rank0/run2"]
    assert all(x.notes[-1].startswith("2 threads of the process were within") for x in both)


def test_threads_of_which_only_names_are_recorded(tmp_path: Path) -> None:
    """The backward of a GPU is in a thread of its own: the forward's last launch is none."""
    for run in range(2):
        found = launches()
        del found[2][0]["after"]
        write(tmp_path, found, run=run, pid=7, thread=run)
        stopped(tmp_path, 100 + run, run=run)
    assert [(x.run, x.state) for x in examine(tmp_path, ABORTED)] == [("rank0/run1", "begun")]


def test_a_value_that_changed_since_it_was_written(tmp_path: Path) -> None:
    found = launches()
    found[2][1][0] |= {"mean": 5.0, "nan": 3}
    (verdict,) = examine(write(tmp_path, found), ABORTED)
    text = describe(verdict, next_command="")
    assert "written by #1 cpp_fused_mul_1 (line 101); then min 1 max 3 mean 2 nan 0" in text
    assert verdict.notes[0].startswith("buf1 holds 3 NaN and 0 infinities of 32 elements")
    assert "next:" not in text


def test_names_alone_go_by_the_table(tmp_path: Path) -> None:
    found = launches()
    for _, rows in found:
        rows[:] = [{k: rows[0][k] for k in ("launch", "kernel", "phase")}]
    for (row, _), out in zip(found, ("buf0", "buf1", "buf2"), strict=True):
        row["after"] = [["out", out]]
    (verdict,) = examine(dumps.write(tmp_path, found), ABORTED)
    assert [(x.name, x.role) for x in verdict.arguments] == [
        ("buf1", "in"), ("x", "in"), ("buf2", "out")
    ]  # fmt: skip
    assert verdict.launches() == "1,2"
    assert verdict.wants[0] == "--probe names,print --args all"
    text = describe(verdict, next_command="")
    assert "in    buf1  not recorded\n        written by #1 cpp_fused_mul_1" in text
    assert "in    x  not recorded\n" in text
    assert "; then" not in text


def test_names_alone_go_by_the_copy_of_the_wrapper(tmp_path: Path) -> None:
    """`rewriter run` keeps the wrapper beside the record."""
    artifact = rewriter.open(MLP.path)
    ran = artifact.launches[:4]
    found = []
    for launch in ran:
        table, _ = dumps.launch(launch.index, launch.kernel, kind=launch.kind, line=launch.line)
        row = {"launch": launch.index, "phase": "before", "kernel": launch.kernel}
        found.append((table, [row]))
    (verdict,) = examine(dumps.write(tmp_path / "dump", found, wrapper=MLP.data), ABORTED)
    assert verdict.launch == ran[-1].index
    assert {x.name for x in verdict.arguments} == {
        x.name for x in ran[-1].args if x.type == "tensor"
    }
    reads = {x.name: x.producer for x in verdict.arguments if x.role != "out"}
    inputs = artifact.only.located.entries[0].inputs
    for name, producer in reads.items():
        assert producer is not None, name
        assert (producer.launch is None) == (name in inputs), name
    assert any("nothing is recorded after a launch" in note for note in verdict.notes)


def test_a_fault_that_sync_found(tmp_path: Path) -> None:
    found = launches(last="both")
    dump = write(tmp_path, found)
    error = "CUDA error: an illegal memory access was encountered"
    row = {"launch": 1, "kernel": "cpp_fused_mul_1"}
    add(dump, {**row, "phase": "after", "error": error})
    (verdict,) = examine(dump, ExitStatus(1, message="RuntimeError: CUDA error\nadvice"))
    assert (verdict.state, verdict.launch, verdict.error) == ("faulted", 1, error)
    assert verdict.headline == f"launch #1 cpp_fused_mul_1 (line 101) faulted: {error}"
    assert not verdict.asynchronous
    assert any("compute-sanitizer" in note for note in verdict.notes)


def test_a_fault_that_no_probe_saw_happen(tmp_path: Path) -> None:
    dump = write(tmp_path, launches()[:2])
    error = "CUDA error: misaligned address"
    add(dump, {"launch": 2, "kernel": "k", "phase": "before", "error": error})
    (verdict,) = examine(dump, ABORTED)
    assert (verdict.state, verdict.launch) == ("earlier", 2)
    assert "faulty before launch #2 k" in verdict.headline
    assert any("not probed may be" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("probes", "blocking", "asynchronous"),
    [(["names"], False, True), (["names"], True, False), (["names", "sync"], False, False)],
)
def test_faults_of_a_gpu_are_asynchronous(
    probes: list[str], blocking: bool, asynchronous: bool, tmp_path: Path
) -> None:
    dump = write(tmp_path, launches())
    manifest = json.loads((dump / "manifest.json").read_text())
    changed = {**manifest, "device": "NVIDIA H200", "probes": probes}
    (dump / "manifest.json").write_text(json.dumps(changed))
    (verdict,) = examine(dump, ABORTED, blocking=blocking)
    assert verdict.asynchronous == asynchronous
    assert (verdict.wants[0] == "--probe names,sync") == asynchronous
    assert any("--probe names,sync" in note for note in verdict.notes) == asynchronous


@pytest.mark.parametrize(
    ("kind", "device", "on_gpu"),
    [("cpp", "cpu", False), ("combo", "cpu", True), ("extern_out", "cuda:0", True)],
)
def test_what_runs_on_a_gpu(kind: str, device: str, on_gpu: bool, tmp_path: Path) -> None:
    read = dumps.value("x", device=device)
    dump = dumps.write(tmp_path, [dumps.launch(0, "k", [read], [], when="before", kind=kind)])
    (verdict,) = examine(dump, ABORTED)
    assert verdict.on_gpu == on_gpu


def test_indices_out_of_bounds_are_noted(tmp_path: Path) -> None:
    index = dumps.value("idx", dtype="int64", shape=[64], min=0, max=9)
    plain = dumps.launch(0, "cpp_fused_add_0", [X, index])
    named = dumps.launch(0, "cpp_fused_index_0", [X, index])
    fitting = dumps.launch(0, "cpp_fused_index_0", [X, {**index, "max": 7}])
    # A kernel of the user may take a tensor of 4 by 8 as one row of 32.
    flat = [
        dumps.launch(0, "scatter", [X, {**index, "max": n}], kind="triton_user") for n in (31, 32)
    ]
    notes = []
    for number, found in enumerate((plain, fitting, flat[0], named, flat[1])):
        found = (found[0], [row for row in found[1] if row["phase"] == "before"])
        (verdict,) = examine(dumps.write(tmp_path / str(number), [found]), ABORTED)
        notes.append([note for note in verdict.notes if "idx" in note])
    assert notes[:3] == [[], [], []]
    longest = "integers from 0 to 9, and no dimension of the other tensors is longer than 8"
    assert longest in notes[3][0]
    assert "and none of the other tensors has more than 32 elements" in notes[4][0]


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        pytest.param(
            ExitStatus(None, timed_out=True, message="after 5 s"), "after 5 s", id="limit"
        ),
        pytest.param(ExitStatus(None, 9), "signal SIGKILL", id="killed"),
        pytest.param(ExitStatus(1, message="E: no\nmore"), "E: no in", id="exception"),
        pytest.param(ExitStatus(7), "exit code 7", id="code"),
        pytest.param(ExitStatus(None, 35), "signal 35", id="real-time signal"),
    ],
)
def test_how_it_ended_is_said(ended: ExitStatus, says: str, tmp_path: Path) -> None:
    (verdict,) = examine(write(tmp_path, launches()), ended)
    assert says in verdict.headline
    assert "#2 extern_kernels.mm" in verdict.headline
    assert any("dmesg" in note for note in verdict.notes) == (ended.signal == 9)


def test_memory_that_ran_out_is_noted(tmp_path: Path) -> None:
    message = "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"  # noqa: E501
    (verdict,) = examine(write(tmp_path, launches()), ExitStatus(1, message=message))
    assert any(note.startswith("An allocation failed") for note in verdict.notes)


def test_of_the_calls_of_a_process_the_last_counts(tmp_path: Path) -> None:
    for run in range(2):
        write(tmp_path, launches(last="both" if run else "before"), run=run, pid=7)
        stopped(tmp_path, 100 - run, run=run)
    (verdict,) = examine(tmp_path, ABORTED)
    assert (verdict.run, verdict.state, verdict.pid) == ("rank0/run0", "running", 7)


def test_each_process_has_a_verdict(tmp_path: Path) -> None:
    """One that was through with its launches is none that died, if another one was not."""
    for run, last in enumerate(("both", "before", "before")):
        write(tmp_path, launches(last=last), run=run, pid=run)
        stopped(tmp_path, 100 - run, run=run)
    assert [verdict.pid for verdict in examine(tmp_path, ABORTED)] == [2, 1]


def collective(rank: int, tmp_path: Path) -> None:
    name = "torch.ops._c10d_functional.wait_tensor.default"
    facts = {"kind": "collective", "after": [["in", "buf2"]]}
    waits = dumps.launch(3, name, [dumps.value("buf2")], when="before", **facts)
    write(tmp_path, [*launches(last="both"), waits], rank=rank)


def test_ranks_that_wait_are_not_guilty(tmp_path: Path) -> None:
    collective(0, tmp_path)
    write(tmp_path, launches(), rank=1)
    collective(2, tmp_path)
    for rank, at in enumerate((50, 90, 40)):
        stopped(tmp_path, at, rank=rank)
    verdicts = examine(tmp_path, ABORTED)
    states = [(x.rank, x.state) for x in verdicts]
    assert states == [(1, "running"), (2, "waiting"), (0, "waiting")]
    assert "while it waits for other ranks in launch #3" in verdicts[1].headline


def test_a_rank_that_died_between_calls_lets_others_wait(tmp_path: Path) -> None:
    collective(0, tmp_path)
    write(tmp_path, launches(last="both"), rank=1)
    assert [(x.rank, x.state) for x in examine(tmp_path, ABORTED)] == [(1, "over"), (0, "waiting")]


def test_a_rank_that_is_behind_is_named_with_the_one_that_waits(tmp_path: Path) -> None:
    write(tmp_path, launches(last="both"), rank=1)
    write(tmp_path, launches(last="both"))
    waits = dumps.launch(3, "wait_tensor", [dumps.value("buf2")], when="before", kind="collective")
    write(tmp_path, [*launches(last="both"), waits], run=1)
    message = "stopped at the time limit of 9 s"
    hung = ExitStatus(None, timed_out=True, message=message, stacks=("rank 1 at train.py:3",))
    verdicts = examine(tmp_path, hung)
    behind = "rank 1 is 1 call behind rank 0, which waits for it"
    assert [(x.rank, x.behind) for x in verdicts] == [(1, behind), (0, "")]
    found = of_end(hung, verdicts).findings
    assert [one.symptom for one in found] == [False, True]
    assert {one.text[0] for one in found} == {"rank 1 at train.py:3"}
    assert found[0].what.startswith(f"{verdicts[0].behind}: stopped at the time limit of 9 s ")


IDS = dumps.value("ids", dtype="int64", min=0, max=54)
TABLE = dumps.value("w", shape=[50, 64])
CHECKED = replace(ABORTED, check="index out of bounds: 0 <= tmp2 < 50L")


def test_the_index_that_a_kernel_refused(tmp_path: Path) -> None:
    """By the bound of its check, and not if no check is known to have failed."""
    row = dumps.launch(0, "cpp_fused_embedding_0", [IDS, TABLE], when="before", after=[])
    dump = dumps.write(tmp_path, [row], inputs=[IDS, TABLE])
    names.write(dump, {"": names.Names(inputs={"w": names.Input("embed.weight", "")})})
    (verdict,) = examine(dump, CHECKED)
    assert verdict.headline == (
        "index out of bounds in launch #0 cpp_fused_embedding_0 (line 100): ids holds 54, "
        "embed.weight has 50 rows"
    )
    assert verdict.notes == ()
    assert verdict.wants[0] == "--launches 0 --probe print,save --args all"
    raised = ExitStatus(1, message="RuntimeError: …", scope="compiled", check=CHECKED.check)
    (of_exception,) = examine(dump, raised)
    assert of_exception.headline == verdict.headline
    (verdict,) = examine(dump, ABORTED)
    assert verdict.headline.endswith("signal SIGABRT")
    dumps.write(dump, [row], inputs=[IDS, TABLE], run=1)
    (verdict,) = examine(dump, CHECKED)
    assert verdict.wants[0].endswith(" --args all --calls 1")  # the second call, counted from 0
    within = replace(CHECKED, check="index out of bounds: 0 <= tmp2 < 60L")
    assert "index" not in examine(dump, within)[0].headline.partition("launch")[0]


def test_the_seed_of_a_dropout_is_no_index(tmp_path: Path) -> None:
    seed = dumps.value("buf0", "out", dtype="int64", min=-(2**62), max=-(2**62))
    read = [{**seed, "role": "in"}, IDS, TABLE]
    found = [
        dumps.launch(0, "aten.randint.low_out", [], [seed]),
        dumps.launch(1, "cpp_fused_embedding_dropout_0", read, when="before", after=[]),
    ]
    dump = dumps.write(tmp_path, found, inputs=[IDS, TABLE])
    assert [one.index for one in examine(dump, CHECKED)] == ["ids holds 54, w has 50 rows"]
    (verdict,) = examine(dump, ABORTED)
    assert not any("buf0 holds" in note for note in verdict.notes)


@pytest.mark.parametrize("operator", ["embedding", "index"])
def test_a_negative_index_is_only_refused_in_an_embedding(operator: str, tmp_path: Path) -> None:
    given = [{**IDS, "min": -1, "max": 49}, TABLE]
    row = dumps.launch(0, f"cpp_fused_{operator}_0", given, when="before", after=[])
    (verdict,) = examine(dumps.write(tmp_path, [row], inputs=given), CHECKED)
    assert verdict.index == ("ids holds -1, w has 50 rows" if operator == "embedding" else "")


def test_ranks_that_all_wait_hang_there(tmp_path: Path) -> None:
    collective(0, tmp_path)
    collective(1, tmp_path)
    ended = ExitStatus(None, timed_out=True, message="still running after 9 s")
    verdicts = examine(tmp_path, ended)
    assert [x.state for x in verdicts] == ["running", "running"]
    assert verdicts[0].headline.startswith("still running after 9 s in launch #3")


# --- Rows of the probes sync, time and inputs, and of CUDA graphs -------------------------------


def decorated(dump: Path) -> Path:
    """A complete record with every kind of row that says something other than a value."""
    found = launches(last="both")
    for row in found[1][1]:
        row["captured"] = True
    write(dump, found)
    path = dump / "rank0/run0/events.jsonl"
    lines = path.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "unexpected": "size [4, 8], expected [4, 9]"})
    for index, start in ((1, 10.0), (0, 2.5), (2, 30.25)):  # the device tells late
        kernel = found[index][0]["kernel"]
        time = {"start_us": start, "duration_us": 4.0 + index, "clock": "cuda"}
        row = {"launch": index, "phase": "after", "kernel": kernel, "time": time}
        lines.insert(-1, json.dumps(row))
    path.write_text("".join(line + "\n" for line in lines))
    return dump


def test_other_rows_are_no_steps(tmp_path: Path) -> None:
    plain = open_dump(write(tmp_path / "plain", launches(last="both"))).runs[0]
    other = open_dump(decorated(tmp_path / "other")).runs[0]
    assert [str(step) for step in other.steps] == [str(step) for step in plain.steps]
    assert len(list(other.having("time", TimeRow))) == 3
    for a, b in zip(plain.steps, other.steps, strict=True):
        assert [x.name for x in plain.rows(a)] == [x.name for x in other.rows(b)]


@pytest.mark.parametrize(
    ("unexpected", "by_guards"),
    [
        ("the guard 2<=s7 does not hold (s7 is 1 by x)", True),
        ("size [4, 8], expected [4, 9]; the guard 2<=s7 does not hold (s7 is 1 by x)", False),
    ],
)
def test_an_input_that_breaks_only_guards_is_marked(
    unexpected: str, by_guards: bool, tmp_path: Path
) -> None:
    path = write(tmp_path, launches(last="both")) / "rank0/run0/events.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    changed = json.dumps({**json.loads(first), "unexpected": unexpected})
    path.write_text("".join([changed + "\n", *others]))
    (found,) = of_inputs(open_dump(tmp_path)).findings
    assert unexpected in found.what
    assert found.by_guards == by_guards


def test_compare_and_report_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, other = write(tmp_path / "a", launches(last="both")), decorated(tmp_path / "b")
    assert main(["compare", str(plain), str(other)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["report", str(plain), "--json"]) == 0
    capsys.readouterr()
    assert main(["report", str(other), "--json", "-o", str(tmp_path / "page.html")]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["kind"] == "unexpected"
    assert "x: size [4, 8], expected [4, 9]" in finding["text"]
    error = {"launch": 1, "kernel": "cpp_fused_mul_1", "phase": "after", "error": "CUDA error: x"}
    add(other, error)
    assert main(["report", str(other), "--json", "-o", str(tmp_path / "fault.html")]) == 1
    report = json.loads(capsys.readouterr().out)
    finding = next(x for x in report["findings"] if x["kind"] == "fault")
    assert "faulty right after #1 cpp_fused_mul_1: CUDA error: x." in finding["text"]
    assert "Where the device faults" in (tmp_path / "fault.html").read_text()
    schema = schemas.schema("report")
    jsonschema.validate(report, schema)


def test_times_are_added_up(tmp_path: Path) -> None:
    dump = decorated(tmp_path)
    timed = timing.table(dump)
    assert [(x.launch, x.runs, x.total, x.clock) for x in timed] == [
        (2, 1, 6.0, "cuda"), (1, 1, 5.0, "cuda"), (0, 1, 4.0, "cuda")
    ]  # fmt: skip
    assert sum(x.share for x in timed) == pytest.approx(1)
    head, first, *_ = timing.lines(timed)
    assert head == ["#", "kernel", "runs", "total µs", "mean µs", "share", "clock"]
    assert first == ["2", "extern_kernels.mm", "1", "6.0", "6.0", "40.0%", "cuda"]


def test_a_trace_is_what_viewers_read(tmp_path: Path) -> None:
    """https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""
    decorated(tmp_path)
    write(tmp_path, [], run=1)
    other = tmp_path / "rank0/run2"
    decorated(tmp_path / "again")
    (tmp_path / "again/rank0/run0").rename(other)
    dumps.change_facts(tmp_path, started=1000.0)
    dumps.change_facts(tmp_path, run=2, started=1000.5)
    path = timing.write_trace(tmp_path)
    assert path == tmp_path / "trace.json"
    trace = json.loads(path.read_text())
    named = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in named} == {"process_name", "thread_name"}
    assert {event["args"]["name"] for event in named} == {"rank 0", "output_code.py"}
    assert [event["ts"] for event in events] == [
        2.5, 10.0, 30.25, 500002.5, 500010.0, 500030.25
    ]  # fmt: skip
    assert all(event["dur"] > 0 for event in events)
    assert [event["name"] for event in events[:3]] == [
        "cpp_fused_add_0", "cpp_fused_mul_1", "extern_kernels.mm"
    ]  # fmt: skip
    assert {(event["pid"], event["tid"]) for event in events} == {(0, 0)}
    assert events[2]["args"]["source_nodes"] == ["matmul"]
    assert timing.write_trace(tmp_path) == path


def test_a_part_of_a_dump_says_whether_the_program_ended_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in range(2):
        write(tmp_path, launches(last="before" if run else "both"), run=run)
        stopped(tmp_path, 10 + run, run=run)
    write_conclusion(tmp_path, Conclusion(ABORTED))
    for part, is_there in (("rank0/run1", True), ("rank0", True), ("rank0/run0", False)):
        assert main(["triage", str(tmp_path / part)]) == 1
        out = capsys.readouterr().out
        assert ("ended in launch #2 extern_kernels.mm" in out) is is_there
        assert (
            f"did not end in this part of its dump\n  next: rewriter triage {tmp_path}" in out
        ) is (not is_there)


@pytest.mark.parametrize("part", ["", "rank0", "rank0/run0"])
def test_a_dump_with_a_nan_points_to_its_report(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = dumps.value("buf0", "out", nan=3)
    write(tmp_path, [dumps.launch(0, "cpp_fused_log_0", [X], [made])])
    write_conclusion(tmp_path, Conclusion(ExitStatus(0)))
    path = tmp_path / part
    assert main(["triage", str(path)]) == 0
    out = capsys.readouterr().out
    assert "nothing crashed" in out
    assert (
        f"makes the first NaN: 3 of 32 elements of buf0; see it with: rewriter report {path}" in out
    )
    assert main(["triage", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == f"rewriter report {path}"
