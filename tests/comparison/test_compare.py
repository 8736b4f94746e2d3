"""What `compare` makes of two dumps, on small ones written by hand; known answers from real models
are in test_compare_cases.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from dumps import launch, value
from rewriter import cli
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.blame import between_calls
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.types import Comparison
from rewriter.core.errors import RewriterError

X = value("x", mean=1.0)

Launches = Sequence[tuple[dumps.Row, list[dumps.Row]]]
Capture = pytest.CaptureFixture[str]


def chain(*means: float, start: int = 0, **options: Any) -> list[tuple[dumps.Row, list[dumps.Row]]]:
    """Launches that each read what the one before wrote; the input has the mean 1."""
    before = X
    result = []
    for index, mean in enumerate(means, start):
        written = value(f"buf{index}", "out", mean)
        result.append(launch(index, f"cpp_fused_op{index}_{index}", [before], [written], **options))
        before = value(f"buf{index}", mean=mean)
    return result


def chain_with(**fields: Any) -> Launches:
    """A chain of two whose last result has these fields."""
    made = chain(1, 2)
    made[1][1][-1].update(fields)
    return made


def one(kernel: str = "k", *, reads: Sequence[dumps.Row] = (X,), **written: Any) -> Launches:
    return [launch(0, kernel, reads, [value("y", "out", **{"mean": 2.0, **written})])]


def compared(
    folder: Path, a: Launches, b: Launches, *, each_once: bool = False, **options: Any
) -> Comparison:
    made = []
    for name, launches in (("a", a), ("b", b)):
        inputs = options.pop(f"inputs_{name}", [X])
        launches = dumps.each_once(launches, inputs) if each_once else launches
        made.append(dumps.write(folder / name, launches, inputs=inputs))
    return compare(*made, **options)


def blamed(comparison: Comparison) -> dict[str, str]:
    return {str(x.place).split()[0]: x.blame for x in comparison.launches if x.blame}


def loop(*means: float) -> Launches:
    return [
        launch(0, "k_0", [value("x", "inout", n)], [value("x", "inout", mean)], iteration=n)
        for n, mean in enumerate(means)
    ]


def in_place(index: int, before: float, after: float) -> tuple[dumps.Row, list[dumps.Row]]:
    """A launch that changes `buf0` where it is."""
    given, made = value("buf0", "inout", before), value("buf0", "inout", after)
    return launch(index, "cpp_fused_add_1", [given], [made])


def changing(*changes: tuple[dumps.Row, list[dumps.Row]], end: float) -> Launches:
    """`buf0` is made, changed in place, and read."""
    first = launch(0, "cpp_fused_mul_0", [X], [value("buf0", "out", 2.0)])
    read = [value("buf0", mean=end)]
    return [first, *changes, launch(9, "extern_kernels.mm", read, [value("buf9", "out", end * 2)])]


ONCE = changing(in_place(1, 2.0, 3.0), end=3.0)
TWICE = changing(in_place(1, 2.0, 3.0), in_place(2, 3.0, 4.0), end=4.0)
SAME = changing(in_place(1, 2.0, 3.0), in_place(5, 3.0, 3.0), end=3.0)


def constant(first: dumps.Row, read: dumps.Row) -> Launches:
    """Launch 0 writes what launch 2 does not read."""
    return [
        launch(0, "k0", [X], [{**first, "arg": "buf0", "role": "out"}]),
        launch(1, "k1", [X], [value("buf5", "out", 3.0)]),
        launch(2, "k2", [{**read, "arg": "buf5"}], [value("buf6", "out", read["mean"])]),
    ]


ZEROS = value("", min=0.0, max=0.0, std=0.0)
ATTENTION = "torch.ops.aten._scaled_dot_product_efficient_attention"


def attention(seed: float) -> Launches:
    result = value("seed", "out", seed, dtype="int64", shape=[], numel=1)
    return [launch(0, f"{ATTENTION}.default", [X], [value("y", "out", 1.0), result])]


def backward(seed: float, gradient: float = 1.0) -> Launches:
    given = [value("x", mean=gradient), value("seed", mean=seed, dtype="int64", shape=[], numel=1)]
    return [launch(0, f"{ATTENTION}_backward.default", given, [value("y", "out", gradient)])]


def allocating(kernel: str, mean: float) -> Launches:
    return [launch(0, kernel, [], [value("y", "out", mean)]), *chain(1, start=1)]


def scalar(number: str) -> Launches:
    given = {"arg": "xnumel", "role": "in", "type": "int", "value": number}
    return one(reads=[X, given])


def largest(number: int) -> Launches:
    return one(dtype="int64", max=number)


def hashed(digest: str, **fields: Any) -> Launches:
    return one(sha256=digest * 64, **fields)


def both(make: Callable[..., Launches], a: Any, b: Any) -> tuple[Launches, Launches]:
    return make(a), make(b)


# The launches of A and of B, those to blame, and the state of what differs; empty if all is equal.
CASES: dict[str, tuple[Launches, Launches, dict[str, str], str]] = {
    "equal": (chain(1, 2, 3), chain(1, 2, 3), {}, ""),
    "a launch in place that changes nothing": (SAME, ONCE, {}, ""),
    "what an operator never writes": (*both(attention, 1.0, 2.0), {}, ""),
    "what a backward never reads": (*both(backward, 1.0, 2.0), {}, ""),
    "an allocation": (*both(partial(allocating, "aten.empty_like.default"), 1, 2), {}, ""),
    "its whole name": (
        *both(partial(allocating, "torch.ops.aten.empty.memory_format"), 1, 2), {}, ""
    ),
    "two texts of a number": (*both(scalar, "1", "1.0"), {}, ""),
    "a symbol": (*both(scalar, "s0", "s0"), {}, ""),
    "the same bytes": (hashed("0"), hashed("0", max=9.0), {}, ""),
    "hashes of other dtypes": (hashed("0"), hashed("1", dtype="bfloat16"), {}, ""),
    "a launch": (chain(1, 5, 6), chain(1, 2, 3), {"#1": "culprit", "#2": "downstream"}, "numeric"),
    "NaN": (chain_with(nan=4), chain(1, 2), {"#1": "culprit"}, "non-finite"),
    "another shape": (chain_with(shape=[4, 9], numel=36), chain(1, 2), {"#1": "culprit"},
                      "structural"),
    "other bytes": (hashed("0"), hashed("1"), {"#0": "culprit"}, "numeric"),
    "other bytes with NaN": (hashed("0", nan=1), hashed("1"), {"#0": "culprit"}, "non-finite"),
    "a large integer": (*both(largest, 2**63 - 1, 2**63 - 2), {"#0": "culprit"}, "numeric"),
    "a large scalar": (*both(scalar, str(2**53), str(2**53 + 1)), {}, "numeric"),
    "a scalar that is none": (*both(scalar, "nan", "1"), {}, "numeric"),
    "a gradient": (backward(1.0), backward(1.0, 3.0), {"#0": "culprit"}, "numeric"),
    "an iteration": (loop(1, 2, 9), loop(1, 2, 3), {"#0.2": "culprit"}, "numeric"),
    "an operator that writes": (
        *both(partial(allocating, "torch.ops.corp.not_empty.default"), 1, 2), {"#0": "culprit"},
        "numeric",
    ),
    "a launch in place that A alone has": (
        TWICE, ONCE, {"#2": "culprit", "#9": "downstream"}, "numeric"
    ),
    "a launch in place that B alone has": (
        ONCE, TWICE, {"#2": "culprit", "#9": "downstream"}, "numeric"
    ),
    # Zeros were written to what launch 2 reads; launch 0, which wrote zeros too, did not.
    "a constant tells nothing of its origin": (
        constant(ZEROS, ZEROS), constant(value("", mean=5.0), value("", mean=3.0)),
        {"#0": "culprit", "#2": "culprit"}, "numeric",
    ),
}  # fmt: skip


@pytest.mark.parametrize("each_once", [False, True], ids=["all", "written"])
@pytest.mark.parametrize("case", CASES)
def test_what_goes_wrong_is_the_same_whichever_arguments_were_recorded(
    case: str, each_once: bool, tmp_path: Path
) -> None:
    a, b, blame, state = CASES[case]
    comparison = compared(tmp_path, a, b, each_once=each_once)
    assert blamed(comparison) == blame
    assert comparison.equal == (not state)
    assert {culprit.state for culprit in comparison.culprits} <= {state}


@pytest.mark.parametrize("each_once", [False, True], ids=["all", "written"])
def test_launches_without_a_counterpart_are_counted_and_followed_through(
    each_once: bool, tmp_path: Path
) -> None:
    """A computes in two launches what B does in one, and its second one goes wrong."""

    def end(read: str, mean: float, result: float) -> tuple[dumps.Row, list[dumps.Row]]:
        return launch(9, "k_9", [value(read, mean=mean)], [value("end", "out", result)])

    a = [
        launch(0, "cpp_fused_add_0", [X], [value("p", "out", 2.0)]),
        launch(1, "cpp_fused_relu_1", [value("p", mean=2.0)], [value("q", "out", 9.0)]),
        end("q", 9.0, 10.0),
    ]
    fused = launch(0, "cpp_fused_add_relu_0", [X, value("w")], [value("q", "out", 3.0)])
    comparison = compared(tmp_path, a, [fused, end("q", 3.0, 4.0)], each_once=each_once)
    names = ["#0 cpp_fused_add_0", "#1 cpp_fused_relu_1", "#0 cpp_fused_add_relu_0"]
    assert [str(x.place) for x in comparison.unmatched] == names
    (culprit,) = comparison.culprits
    assert (culprit.place.kernel, culprit.b) == ("cpp_fused_relu_1", None)
    assert "#9 k_9 read of it is not" in culprit.reasons[0]
    assert "without a counterpart: #0 cpp_fused_add_0" in culprit.reasons[1]
    assert blamed(comparison) == {"#1": "culprit", "#9": "downstream"}


@pytest.mark.parametrize("each_once", [False, True], ids=["all", "written"])
def test_independent_launches_in_another_order_are_equal(each_once: bool, tmp_path: Path) -> None:
    """Twice the same kernel: only what they read tells them apart."""
    first = launch(0, "k_0", [X], [value("p", "out", 2.0)])
    second = launch(1, "k_0", [value("y", mean=5.0)], [value("q", "out", 6.0)])
    last = launch(2, "k_1", [value("p", mean=2.0), value("q", mean=6.0)], [value("r", "out", 8.0)])
    inputs = [X, value("y", mean=5.0)]
    ab, ba = [first, second, last], [second, first, last]
    comparison = compared(tmp_path, ab, ba, each_once=each_once, inputs_a=inputs, inputs_b=inputs)
    assert comparison.equal
    assert not comparison.unmatched
    assert describe.count(comparison).moved == 1


def test_a_kernel_that_works_in_place_in_one_dump_has_its_results_by_name(tmp_path: Path) -> None:
    """What it updates is its first argument then, and its last one where it does not."""

    def launches(total: float, *, in_place: bool) -> Launches:
        given = value("z" if in_place else "x", "inout" if in_place else "in")
        updated = value("z", given["role"] if in_place else "out", total)
        other = value("y", "out", 2.0)
        wrote = [updated, other] if in_place else [other, updated]
        read = [value("y", mean=2.0), value("z", mean=total)]
        return [
            launch(0, "cpp_fused_add_0", [given], wrote),
            launch(1, "k_1", read, [value("r", "out", 2 + total)]),
        ]

    inputs = [X, value("z")]
    given: dict[str, Any] = {"inputs_a": inputs, "inputs_b": inputs}
    (tmp_path / "right").mkdir()
    right = launches(3.0, in_place=False)
    assert compared(tmp_path / "right", launches(3.0, in_place=True), right, **given).equal
    wrong = compared(tmp_path, launches(5.0, in_place=True), right, **given)
    assert blamed(wrong)["#0"] == "culprit"


def test_inputs_of_the_call_may_be_the_culprit(tmp_path: Path) -> None:
    other = value("x", mean=2.0)
    comparison = compared(tmp_path, one(reads=[other], mean=4.0), one(), inputs_a=[other])
    assert blamed(comparison) == {"inputs": "culprit", "#0": "downstream"}
    assert "the runs diverge at the inputs of the call" in describe.verdict(comparison)


def test_all_arguments_against_what_launches_write(tmp_path: Path) -> None:
    """A view of what a launch wrote is not as large: what is known where it was made decides."""

    def launches(*means: float, shape: Sequence[int] = (4, 8)) -> Launches:
        found = chain(*means)
        for _, rows in found:
            for row in rows:
                if row["role"] == "in":
                    row.update(shape=list(shape), stride=[1] * len(shape))
        return found

    inputs = [X]
    whole = dumps.write(tmp_path / "all", launches(1, 5, 6, shape=(32,)), inputs=inputs)
    for means, blame in (((1, 5, 6), {}), ((1, 2, 3), {"#1": "culprit", "#2": "downstream"})):
        once = dumps.each_once(launches(*means), inputs)
        other = dumps.write(tmp_path / f"written{means[1]}", once, inputs=inputs)
        for pair in ((whole, other), (other, whole)):
            assert blamed(compare(*pair)) == blame


@pytest.mark.parametrize("each_once", [False, True])
def test_an_overwritten_value_is_no_fault_of_its_producer(each_once: bool, tmp_path: Path) -> None:
    def launches(read: float) -> Launches:
        return [
            launch(0, "k_0", [X], [value("y", "out", 2.0)]),
            launch(1, "k_1", [value("y", mean=read)], [value("z", "out", read + 1)]),
        ]

    comparison = compared(tmp_path, launches(7.0), launches(2.0), each_once=each_once)
    assert blamed(comparison) == {"#1": "culprit"}
    reasons = comparison.culprits[0].reasons
    if each_once:
        assert "as far as statistics show" in reasons[0]
        assert "`--args all` also records them here" in reasons[1]
    else:
        assert "overwritten" in reasons[0]
        assert len(reasons) == 1


def test_values_before_launches_alone_tell_where_it_shows(tmp_path: Path) -> None:
    a, b = (chain(*means, when="before") for means in ((1, 5, 6), (1, 2, 3)))
    comparison = compared(tmp_path, a, b)
    assert not comparison.equal
    assert not comparison.culprits
    assert describe.verdict(comparison).startswith("different: first seen at #2 ")


def test_what_is_never_written_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, attention(1.0), attention(2.0))
    assert "never writes" in comparison.launches[1].results[1].note


def test_a_value_that_was_only_to_be_read_and_changed(tmp_path: Path) -> None:
    """A kernel that writes where it should not."""
    a, b = one(), one()
    a[0][1][1].update(value("x", mean=3.0))
    (culprit,) = compared(tmp_path, a, b).culprits
    assert [tensor.name for tensor in culprit.results if tensor.state != "equal"] == ["x"]


def test_of_a_value_that_is_changed_each_side_of_the_launch_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        dumps.write(tmp_path / str(n), changing(in_place(1, n, n + 1), end=3.0)) for n in (5.0, 2.0)
    ]
    assert cli.main(["compare", *map(str, given)]) == 1
    lines = [x.strip() for x in capsys.readouterr().out.splitlines() if "inout buf0" in x]
    kind = lines[1].removeprefix("inout buf0").removesuffix(": values differ")
    assert lines[0] == f"inout buf0{kind} before the launch: values differ"


NH128 = {"name": "nh128", "version": 1}


@pytest.mark.parametrize(
    ("fields", "named", "probe", "state", "basis"),
    [
        ({"fingerprint": "0" * 32, "max": 9.0}, NH128, "print", "equal", "hashes"),
        ({"fingerprint": "1" * 32}, NH128, "print", "equal", "statistics"),
        ({"fingerprint": "1" * 32, "max": 9.0}, NH128, "print", "numeric", "statistics"),
        ({"fingerprint": "1" * 32}, NH128, "hash", "numeric", "hashes"),
        ({"fingerprint": "0" * 32, "max": 9.0}, {**NH128, "version": 2}, "hash", "numeric", ""),
        ({"fingerprint": "0" * 32}, None, "hash", "equal", "statistics"),
        ({"sha256": "0" * 64}, NH128, "hash", "equal", "statistics"),
    ],
    ids=[
        "the same bytes", "other bytes, within tolerance", "other values", "asked for the bytes",
        "another version", "without a name", "an earlier dump",
    ],
)  # fmt: skip
def test_fingerprints(
    fields: dumps.Row, named: dumps.Row | None, probe: str, state: str, basis: str, tmp_path: Path
) -> None:
    for name, row, of in (("a", {"fingerprint": "0" * 32}, NH128), ("b", fields, named)):
        manifest = {"probes": [probe], **({"fingerprint": of} if of else {})}
        dumps.write(tmp_path / name, one(**row), manifest=manifest)
    (result,) = compare(tmp_path / "a", tmp_path / "b").launches[0].results
    assert (result.state, result.basis) == (state, basis or "statistics")


def test_calls_are_paired_by_wrapper_and_order(tmp_path: Path) -> None:
    for name, calls in (("a", "fbfb"), ("b", "fbf")):
        for run, which in enumerate(calls):
            dumps.write(tmp_path / name, one(f"{which}_0"), run=run, artifact=f"{which}.py")
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert [(x.a, x.b) for x in comparison.runs] == [(f"rank0/run{n}",) * 2 for n in range(3)]
    assert comparison.unpaired == ("A rank0/run3",)


@pytest.mark.parametrize(
    ("saved", "blame"),
    [(4.0, "culprit"), (3.0, "downstream")],
    ids=["changed in between", "as it was returned"],
)
def test_what_a_call_returned_is_no_fault_of_the_next_one(
    saved: float, blame: str, tmp_path: Path
) -> None:
    """A forward pass leaves values for its backward pass."""
    for name, made, given in (("a", 2.0, 2.0), ("b", 3.0, saved)):
        dumps.write(tmp_path / name, chain(1, made), artifact="f.py", outputs=["buf1"])
        inputs = [value("saved", mean=given)]
        reads = [launch(0, "backward_0", inputs, [value("buf0", "out", given)])]
        dumps.write(tmp_path / name, reads, inputs=inputs, run=1, artifact="b.py")
    comparison = compare(tmp_path / "a", tmp_path / "b")
    inputs_of_b = comparison.runs[1].launches[0]
    assert inputs_of_b.place.is_inputs
    assert inputs_of_b.blame == blame
    assert ("rank0/run0 returned them so" in inputs_of_b.reasons) is (blame == "downstream")
    assert str(comparison.culprits[0].place).startswith("#1 ")


def test_inputs_where_an_error_begins_stay_to_blame(tmp_path: Path) -> None:
    """They are within the tolerance: no call returned a difference of theirs."""
    (run,) = compared(tmp_path, chain(1, 2), chain(1, 2)).runs
    inputs, *others = run.launches
    assert inputs.place.is_inputs
    began = replace(run, launches=(replace(inputs, blame="culprit"), *others))
    assert list(between_calls([began])) == [began]


def test_two_runs_of_one_dump(tmp_path: Path) -> None:
    for run, mean in enumerate((1.0, 2.0)):
        dumps.write(tmp_path, one(mean=mean), run=run)
    comparison = compare(tmp_path / "rank0/run0", tmp_path / "rank0/run1")
    assert [str(x.place) for x in comparison.culprits] == ["#0 k"]


def test_two_ranks_of_one_dump(tmp_path: Path) -> None:
    for rank, run in ((0, 0), (0, 1), (1, 0), (1, 1)):
        dumps.write(tmp_path, chain(1, 2), rank=rank, run=run)
    comparison = compare(tmp_path / "rank0", tmp_path / "rank1")
    assert (comparison.equal, len(comparison.runs)) == (True, 2)


Tensors = dict[str, torch.Tensor]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a dump whose rows have their tensors in files, and statistics that fit them."""

    def act(name: str, launches: Launches, tensors: Tensors, **options: Any) -> Path:
        for _, rows in launches:
            for row in rows:
                tensor = tensors[row.pop("key", row["arg"])]
                row |= {"shape": list(tensor.shape), "numel": tensor.numel()}
                row |= {"file": f"{id(tensor)}.pt", "dtype": str(tensor.dtype).partition(".")[2]}
                row |= {"mean": tensor.double().mean().item()}
        made = dumps.write(tmp_path / name, launches, **options)
        for tensor in tensors.values():
            torch.save(tensor, made / f"rank0/run0/{id(tensor)}.pt")
        return made

    return act


def one_launch(*results: str) -> Launches:
    return [launch(0, "k", [value("x")], [value(result, "out") for result in results])]


def test_saved_tensors_give_all_figures(saved: Callable[..., Path]) -> None:
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    planted = y.clone()
    planted[2, 3] += 0.5
    a = saved("a", one_launch("y"), {"x": x, "y": planted})
    (culprit,) = compare(a, saved("b", one_launch("y"), {"x": x, "y": y})).culprits
    metrics = culprit.results[0].metrics
    assert metrics is not None
    assert metrics.max_abs is not None
    assert (metrics.max_abs.error, metrics.max_abs.index) == (0.5, (2, 3))
    assert (metrics.mismatched, metrics.atol_needed) == (1, 0.5)


def test_an_input_that_a_kernel_reversed_is_seen(saved: Callable[..., Path]) -> None:
    """Its statistics are what they were."""
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    after = one_launch("y")
    after[0][1][1]["key"] = "changed"
    a = saved("a", after, {"x": x, "y": y, "changed": x.flip(0)})
    (culprit,) = compare(a, saved("b", one_launch("y"), {"x": x, "y": y})).culprits
    assert [tensor.name for tensor in culprit.results if tensor.state != "equal"] == ["x"]


def test_an_input_that_was_wrong_before_is_no_result(saved: Callable[..., Path]) -> None:
    """What a launch makes of it may be right: a mask, a maximum."""
    x, y, z = (torch.randn(4, 8) for _ in range(3))

    def launches() -> Launches:
        second = launch(1, "k1", [value("y")], [value("z", "out")])
        return [*one_launch("y"), second]

    a = saved("a", launches(), {"x": x, "y": y + 1, "z": z})
    comparison = compare(a, saved("b", launches(), {"x": x, "y": y, "z": z}))
    assert blamed(comparison) == {"#0": "culprit"}
    assert (comparison.launches[1].inputs, comparison.launches[1].state) == ("numeric", "equal")


@pytest.mark.parametrize("order", ["as it was", "moved"])
def test_a_wrong_result_beside_a_right_one_is_not_explained_away(
    order: str, saved: Callable[..., Path]
) -> None:
    """The right one is read, and read the same; of the wrong one nobody knows."""
    names = ("cpp_fused_add_mul_0", "cpp_fused_mul_add_0") if order == "as it was" else ("k1", "k1")
    x, right, wrong, other, end = (torch.randn(4, 8) for _ in range(5))
    tensors = {"x": x, "right": right, "z": wrong, "other": other, "end": end}

    def launches(first: str, swap: bool) -> Launches:
        results = [value("right", "out"), value("z", "out")]
        pair = [launch(0, first, [value("x")], results, source_nodes=["add", "mul"])]
        pair.append(launch(1, "k2", [value("x")], [value("other", "out")]))
        last = launch(2, "k3", [value("right"), value("other")], [value("end", "out")])
        return [*(pair[::-1] if swap else pair), last]

    a = saved("a", launches(names[0], swap=False), tensors)
    b = saved("b", launches(names[1], swap=order == "moved"), {**tensors, "z": wrong + 1})
    for one, another in ((a, b), (b, a)):
        comparison = compare(one, another)
        assert not comparison.equal
        assert [x.place.kernel for x in comparison.culprits] == [names[one == b]]


def test_a_result_that_one_side_alone_has_is_said(
    saved: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """No fault by itself: a kernel that is fused otherwise may leave more, under the same name."""
    tensors = {name: torch.randn(4, 8) for name in ("x", "y", "z")}
    a, b = saved("a", one_launch("y", "z"), tensors), saved("b", one_launch("y"), tensors)
    assert compare(a, b).launches[0].unmatched == ("A z",)
    assert cli.main(["compare", str(a), str(b)]) == 0
    assert "on one side alone: #0 k: A z" in capsys.readouterr().out
    assert cli.main(["compare", str(a), str(b), "--strict"]) == 1


@pytest.mark.parametrize("probe", ["save", "print"])
def test_a_view_of_another_shape_is_compared_in_row_major_order(
    probe: str, saved: Callable[..., Path]
) -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    a = saved("a", one_launch("y"), {"x": x, "y": y.view(32)})
    b = saved("b", one_launch("y"), {"x": x, "y": y})
    if probe == "print":
        for dump in (a, b):
            for file in dump.glob("rank0/run0/*.pt"):
                file.unlink()
            events = dump / "rank0/run0/events.jsonl"
            events.write_text(events.read_text().replace('"file"', '"was"'))
    comparison = compare(a, b)
    assert comparison.equal
    assert "row-major" in comparison.launches[0].results[0].note


def test_a_file_with_other_elements_than_its_row_says(saved: Callable[..., Path]) -> None:
    tensors = {name: torch.randn(4, 8) for name in ("x", "y")}
    a, b = (saved(name, one_launch("y"), tensors) for name in "ab")
    torch.save(torch.ones(3), a / f"rank0/run0/{id(tensors['y'])}.pt")
    with pytest.raises(RewriterError) as error:
        compare(a, b)
    assert error.value.slug == "corrupt-dump"


def test_outputs_of_one_position_are_compared(tmp_path: Path) -> None:
    """What A was not to record is left out, whatever follows it."""
    first = launch(0, "k0", [X], [value("buf0", "out", 2.0)])
    second = launch(1, "k1", [X], [value("buf1", "out", 3.0)])
    a = dumps.write(tmp_path / "a", [second], outputs=["buf0", "buf1"])
    b = dumps.write(tmp_path / "b", [first, second], outputs=["buf0", "buf1"])
    comparison = compare(a, b)
    assert comparison.equal
    assert [x.name for x in comparison.launches[-1].reads] == ["1: buf1"]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        # A gradient that is None, and an input that is handed through.
        (["", "x", "buf1"], ["", "x", "buf1"], ()),
        (
            ["buf0", "buf7"],
            ["", "buf7"],
            (
                "not compared: output 0 (buf0 in A, no tensor in B), output 1 (buf7, which no "
                "recorded launch wrote in A, buf7, which no recorded launch wrote in B)",
            ),
        ),
        (["buf1"], ["buf1", "buf0"], ("not compared: output 1 (nothing in A, buf0 in B)",)),
    ],
    ids=["nothing is missed", "named", "one returns more"],
)
def test_outputs_that_are_not_compared_are_named(
    a: list[str], b: list[str], said: tuple[str, ...], tmp_path: Path
) -> None:
    made = [
        dumps.write(tmp_path / name, chain(1, 2), inputs=[X], outputs=names)
        for name, names in (("a", a), ("b", b))
    ]
    assert compare(*made).launches[-1].reasons == said


OTHER = one("another_kernel", shape=[3], numel=3)


@pytest.mark.parametrize(
    ("a", "b", "options", "slug"),
    [
        (chain(1), chain(1), {"kernels": ["nothing*"]}, "nothing-to-compare"),
        (chain(1, 2), OTHER, {}, "nothing-in-common"),
        (
            [launch(0, "k")],
            [launch(0, "k")],
            {"inputs_a": [], "inputs_b": []},
            "nothing-to-compare",
        ),
    ],
    ids=["a filter that matches no launch", "other launches", "names alone"],
)
def test_what_cannot_be_compared_is_an_error(
    a: Launches, b: Launches, options: dict[str, Any], slug: str, tmp_path: Path
) -> None:
    with pytest.raises(RewriterError) as error:
        compared(tmp_path, a, b, **options)
    assert error.value.slug == slug


@pytest.mark.parametrize(
    ("words", "code", "first"),
    [
        ("a b", 1, "different: the runs diverge at #1 cpp_fused_op1_1 (line 101)"),
        ("a a", 0, "equal: 3 of 3 launches, within tolerance, as far as statistics see"),
        ("a b --atol 10", 0, "equal: 3 of 3 launches, within tolerance"),
        ("a b --kernels cpp_fused_op0_*", 0, "equal: 1 of 3 launches"),
        ("a short", 0, "equal: 1 of 1 launches"),
        ("a short --strict", 1, "equal: 1 of 1 launches"),
    ],
)
def test_the_verdict_and_the_exit_code(
    words: str, code: int, first: str, tmp_path: Path, monkeypatch: Any, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, means in (("a", (1, 5, 6)), ("b", (1, 2, 3)), ("short", (1,))):
        dumps.write(Path(name), chain(*means), inputs=[X])
    assert cli.main(["compare", *words.split()]) == code
    out = capsys.readouterr().out
    assert out.startswith(first)
    assert cli.main(["compare", *words.split(), "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert out.startswith(said["sentence"])
    assert "another order of the same values would look equal" in said["limits"][0]
    if words == "a b":
        rows = [" ".join(line.split()) for line in out.splitlines()]
        assert "#2 #2 cpp_fused_op2_2 numeric numeric downstream of #1" in rows
        culprit = said["launches"][said["culprits"][0]]
        assert said["launches"][3]["producers"] == [culprit["a"]["step"]]


def test_a_record_that_is_cut_short_is_said(tmp_path: Path) -> None:
    for name in "ab":
        dumps.write(tmp_path / name, chain(2, 3), inputs=[X])
    events = tmp_path / "a/rank0/run0/events.jsonl"
    events.write_bytes(events.read_bytes()[:-20])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.cut == ("A rank0/run0",)
    said = "the record of A rank0/run0 is cut short: what followed is lost"
    assert said in describe.limits(found)


def test_runs_of_different_models_are_said_to_be(tmp_path: Path, capsys: Capture) -> None:
    for name, kernels in (("a", "pqrst"), ("b", "uvwxy")):
        rows = [value("x")], [value("y", "out", 1.0)]
        own = [launch(at, kernel, *rows) for at, kernel in enumerate(kernels, 1)]
        for run in range(5 if name == "b" else 1):
            dumps.write(tmp_path / name, [launch(0, "extern_kernels.mm", *rows), *own], run=run)
    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    out = capsys.readouterr().out
    assert (
        "note: only 1 of 6 launches of A and 6 of B have a counterpart: these may be runs of "
        "different models" in out
    )
    assert "B rank0/run1, B rank0/run2, B rank0/run3 and 1 more have no counterpart" in out
    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "a")])
    assert "note: only" not in capsys.readouterr().out


def test_json_of_saved_tensors_fits_its_schema(tmp_path: Path, capsys: Capture) -> None:
    for name in "ab":
        written = value("y", "out", file="y.pt", shape=[1, 2], numel=2)
        made = dumps.write(tmp_path / name, [launch(0, "k", [], [written])])
        torch.save(
            torch.tensor([[float("nan" if name == "a" else "inf"), 0.0]]), made / "rank0/run0/y.pt"
        )
    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["launches"][0]["results"][0]["metrics"]["nan_a"] == 1


def test_progress_comes_to_its_total(tmp_path: Path) -> None:
    """The inputs, the outputs and what B has alone are none of the launches of A."""
    inputs = [X]
    a = dumps.write(tmp_path / "a", chain(1, 2), inputs=inputs, outputs=["buf1"])
    b = dumps.write(tmp_path / "b", chain(1, 2, 3), inputs=inputs, outputs=["buf1"])
    said: list[tuple[int, int]] = []
    compare(a, b, progress=lambda done, total: said.append((done, total)))
    assert said == [(1, 2), (2, 2)]


def test_outputs_are_counted_where_launches_have_no_counterpart(
    tmp_path: Path, capsys: Capture
) -> None:
    a, b, c = (
        str(dumps.write(tmp_path / name, chain(*means), outputs=["buf1"]))
        for name, means in (("a", (1, 2)), ("b", (1, 2, 3)), ("c", (1, 2)))
    )
    assert cli.main(["compare", a, b]) == 0
    assert "outputs compared: 1 of 1 equal\n" in capsys.readouterr().out
    assert cli.main(["compare", a, c]) == 0
    assert "outputs compared" not in capsys.readouterr().out
