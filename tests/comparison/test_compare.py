"""What `compare` makes of two dumps, on small ones written by hand; known answers from real models
are in test_compare_cases.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

import dumps
import schemas
from dumps import launch, value
from rewriter import cli
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.blame import between_calls
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.types import Comparison
from rewriter.core.errors import RewriterError

SCHEMA = schemas.schema("compare")

Launches = Sequence[tuple[dumps.Row, list[dumps.Row]]]


def chain(*means: float, start: int = 0, **options: Any) -> list[tuple[dumps.Row, list[dumps.Row]]]:
    """Launches that each read what the one before wrote; the input has the mean 1."""
    before = value("x", mean=1.0)
    result = []
    for index, mean in enumerate(means, start):
        written = value(f"buf{index}", "out", mean)
        result.append(launch(index, f"cpp_fused_op{index}_{index}", [before], [written], **options))
        before = value(f"buf{index}", mean=mean)
    return result


def comparing(tmp_path: Path, *, each_once: bool) -> Callable[..., Comparison]:
    def act(a: Launches, b: Launches, **options: Any) -> Comparison:
        made = []
        for name, launches in (("a", a), ("b", b)):
            inputs = options.pop(f"inputs_{name}", [value("x", mean=1.0)])
            launches = dumps.each_once(launches, inputs) if each_once else launches
            made.append(dumps.write(tmp_path / name, launches, inputs=inputs))
        return compare(*made, **options)

    return act


@pytest.fixture(params=["all arguments", "what launches write"])
def compared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Comparison]:
    """Compares dumps of these launches: what goes wrong is the same whichever was recorded."""
    return comparing(tmp_path, each_once=request.param != "all arguments")


@pytest.fixture
def compared_in_full(tmp_path: Path) -> Callable[..., Comparison]:
    """The same, where it takes all arguments on both sides of a launch."""
    return comparing(tmp_path, each_once=False)


def blamed(comparison: Comparison) -> dict[str, str]:
    return {str(x.place).split()[0]: x.blame for x in comparison.launches if x.blame}


def test_equal_dumps(compared: Callable[..., Comparison]) -> None:
    comparison = compared(chain(1, 2, 3), chain(1, 2, 3))
    assert comparison.equal
    assert not comparison.culprits
    assert len(comparison.launches) == 4


def test_the_culprit_is_the_launch_whose_inputs_agree(compared: Callable[..., Comparison]) -> None:
    comparison = compared(chain(1, 5, 6), chain(1, 2, 3))
    assert not comparison.equal
    assert blamed(comparison) == {"#1": "culprit", "#2": "downstream"}
    assert [str(place) for place in comparison.launches[3].producers] == ["#1 cpp_fused_op1_1"]


def test_all_arguments_against_what_launches_write(tmp_path: Path) -> None:
    """A view of what a launch wrote is not as large: what is known where it was made decides."""

    def launches(*means: float, shape: Sequence[int] = (4, 8)) -> Launches:
        found = chain(*means)
        for _, rows in found:
            for row in rows:
                if row["role"] == "in":
                    row.update(shape=list(shape), stride=[1] * len(shape))
        return found

    inputs = [value("x", mean=1.0)]
    whole = dumps.write(tmp_path / "all", launches(1, 5, 6, shape=(32,)), inputs=inputs)
    for means, blame in (((1, 5, 6), {}), ((1, 2, 3), {"#1": "culprit", "#2": "downstream"})):
        once = dumps.each_once(launches(*means), inputs)
        other = dumps.write(tmp_path / f"written{means[1]}", once, inputs=inputs)
        for pair in ((whole, other), (other, whole)):
            assert blamed(compare(*pair)) == blame


def test_inputs_of_the_call_may_be_the_culprit(compared: Callable[..., Comparison]) -> None:
    a = [launch(0, "k_0", [value("x", mean=2.0)], [value("y", "out", 4.0)])]
    b = [launch(0, "k_0", [value("x", mean=1.0)], [value("y", "out", 3.0)])]
    comparison = compared(a, b, inputs_a=[value("x", mean=2.0)])
    assert blamed(comparison) == {"inputs": "culprit", "#0": "downstream"}


@pytest.mark.parametrize("each_once", [False, True])
def test_an_overwritten_value_is_no_fault_of_its_producer(each_once: bool, tmp_path: Path) -> None:
    def launches(read: float) -> Launches:
        return [
            launch(0, "k_0", [value("x", mean=1.0)], [value("y", "out", 2.0)]),
            launch(1, "k_1", [value("y", mean=read)], [value("z", "out", read + 1)]),
        ]

    comparison = comparing(tmp_path, each_once=each_once)(launches(7.0), launches(2.0))
    assert blamed(comparison) == {"#1": "culprit"}
    reasons = comparison.culprits[0].reasons
    if each_once:
        assert "as far as statistics show" in reasons[0]
        assert "`--args all` also records them here" in reasons[1]
    else:
        assert "overwritten" in reasons[0]
        assert len(reasons) == 1


def test_nan_on_one_side_is_a_state_of_its_own(compared: Callable[..., Comparison]) -> None:
    a = chain(1, 2, 3)
    a[1][1][-1].update(nan=4)
    comparison = compared(a, chain(1, 2, 3))
    (culprit,) = comparison.culprits
    assert (culprit.place.launch, culprit.state) == (1, "non-finite")


def test_shapes_that_differ_are_structural(compared: Callable[..., Comparison]) -> None:
    a = chain(1, 2)
    a[1][1][-1].update(shape=[4, 9], numel=36)
    (culprit,) = compared(a, chain(1, 2)).culprits
    assert (culprit.place.launch, culprit.state) == (1, "structural")


def test_independent_launches_in_another_order_are_equal(
    compared: Callable[..., Comparison],
) -> None:
    """Twice the same kernel: only what they read tells them apart."""
    first = launch(0, "k_0", [value("x", mean=1.0)], [value("p", "out", 2.0)])
    second = launch(1, "k_0", [value("y", mean=5.0)], [value("q", "out", 6.0)])
    last = launch(2, "k_1", [value("p", mean=2.0), value("q", mean=6.0)], [value("r", "out", 8.0)])
    inputs = [value("x", mean=1.0), value("y", mean=5.0)]
    comparison = compared(
        [first, second, last], [second, first, last], inputs_a=inputs, inputs_b=inputs
    )
    assert comparison.equal
    assert not comparison.unmatched
    assert describe.count(comparison).moved == 1


def test_launches_without_a_counterpart_are_counted_and_followed_through(
    compared: Callable[..., Comparison],
) -> None:
    """A computes in two launches what B does in one, and its second one goes wrong."""

    def end(read: str, mean: float, result: float) -> tuple[dumps.Row, list[dumps.Row]]:
        return launch(9, "k_9", [value(read, mean=mean)], [value("end", "out", result)])

    a = [
        launch(0, "cpp_fused_add_0", [value("x", mean=1.0)], [value("p", "out", 2.0)]),
        launch(1, "cpp_fused_relu_1", [value("p", mean=2.0)], [value("q", "out", 9.0)]),
        end("q", 9.0, 10.0),
    ]
    b = [
        launch(
            0, "cpp_fused_add_relu_0", [value("x", mean=1.0), value("w")], [value("q", "out", 3.0)]
        ),
        end("q", 3.0, 4.0),
    ]
    comparison = compared(a, b)
    assert [str(x.place) for x in comparison.unmatched] == [
        "#0 cpp_fused_add_0",
        "#1 cpp_fused_relu_1",
        "#0 cpp_fused_add_relu_0",
    ]
    (culprit,) = comparison.culprits
    assert (culprit.place.kernel, culprit.b) == ("cpp_fused_relu_1", None)
    assert "#9 k_9 read of it is not" in culprit.reasons[0]
    assert "without a counterpart: #0 cpp_fused_add_0" in culprit.reasons[1]
    assert blamed(comparison) == {"#1": "culprit", "#9": "downstream"}


def test_iterations_of_a_loop_are_told_apart(compared: Callable[..., Comparison]) -> None:
    def loop(*means: float) -> Launches:
        return [
            launch(0, "k_0", [value("x", "inout", n)], [value("x", "inout", mean)], iteration=n)
            for n, mean in enumerate(means)
        ]

    comparison = compared(loop(1, 2, 9), loop(1, 2, 3))
    (culprit,) = comparison.culprits
    assert str(culprit.place) == "#0.2 k_0"


def test_values_after_launches_alone_are_enough(
    compared_in_full: Callable[..., Comparison],
) -> None:
    comparison = compared_in_full(chain(1, 5, 6, when="after"), chain(1, 2, 3, when="after"))
    assert blamed(comparison) == {"#1": "culprit", "#2": "downstream"}


def test_values_before_launches_alone_tell_where_it_shows(
    compared: Callable[..., Comparison],
) -> None:
    comparison = compared(chain(1, 5, 6, when="before"), chain(1, 2, 3, when="before"))
    assert not comparison.equal
    assert not comparison.culprits
    assert describe.verdict(comparison).startswith("different: first seen at #2 ")


def test_statistics_say_what_they_cannot_tell(compared: Callable[..., Comparison]) -> None:
    comparison = compared(chain(1), chain(1))
    assert all("order" in tensor.note for x in comparison.launches for tensor in x.tensors)


def test_an_uninitialised_value_is_never_compared(compared: Callable[..., Comparison]) -> None:
    kernel = "torch.ops.aten._scaled_dot_product_efficient_attention.default"

    def attention(seed: float) -> Launches:
        result = value("seed", "out", seed, dtype="int64", shape=[], numel=1)
        return [launch(0, kernel, [value("x", mean=1.0)], [value("y", "out", 1.0), result])]

    comparison = compared(attention(1.0), attention(2.0))
    assert comparison.equal
    assert "never writes" in comparison.launches[1].results[1].note


@pytest.mark.parametrize(("seed", "gradient", "equal"), [(2.0, 1.0, True), (1.0, 3.0, False)])
def test_nor_where_the_backward_reads_it(
    seed: float, gradient: float, equal: bool, compared: Callable[..., Comparison]
) -> None:
    kernel = "torch.ops.aten._scaled_dot_product_efficient_attention_backward.default"

    def backward(seed: float, gradient: float = 1.0) -> Launches:
        given = [
            value("x", mean=gradient),
            value("seed", mean=seed, dtype="int64", shape=[], numel=1),
        ]
        return [launch(0, kernel, given, [value("y", "out", gradient)])]

    assert compared(backward(1.0), backward(seed, gradient)).equal == equal


@pytest.mark.parametrize(
    ("kernel", "same"),
    [
        ("torch.ops.aten.empty.memory_format", True),
        ("aten.empty_like.default", True),
        ("torch.ops.corp.not_empty.default", False),
    ],
)
def test_what_allocates_writes_nothing(
    kernel: str, same: bool, compared: Callable[..., Comparison]
) -> None:
    def launches(mean: float) -> Launches:
        return [launch(0, kernel, [], [value("y", "out", mean)]), *chain(1, start=1)]

    assert compared(launches(1.0), launches(2.0)).equal == same


def test_a_value_that_was_only_to_be_read_and_changed(
    compared_in_full: Callable[..., Comparison],
) -> None:
    """A kernel that writes where it should not."""

    def launches(after: float) -> Launches:
        table, rows = launch(0, "k_0", [value("x", mean=1.0)], [value("y", "out", 2.0)])
        rows[1] = {**rows[1], **value("x", mean=after)}
        return [(table, rows)]

    comparison = compared_in_full(launches(3.0), launches(1.0))
    (culprit,) = comparison.culprits
    assert [tensor.name for tensor in culprit.results if tensor.state != "equal"] == ["x"]


@pytest.mark.parametrize(
    ("a", "b", "state"),
    [
        ({"sha256": "0" * 64}, {"sha256": "0" * 64, "max": 9.0}, "equal"),
        ({"sha256": "0" * 64}, {"sha256": "1" * 64}, "numeric"),
        ({"sha256": "0" * 64, "nan": 1}, {"sha256": "1" * 64}, "non-finite"),
        ({"sha256": "0" * 64}, {"sha256": "1" * 64, "dtype": "bfloat16"}, "equal"),
    ],
    ids=["the same bytes", "other bytes", "NaN", "another dtype: by statistics"],
)
def test_hashes(
    compared: Callable[..., Comparison], a: dumps.Row, b: dumps.Row, state: str
) -> None:
    def launches(fields: dumps.Row) -> Launches:
        return [launch(0, "k", [value("x", mean=1.0)], [value("y", "out", 2.0, **fields)])]

    assert compared(launches(a), launches(b)).launches[1].state == state


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
        written = value("y", "out", 2.0, **row)
        made = dumps.write(tmp_path / name, [launch(0, "k", [value("x", mean=1.0)], [written])])
        manifest = json.loads((made / "manifest.json").read_text())
        manifest |= {"probes": [probe], **({"fingerprint": of} if of else {})}
        (made / "manifest.json").write_text(json.dumps(manifest))
    (result,) = compare(tmp_path / "a", tmp_path / "b").launches[0].results
    assert (result.state, result.basis) == (state, basis or "statistics")


def test_saved_tensors_give_all_figures(tmp_path: Path) -> None:
    for name, planted in (("a", 0.5), ("b", 0.0)):
        made = dumps.write(
            tmp_path / name,
            [launch(0, "k", [value("x")], [value("y", "out", file="y.pt", dtype="float32")])],
        )
        tensor = torch.ones(4, 8)
        tensor[2, 3] += planted
        torch.save(tensor, made / "rank0/run0/y.pt")
    (culprit,) = compare(tmp_path / "a", tmp_path / "b").culprits
    metrics = culprit.results[0].metrics
    assert metrics is not None
    assert metrics.max_abs is not None
    assert (metrics.max_abs.error, metrics.max_abs.index) == (0.5, (2, 3))
    assert metrics.mismatched == 1
    assert metrics.atol_needed == 0.5


def test_calls_are_paired_by_wrapper_and_order(tmp_path: Path) -> None:
    for name, calls in (("a", "fbfb"), ("b", "fbf")):
        for run, which in enumerate(calls):
            kernel = {"f": "forward_0", "b": "backward_0"}[which]
            dumps.write(
                tmp_path / name,
                [launch(0, kernel, [value("x")], [value("y", "out", 1.0)])],
                run=run,
                artifact=f"{which}.py",
            )
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert [(run.a, run.b) for run in comparison.runs] == [
        (f"rank0/run{n}", f"rank0/run{n}") for n in range(3)
    ]
    assert comparison.unpaired == ("A rank0/run3",)


@pytest.mark.parametrize(
    ("saved", "blame"),
    [
        pytest.param(4.0, "culprit", id="changed in between"),
        pytest.param(3.0, "downstream", id="as it was returned"),
    ],
)
def test_what_a_call_returned_is_no_fault_of_the_next_one(
    saved: float, blame: str, tmp_path: Path
) -> None:
    """A forward pass leaves values for its backward pass."""
    for name, made, given in (("a", 2.0, 2.0), ("b", 3.0, saved)):
        with_outputs(dumps.write(tmp_path / name, chain(1, made), artifact="f.py"), "buf1")
        inputs = [value("saved", mean=given)]
        reads = [launch(0, "backward_0", inputs, [value("buf0", "out", given)])]
        dumps.write(tmp_path / name, reads, inputs=inputs, run=1, artifact="b.py")
    comparison = compare(tmp_path / "a", tmp_path / "b")
    inputs_of_b = comparison.runs[1].launches[0]
    assert inputs_of_b.place.is_inputs
    assert inputs_of_b.blame == blame
    assert ("rank0/run0 returned them so" in inputs_of_b.reasons) is (blame == "downstream")
    assert str(comparison.culprits[0].place).startswith("#1 ")


def test_inputs_where_an_error_begins_stay_to_blame(compared: Callable[..., Comparison]) -> None:
    """They are within the tolerance: no call returned a difference of theirs."""
    (run,) = compared(chain(1, 2), chain(1, 2)).runs
    inputs, *others = run.launches
    assert inputs.place.is_inputs
    began = replace(run, launches=(replace(inputs, blame="culprit"), *others))
    assert list(between_calls([began])) == [began]


def test_two_runs_of_one_dump(tmp_path: Path) -> None:
    for run, mean in enumerate((1.0, 2.0)):
        dumps.write(tmp_path, [launch(0, "k", [value("x")], [value("y", "out", mean)])], run=run)
    comparison = compare(tmp_path / "rank0/run0", tmp_path / "rank0/run1")
    assert [str(x.place) for x in comparison.culprits] == ["#0 k"]


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
    first = launch(0, "k0", [value("x")], [value("buf0", "out", 2.0)])
    second = launch(1, "k1", [value("x")], [value("buf1", "out", 3.0)])
    for name, launches in (("a", [second]), ("b", [first, second])):
        made = dumps.write(tmp_path / name, launches)
        run = json.loads((made / "rank0/run0/run.json").read_text())
        run["outputs"] = {"Runner.call": ["buf0", "buf1"]}
        (made / "rank0/run0/run.json").write_text(json.dumps(run))
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert comparison.equal
    assert [x.name for x in comparison.launches[-1].reads] == ["1: buf1"]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (str(2**53), str(2**53 + 1), False),
        ("1", "1.0", True),
        ("nan", "1", False),
        ("s0", "s0", True),
    ],
)
def test_scalars(compared: Callable[..., Comparison], a: str, b: str, same: bool) -> None:
    def launches(number: str) -> Launches:
        scalar = {"arg": "xnumel", "role": "in", "type": "int", "value": number}
        return [launch(0, "k", [value("x", mean=1.0), scalar], [value("y", "out", 2.0)])]

    assert compared(launches(a), launches(b)).equal == same


def test_large_integers_are_exact_in_statistics(compared: Callable[..., Comparison]) -> None:
    def launches(largest: int) -> Launches:
        result = value("y", "out", dtype="int64", max=largest)
        return [launch(0, "k", [value("x", mean=1.0)], [result])]

    assert not compared(launches(2**63 - 1), launches(2**63 - 2)).equal


def test_a_constant_tells_nothing_of_where_it_came_from(
    compared: Callable[..., Comparison],
) -> None:
    """Zeros were written to what launch 2 reads; launch 0, which wrote zeros too, did not."""

    def launches(first: dumps.Row, read: dumps.Row) -> Launches:
        return [
            launch(0, "k0", [value("x", mean=1.0)], [{**first, "arg": "buf0", "role": "out"}]),
            launch(1, "k1", [value("x", mean=1.0)], [value("buf5", "out", 3.0)]),
            launch(2, "k2", [{**read, "arg": "buf5"}], [value("buf6", "out", read["mean"])]),
        ]

    zeros = value("", min=0.0, max=0.0, std=0.0)
    comparison = compared(
        launches(zeros, zeros), launches(value("", mean=5.0), value("", mean=3.0))
    )
    assert blamed(comparison) == {"#0": "culprit", "#2": "culprit"}


def test_two_ranks_of_one_dump(tmp_path: Path) -> None:
    for rank in (0, 1):
        for run in (0, 1):
            dumps.write(tmp_path, chain(1, 2), rank=rank, run=run)
    comparison = compare(tmp_path / "rank0", tmp_path / "rank1")
    assert comparison.equal
    assert len(comparison.runs) == 2


def test_what_was_not_looked_at_is_not_called_equal(compared: Callable[..., Comparison]) -> None:
    comparison = compared(chain(1, 2, 9), chain(1, 2, 3), kernels=["cpp_fused_op0_0"])
    assert describe.verdict(comparison).startswith("equal: 1 of 3 launches")


def test_a_filter_that_matches_no_launch_is_an_error(compared: Callable[..., Comparison]) -> None:
    with pytest.raises(RewriterError) as error:
        compared(chain(1), chain(1), kernels=["nothing*"])
    assert error.value.slug == "nothing-to-compare"


def test_nothing_in_common_is_an_error(compared: Callable[..., Comparison]) -> None:
    other = [launch(0, "another_kernel", [value("x")], [value("y", "out", shape=[3], numel=3)])]
    with pytest.raises(RewriterError) as error:
        compared(chain(1, 2), other)
    assert error.value.slug == "nothing-in-common"


def test_names_alone_are_nothing_to_compare(tmp_path: Path) -> None:
    for name in "ab":
        dumps.write(tmp_path / name, [launch(0, "k")])
    with pytest.raises(RewriterError) as error:
        compare(tmp_path / "a", tmp_path / "b")
    assert error.value.slug == "nothing-to-compare"


@pytest.fixture
def dump_pair(tmp_path: Path) -> tuple[str, str]:
    inputs = [value("x", mean=1.0)]
    a = dumps.write(tmp_path / "a", chain(1, 5, 6), inputs=inputs)
    return str(a), str(dumps.write(tmp_path / "b", chain(1, 2, 3), inputs=inputs))


def test_inputs_that_differ_are_those_of_the_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, mean in (("a", 1.0), ("b", 2.0)):
        dumps.write(tmp_path / name, chain(1, 2, 3), inputs=[value("x", mean=mean)])
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "the runs diverge at the inputs of the call" in capsys.readouterr().out


def test_command_names_the_culprit_first(
    dump_pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *dump_pair]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "different: the runs diverge at #1 cpp_fused_op1_1 (line 101)"
    assert any(line.split() == _ROW.split() for line in lines)


_ROW = "#2 #2 cpp_fused_op2_2 numeric numeric downstream of #1"


def test_command_exits_0_where_nothing_differs(
    dump_pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", dump_pair[0], dump_pair[0]]) == 0
    assert capsys.readouterr().out.startswith("equal: 3 of 3 launches")


def test_tolerances(dump_pair: tuple[str, str]) -> None:
    assert cli.main(["compare", *dump_pair, "--atol", "10"]) == 0
    assert cli.main(["compare", *dump_pair, "--kernels", "cpp_fused_op0_*"]) == 0


def test_a_record_that_is_cut_short_is_said(tmp_path: Path) -> None:
    for name in "ab":
        dumps.write(tmp_path / name, chain(2, 3), inputs=[value("x", mean=1.0)])
    events = tmp_path / "a/rank0/run0/events.jsonl"
    events.write_bytes(events.read_bytes()[:-20])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.cut == ("A rank0/run0",)
    said = "the record of A rank0/run0 is cut short: what followed is lost"
    assert said in describe.limits(found)


def test_strict_minds_launches_without_a_counterpart(tmp_path: Path) -> None:
    a = dumps.write(tmp_path / "a", chain(1, 2))
    b = dumps.write(tmp_path / "b", chain(1))
    assert cli.main(["compare", str(a), str(b)]) == 0
    assert cli.main(["compare", str(a), str(b), "--strict"]) == 1


def test_runs_of_different_models_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_json_fits_its_schema(
    dump_pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["compare", *dump_pair, "--json"])
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, SCHEMA)
    assert said["verdict"] == "different"
    culprit = said["launches"][said["culprits"][0]]
    assert culprit["a"]["launch"] == 1
    assert said["launches"][3]["producers"] == [culprit["a"]["step"]]


def test_json_of_saved_tensors_fits_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        written = value("y", "out", file="y.pt", shape=[1, 2], numel=2)
        made = dumps.write(tmp_path / name, [launch(0, "k", [], [written])])
        torch.save(
            torch.tensor([[float("nan" if name == "a" else "inf"), 0.0]]), made / "rank0/run0/y.pt"
        )
    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, SCHEMA)
    assert said["launches"][0]["results"][0]["metrics"]["nan_a"] == 1


def in_place(index: int, before: float, after: float) -> tuple[dumps.Row, list[dumps.Row]]:
    """A launch that changes `buf0` where it is."""
    table, rows = launch(
        index, "cpp_fused_add_1", [value("buf0", "inout", before)], [value("buf0", "inout", after)]
    )
    return table, rows


def once_or_twice(times: int) -> Launches:
    """`buf0` is made, changed in place once or twice, and read."""
    first = launch(0, "cpp_fused_mul_0", [value("x", mean=1.0)], [value("buf0", "out", 2.0)])
    changes = [in_place(at, 1.0 + at, 2.0 + at) for at in range(1, times + 1)]
    end = 2.0 + times
    last = launch(
        9, "extern_kernels.mm", [value("buf0", mean=end)], [value("buf9", "out", end * 2)]
    )
    return [first, *changes, last]


@pytest.mark.parametrize("twice_in", ["A", "B"])
def test_a_launch_in_place_that_only_one_run_has_is_the_culprit(
    twice_in: str, compared: Callable[..., Comparison]
) -> None:
    a, b = (once_or_twice(2 if twice_in == side else 1) for side in "AB")
    comparison = compared(a, b)
    (culprit,) = comparison.culprits
    assert (culprit.a is None) == (twice_in == "B")
    assert str(culprit.place) == "#2 cpp_fused_add_1"
    assert culprit.state == "numeric"
    assert blamed(comparison) == {"#2": "culprit", "#9": "downstream"}


def test_a_launch_of_one_run_that_changes_nothing_is_no_culprit(
    compared: Callable[..., Comparison],
) -> None:
    a = once_or_twice(1)
    a.insert(2, in_place(5, 3.0, 3.0))
    comparison = compared(a, once_or_twice(1))
    assert comparison.equal
    assert blamed(comparison) == {}


def test_equal_by_statistics_says_as_far_as_they_see(
    dump_pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", dump_pair[0], dump_pair[0], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, SCHEMA)
    assert said["sentence"] == "equal: 3 of 3 launches, within tolerance, as far as statistics see"
    assert "another order of the same values would look equal" in said["limits"][0]


def test_progress_comes_to_its_total(tmp_path: Path) -> None:
    """The inputs, the outputs and what B has alone are none of the launches of A."""
    inputs = [value("x", mean=1.0)]
    a = with_outputs(dumps.write(tmp_path / "a", chain(1, 2), inputs=inputs), "buf1")
    b = with_outputs(dumps.write(tmp_path / "b", chain(1, 2, 3), inputs=inputs), "buf1")
    said: list[tuple[int, int]] = []
    compare(a, b, progress=lambda done, total: said.append((done, total)))
    assert said == [(1, 2), (2, 2)]


def test_outputs_are_counted_where_launches_have_no_counterpart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (
        str(with_outputs(dumps.write(tmp_path / name, chain(*means)), "buf1"))
        for name, means in (("a", (1, 2)), ("b", (1, 2, 3)), ("c", (1, 2)))
    )
    assert cli.main(["compare", a, b]) == 0
    assert "outputs compared: 1 of 1 equal\n" in capsys.readouterr().out
    assert cli.main(["compare", a, c]) == 0
    assert "outputs compared" not in capsys.readouterr().out


def with_outputs(made: Path, *names: str) -> Path:
    run = json.loads((made / "rank0/run0/run.json").read_text())
    run["outputs"] = {"Runner.call": list(names)}
    (made / "rank0/run0/run.json").write_text(json.dumps(run))
    return made


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
    inputs = [value("x", mean=1.0)]
    made = [
        with_outputs(dumps.write(tmp_path / name, chain(1, 2), inputs=inputs), *names)
        for name, names in (("a", a), ("b", b))
    ]
    assert compare(*made).launches[-1].reasons == said
