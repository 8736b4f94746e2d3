"""What two runs say that differ in what unwritten memory is filled with: dumps written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from artifacts import get
from rewriter.diagnosis import filled_values, fills, sanitized
from rewriter.diagnosis.fill_patterns import pattern
from rewriter.diagnosis.findings import Finding
from rewriter.dump import processes
from rewriter.dump.processes import PieceOfModel, ProcessNames
from rewriter.dump.reading import open_dump

Values = dict[str, torch.Tensor]
ONES = torch.ones(4, 8)
FILLS = (0, 1)


def filled(probe: str, fill: int) -> torch.Tensor:
    """A matrix of 4 by 8 as a probe fills it."""
    word = bytearray(pattern(probe, fill, "float32") * 16)
    return torch.frombuffer(word, dtype=torch.float32).reshape(4, 8).clone()


def part(fill: int, probe: str = "poison") -> torch.Tensor:
    """A matrix whose last row nobody wrote."""
    return torch.cat([ONES[:3], filled(probe, fill)[3:]])


def write(
    folder: Path,
    launches: list[tuple[str, Values, Values]],
    x: float = 1.0,
    in_place: tuple[str, Collection[int]] = ("", ()),
    **facts: Any,
) -> Path:
    """A dump of launches that are given and write these values, with fingerprints and files.
    `in_place` is a result, and the launches that update it."""
    rows = []
    updated, by = in_place
    tensors: Values = {}
    of_launches = {name: facts.pop(name) for name in ("buffers", "scope") if name in facts}
    for index, (kernel, given, written) in enumerate(launches):
        reads = [_row(index, name, "in", value) for name, value in given.items()]
        writes = [
            _row(index, name, "inout" if name == updated and index in by else "out", value)
            for name, value in written.items()
        ]
        rows.append(dumps.launch(index, kernel, reads, writes, **of_launches))
        tensors |= {f"{index}-{name}.pt": value for name, value in (given | written).items()}
    facts = {"outputs": [[*launches[-1][2]][-1]], "tensors": tensors, **facts}
    inputs = [dumps.value("x", mean=x, fingerprint=f"{x}")]
    return dumps.write(folder, rows, inputs=inputs, **facts)


def _row(launch: int, name: str, role: str, value: torch.Tensor) -> dict[str, Any]:
    digest = value.contiguous().view(torch.int32).flatten().tolist()
    text = f"{hash(tuple(digest)) & (1 << 64) - 1:016x}"
    return dumps.value(name, role, fingerprint=text, file=f"{launch}-{name}.pt")


def compare(tmp_path: Path, runs: Iterable[Any], **more: Any) -> tuple[Any, list[Any]]:
    paths = [write(tmp_path / str(fill), run, **more) for fill, run in enumerate(runs)]
    compared = fills.compare_fills(*paths)
    return compared, fills.judge(compared.differences, *paths)


def findings(tmp_path: Path, runs: Iterable[Any], **more: Any) -> tuple[Finding, ...]:
    """Of two runs with another filling each."""
    return sanitized.of_fills(*compare(tmp_path, runs, **more)).findings


def test_launches_that_write_the_same_used_nothing_else(tmp_path: Path) -> None:
    run = [("a", {}, {"buf0": ONES}), ("b", {"buf0": ONES}, {"buf1": ONES * 2})]
    compared, reads = compare(tmp_path, [run, run])
    assert (compared.differences, compared.launches, compared.calls, reads) == ((), 2, 1, [])
    assert "2 launches of 1 call compute the same" in sanitized.of_fills(compared, reads).ruled_out


def test_what_is_carried_along_is_no_finding(tmp_path: Path) -> None:
    """A launch that leaves a row unwritten, and one that reads the others."""
    runs = [
        [("a", {}, {"buf0": part(fill)}), ("b", {"buf0": part(fill)}, {"buf1": ONES * 2})]
        for fill in FILLS
    ]
    compared, reads = compare(tmp_path, runs)
    assert [one.place for one in compared.differences] == [("rank0/run0", 0, 0)]
    assert reads == []
    assert "1 launch leaves some of it as it is" in sanitized.of_fills(compared, reads).ruled_out


@pytest.mark.parametrize(
    ("other", "is_filled", "is_rounded"),
    [
        (1 + 3e-7, False, True),
        (1.001, False, False),
        (math.nan, False, False),
        (1 + 3e-7, True, False),
    ],
)
def test_sums_in_another_order_are_not_read_out_of_bounds(
    other: float, is_filled: bool, is_rounded: bool, tmp_path: Path
) -> None:
    """Two runs with the same filling may have added in the same order by chance."""
    given = ({"x": filled("poison", fill)} if is_filled else {} for fill in FILLS)
    runs = [[("a", x, {"buf0": ONES * n})] for x, n in zip(given, (1.0, other), strict=True)]
    compared, reads = compare(tmp_path, runs)
    assert len(reads) == 1
    rounded = fills.rounded(compared.differences, tmp_path / "0", tmp_path / "1")
    assert rounded == (compared.differences if is_rounded else ())


def test_a_launch_that_varies_by_itself_is_not_judged(tmp_path: Path) -> None:
    """Sums in another order: they differ with the same filling, too."""
    runs = [
        [("a", {}, {"buf0": ONES}), ("b", {"buf0": ONES}, {"buf1": ONES * n})] for n in (2, 3, 4)
    ]
    compared, reads = compare(tmp_path, runs[:2])
    assert len(reads) == 1
    first = tmp_path / "0"
    assert fills.varying(compared.differences, first, first) == ()
    again = write(tmp_path / "again", runs[2])
    varying = fills.varying(compared.differences, first, again)
    assert [one.place for one in varying] == [("rank0/run0", 1, 0)]
    examined = sanitized.of_fills(compared, [], varying)
    assert examined.findings == ()
    assert examined.notes == (
        "not the same in two runs with the same filling, so not judged: 1 launch, "
        "the first of them #1 of rank0/run0",
    )
    assert "as it is" not in examined.ruled_out


LEFT = "does not write 8 of 32 elements of buf1, which the call returns"


@pytest.mark.parametrize("later", [None, "buf1"])
def test_what_the_call_returns_is_read_by_its_caller(tmp_path: Path, later: str | None) -> None:
    """A launch that leaves the last row of a result unwritten, which no later one writes."""
    behind: list[Any] = [("b", {}, {later: ONES})] * bool(later)
    found = findings(tmp_path, ([("a", {}, {"buf1": part(fill)}), *behind] for fill in FILLS))
    if later:
        assert found == ()
        return
    (finding,) = found
    assert (finding.kind, finding.launch, finding.what) == ("unwritten", 0, LEFT)
    assert finding.text[0] == "buf1[3, 0] is the first: it is uninitialised"


def test_a_filling_that_another_launch_passed_on_was_not_left(tmp_path: Path) -> None:
    """A running sum begins with the filling, which a copy of it holds, too."""
    runs = []
    for fill in FILLS:
        memory = filled("poison", fill)
        sums = {"buf1": memory.cumsum(1)}
        runs.append([("a", {"buf0": memory}, sums), ("b", sums, {"buf2": sums["buf1"]})])
    (finding,) = findings(tmp_path, runs)
    assert finding.launch == 0
    assert finding.what == "computes from uninitialised memory: buf0"


def test_what_is_updated_in_place_was_left_unwritten_by_who_wrote_it_first(tmp_path: Path) -> None:
    """Additions to some rows of a result, whose last row nobody wrote."""
    runs = []
    for fill in FILLS:
        added = {"buf1": torch.cat([ONES[:2] * 5, part(fill)[2:]])}
        runs.append([("a", {}, {"buf1": part(fill)}), ("b", {}, added), ("c", {}, added)])
    (finding,) = findings(tmp_path, runs, in_place=("buf1", {1, 2}))
    assert (finding.launch, finding.kernel, finding.what) == (0, "a", LEFT)
    assert finding.text[0] == "buf1[3, 0] is the first: it is uninitialised"


def test_an_empty_tensor_that_a_model_fills_in_part_is_no_finding(tmp_path: Path) -> None:
    runs = ([("b", {}, {"buf1": part(fill)})] for fill in FILLS)
    compared, found = compare(tmp_path, runs, in_place=("buf1", {0}))
    assert (len(compared.differences), found) == (1, [])


@pytest.mark.parametrize(
    ("probe", "kind", "what"),
    [
        ("poison", "unwritten", "computes from uninitialised memory: buf0"),
        ("stale", "stale", "computes from freed memory: buf0"),
    ],
)
def test_what_was_computed_from_it_names_the_launch(
    tmp_path: Path, probe: str, kind: str, what: str
) -> None:
    runs = []
    for fill in FILLS:
        memory = filled(probe, fill)
        made = {"buf1": memory + 1}
        runs.append([("a", {"buf0": memory}, made), ("b", made, {"buf2": memory + 2})])
    (finding,) = findings(tmp_path, runs)  # not those of who is given what another one computed
    assert (finding.kind, finding.launch, finding.what) == (kind, 0, what)
    assert finding.text[0].startswith("buf1[0, 0]: nan with the first filling, -1234")
    assert finding.text[1] == "32 of 32 elements that it writes differ"


def test_a_shape_that_depends_on_it_is_computed_from_it(tmp_path: Path) -> None:
    """As that of `nonzero`, of a mask that nobody wrote: what bool is filled with is the same for
    all probes."""
    paths = []
    for fill in FILLS:
        run = [("a", {"buf0": filled("poison", fill)}, {"buf1": ONES})]
        paths.append(write(tmp_path / str(fill), run))
        other = {"shape": [32 * fill, 2], "fingerprint": f"{fill}"}
        dumps.change_rows(paths[-1], lambda rows, other=other: rows[-1].update(other))
    compared = fills.compare_fills(*paths)
    (found,) = fills.judge(compared.differences, *paths)
    assert isinstance(found, fills.UnwrittenRead)
    assert str(found.element) == (
        "buf1: a shape of [0, 2] with the first filling, a shape of [32, 2] with the other"
    )
    values = [torch.full((4, 8), bool(fill)) for fill in (0, 1)]
    assert filled_values.compare_values("mask", *values).filled == {"poison": 32}


@pytest.mark.parametrize("kernel", [torch.relu, torch.nn.functional.silu, torch.sqrt])
def test_a_kernel_that_keeps_a_fill_keeps_no_other(tmp_path: Path, kernel: Any) -> None:
    """`relu` of NaN is NaN, and of a number that is greater than 0 the number."""
    memory = (filled("poison", fill) for fill in FILLS)
    runs = ([("a", {"buf0": x}, {"buf1": kernel(x)})] for x in memory)
    compared, found = compare(tmp_path, runs)
    assert [one.kind for one in sanitized.of_fills(compared, found).findings] == ["unwritten"]
    assert isinstance(found[0], fills.UnwrittenRead)


def test_a_launch_is_named_once_for_all_turns_and_calls(tmp_path: Path) -> None:
    memory = (filled("poison", fill) for fill in FILLS)
    runs = ([("a", {"buf0": x}, {"buf1": x * 2}), ("b", {}, {"buf2": x * 3})] for x in memory)
    compared, found = compare(tmp_path, runs)
    first, other = found
    steps = tuple(replace(step, iteration=1) for step in first.difference.steps)
    again = replace(first, difference=replace(first.difference, steps=steps))
    once, alone = sanitized.of_fills(compared, [first, again, other, again]).findings
    assert [(one.launch, one.iteration) for one in (once, alone)] == [(0, 0), (1, 0)]
    assert once.text[-1] == "the same 1 time more, in later calls or turns of a loop"
    assert "time more" not in alone.text[-1]


@pytest.mark.parametrize("factor", [1, 2])
def test_what_nothing_given_explains_was_read_outside(tmp_path: Path, factor: int) -> None:
    """Also what is the same behind the kernel: no buffer holds the filling of bands itself."""
    runs = []
    for fill in FILLS:
        result = ONES.clone()
        result[3, 7] = filled("bounds", fill)[0, 0] * factor
        runs.append([("a", {"buf0": ONES}, {"buf1": result})])
    (finding,) = findings(tmp_path, runs)
    assert (finding.kind, finding.launch) == ("bounds", 0)
    assert finding.text[0].startswith("buf1[3, 7]: nan")


def test_who_left_elements_out_is_named_beside_their_reader(tmp_path: Path) -> None:
    given = ({"buf0": part(fill)} for fill in FILLS)
    runs = ([("a", {}, left), ("b", left, {"buf1": left["buf0"] + 1})] for left in given)
    (finding,) = findings(tmp_path, runs)
    assert (finding.launch, finding.kind) == (1, "unwritten")
    assert "      launch #0 a writes buf0 and left them out: the fault may be there" in finding.text


def test_a_launch_may_read_its_own_result_that_it_did_not_write(tmp_path: Path) -> None:
    """A kernel of several loops, of which one ends too early: the next reads what it left."""
    runs = ([("a", {}, {"sums": part(fill), "buf1": ONES * (fill + 1)})] for fill in FILLS)
    compared, (read,) = compare(tmp_path, runs)
    assert read.given == {"sums": ("poison", 8)}
    (finding,) = sanitized.of_fills(compared, [read]).findings
    assert (finding.kind, finding.launch) == ("unwritten", 0)
    assert "computes from uninitialised memory: sums" in finding.headline


def test_calls_with_other_inputs_say_nothing(tmp_path: Path) -> None:
    run = [("a", {}, {"buf0": ONES})]
    other = [("a", {}, {"buf0": ONES * 3})]
    paths = [write(tmp_path / "0", run), write(tmp_path / "1", other, x=2.0)]
    compared = fills.compare_fills(*paths)
    assert (compared.differences, compared.calls) == ((), 0)
    assert compared.apart == ("rank0/run0: the two runs were given other inputs (x)",)
    share = sanitized.share([open_dump(paths[0])], (), compared.left)
    assert (share.checked, share.launches) == (0, 1)  # not "all launches were checked"
    note, hint = sanitized.of_fills(compared, []).notes
    assert "torch.manual_seed(0)" in hint
    assert note.startswith("not compared with the second filling: rank0/run0")


def test_many_calls_with_other_inputs_are_one_note(tmp_path: Path) -> None:
    """Such as those of threads, whose order differs from run to run."""
    for folder, mark in (("0", "one"), ("1", "other")):
        for number in range(3):
            given = [dumps.value("x", fingerprint=mark)]
            dumps.write(tmp_path / folder, [], inputs=given, run=number)
    compared = fills.compare_fills(tmp_path / "0", tmp_path / "1")
    why = "rank0/run0 and 2 other calls: the two runs were given other inputs (x)"
    assert compared.apart == (why,)


@pytest.mark.parametrize(("dtype", "calls"), [("int64", 1), ("float32", 0)])
def test_an_address_is_another_one_in_each_run(dtype: str, calls: int, tmp_path: Path) -> None:
    """vLLM gives an operator of oneDNN its weights by a number."""
    for folder, at in (("0", 94_492_703_848_576), ("1", 140_018_000_000_064)):
        facts = {"dtype": dtype, "shape": [], "stride": [], "numel": 1, "min": at, "max": at}
        dumps.write(tmp_path / folder, [], inputs=[dumps.value("x", fingerprint=folder, **facts)])
    compared = fills.compare_fills(tmp_path / "0", tmp_path / "1")
    assert (compared.calls, len(compared.apart)) == (calls, 1 - calls)


def test_what_decides_about_later_launches_is_found_before_them(tmp_path: Path) -> None:
    """A sum of unwritten memory, by which one branch or the other is taken."""
    runs: list[list[tuple[str, Values, Values]]] = []
    for fill in FILLS:
        left = {"buf0": part(fill)}
        launches = [("a", {}, left), ("b", left, {"buf1": ONES * left["buf0"].sum()})]
        runs.append([*launches, *[("c", left, {"buf2": ONES})] * fill])
    compared, reads = compare(tmp_path, runs)
    assert [one.difference.place for one in reads] == [("rank0/run0", 1, 0)]
    assert sanitized.of_fills(compared, reads).notes == (
        "not compared with the second filling: rank0/run0: the two runs did not launch the same "
        "behind launch #1",
    )


def test_outputs_that_stay_and_outputs_that_change(tmp_path: Path) -> None:
    run = [("a", {}, {"buf0": ONES})]
    same = [write(tmp_path / name, run) for name in ("plain", "0", "1")]
    (note,) = sanitized.of_outputs(same[0], same[1:]).notes
    assert note.startswith("outputs unchanged: the output of the call is the same")
    assert note.endswith("whether the values are right is not known")
    other = write(tmp_path / "other", [("a", {}, {"buf0": ONES * 2})])
    (note,) = sanitized.of_outputs(same[0], [same[1], other]).notes
    assert note == "outputs differ with what memory holds: buf0 of call 0"


def outputs(tmp_path: Path, make: Callable[[int], Any], **facts: Any) -> str:
    """What is said of the outputs of a run without fillings, and of two with some. `make` has the
    launches by a factor, which is another one in the last run."""
    runs = {"plain": 2, "0": 2, "1": 3}
    paths = [write(tmp_path / name, make(factor), **facts) for name, factor in runs.items()]
    (note,) = sanitized.of_outputs(paths[0], paths[1:]).notes
    return note


TAKES_OVER: dict[str, Any] = {"outputs": ["buf0"], "buffers": {"buf1": "buf0"}}


def test_an_output_is_what_was_written_to_its_memory_last(tmp_path: Path) -> None:
    """`buf1 = buf0; del buf0  # reuse`: the call returns the memory of buf0, under another name."""
    note = outputs(
        tmp_path, lambda n: [("a", {}, {"buf0": ONES}), ("b", {}, {"buf1": ONES * n})], **TAKES_OVER
    )
    assert note == "outputs differ with what memory holds: buf0 of call 0"


def test_what_is_left_unwritten_of_memory_that_was_taken_over_is_returned(tmp_path: Path) -> None:
    runs = ([("a", {}, {"buf0": ONES}), ("b", {}, {"buf1": part(n, "stale")})] for n in FILLS)
    (finding,) = findings(tmp_path, runs, **TAKES_OVER)
    assert (finding.kind, finding.launch, finding.what) == ("unwritten", 1, LEFT)


CAT = """# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile


def call(args):
    buf2 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    buf0 = reinterpret_tensor(buf2, (4, 8), (8, 1), 0)  # alias
    cpp_fused_a(buf0)
    buf1 = reinterpret_tensor(buf2, (4, 8), (8, 1), 32)  # alias
    cpp_fused_b(buf1)
    return (buf2, )
"""
TAKEN_OVER = """# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile


def call(args):
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_fused_a(buf0)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_b(buf1)
    return (buf1, )
"""


# Two launches write to the memory of one buffer.
PARTS: dict[str, Any] = {
    "buffers": {"buf0": "buf2", "buf1": "buf2"}, "outputs": ["buf2"], "scope": "call",
}  # fmt: skip
OVER: dict[str, Any] = {**TAKES_OVER, "scope": "call"}


@pytest.mark.parametrize(
    ("wrapper", "facts", "note"),
    [
        (CAT, PARTS, "outputs differ with what memory holds: buf2 of call 0"),
        (TAKEN_OVER, OVER, "outputs unchanged: the output of the call is the same in all runs"),
        ("", PARTS, "not known whether outputs changed of which not all was recorded: buf2 of"),
    ],
    ids=["cat", "taken-over", "no-wrapper"],
)
def test_an_output_is_all_that_launches_wrote_to_its_memory(
    tmp_path: Path, wrapper: str, facts: dict[str, Any], note: str
) -> None:
    """Parts are written by launches of their own; what was written over does not count."""

    def make(factor: int) -> list[Any]:
        return [("a", {}, {"buf0": ONES * factor}), ("b", {}, {"buf1": ONES})]

    assert outputs(tmp_path, make, wrapper=wrapper, **facts).startswith(note)


@pytest.mark.parametrize(
    ("wrapper", "facts", "launches"), [(CAT, PARTS, [0]), (TAKEN_OVER, OVER, [])]
)
def test_what_is_left_unwritten_of_a_part_is_returned(
    tmp_path: Path, wrapper: str, facts: dict[str, Any], launches: list[int]
) -> None:
    runs = ([("a", {}, {"buf0": part(fill)}), ("b", {}, {"buf1": ONES})] for fill in FILLS)
    found = findings(tmp_path, runs, wrapper=wrapper, **facts)
    assert [one.launch for one in found] == launches


def test_outputs_that_were_not_recorded_are_not_called_unchanged(tmp_path: Path) -> None:
    facts = {**OVER, "outputs": ["buf0", "buf7"], "wrapper": TAKEN_OVER}
    run = [("a", {}, {"buf0": ONES}), ("b", {}, {"buf1": ONES})]
    assert outputs(tmp_path, lambda _: run, **facts) == (
        "not known whether outputs changed of which not all was recorded: buf7 of call 0; "
        "the same in all runs: 1 output"
    )


def test_an_input_that_a_call_writes_is_seen_by_its_caller(tmp_path: Path) -> None:
    note = outputs(tmp_path, lambda n: [("a", {}, {"x": ONES * n}), ("b", {}, {"buf1": ONES})])
    assert note == "outputs differ with what memory holds: x of call 0"


def test_stores_beside_a_buffer_are_findings_once(tmp_path: Path) -> None:
    dump = write(tmp_path / "0", [("a", {}, {"buf0": ONES}), ("b", {}, {"buf1": ONES})])
    store = {
        "event": "memory", "probe": "bounds", "what": "store out of bounds", "launch": 1,
        "kernel": "b", "since": 0, "buffer": "buf1", "allocated": 1, "side": "behind",
        "distance": 0, "count": 1, "dtype": "float32", "value": "2.5",
    }  # fmt: skip
    coverage = {"event": "coverage", "probe": "bounds", "done": 2, "launches": 2,
                "skipped": 1, "why": {"its memory is pinned": 1}}  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in (store, coverage))
    (dump / "rank0/run0/memory.jsonl").write_text(lines)
    piece = PieceOfModel("submod_2", "(1, 128)", ("layers.0",))
    (run,) = open_dump(dump).runs
    names = ProcessNames("EngineCore", "rank_0_0", {run.sha256: (piece,)})
    processes.write(dump, {run.facts.pid or 0: names})
    opened = open_dump(dump)
    (finding,) = sanitized.of_rows([opened, opened], {"bounds"}).findings
    assert (finding.kind, finding.launch, finding.certainty) == ("bounds", 1, "shown")
    assert finding.what == "stores 2.5 out of bounds: directly behind buf1"
    assert finding.text[-1] == "in layers.0 (submod_2, sizes 1 to 128), EngineCore (rank_0_0)"
    known = sanitized.coverage([opened], {"bounds", "poison"})
    assert sanitized.coverage_lines(known) == [
        "bounds: 2 buffers with guard bands, 2 launches compared; not: its memory is pinned (1), "
        "inputs and weights, which the caller allocates (1)"
    ]


def test_calls_that_did_not_end_are_said_to_be_left_out(tmp_path: Path) -> None:
    """The probes write what they looked at when a call ends: a signal may come before."""
    dump = write(tmp_path / "0", [("a", {}, {"buf0": ONES})])
    facts = {"format": "rewriter.dump", "version": 1, "probes": ["bounds", "stale", "hash"]}
    (dump / "manifest.json").write_text(json.dumps(facts))
    known = sanitized.coverage([open_dump(dump)], {"bounds", "stale", "poison"})
    assert sanitized.coverage_lines(known) == [
        "bounds: nothing; not: calls that did not end (1)",
        "stale: nothing; not: calls that did not end (1)",
    ]


def test_a_store_beside_a_buffer_may_be_that_of_a_launch_on_another_stream(tmp_path: Path) -> None:
    """Bands are compared on the stream of the one launch while the other runs."""
    run = [("a", {}, {"buf0": ONES}), ("b", {}, {"buf1": ONES})]
    dump = write(tmp_path / "0", run, wrapper=get("cuda-torch2.15/streams").data)
    store = {
        "event": "memory", "probe": "bounds", "what": "store out of bounds", "launch": 0,
        "buffer": "buf5", "allocated": 0, "side": "behind", "distance": 0, "count": 1,
        "dtype": "float32",
    }  # fmt: skip
    (dump / "rank0/run0/memory.jsonl").write_text(json.dumps(store) + "\n")
    (finding,) = sanitized.of_rows([open_dump(dump)], {"bounds"}).findings
    assert (finding.launch, finding.certainty) == (0, "likely")
    assert 1 in finding.others
    assert "on other streams, which may have run at the same time: #1" in finding.text[-1]
