"""What `compare --ranks` makes of the ranks of one dump, on small ones written by hand; those of
real processes are in test_ranks_torchrun.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dumps
from dumps import launch, value
from rewriter import cli
from rewriter.comparison.dumps import describe_ranks
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.ranks import Ranks, compare_ranks
from rewriter.comparison.dumps.replica import Divergence
from rewriter.core.errors import RewriterError
from rewriter.dump import names

REDUCE = "torch.ops._c10d_functional.all_reduce_.default"
SCATTER = "torch.ops._c10d_functional.reduce_scatter_tensor.default"
WAIT = "torch.ops._c10d_functional.wait_tensor.default"

NH128 = {"fingerprint": {"name": "nh128", "version": 1}}

Launches = Sequence[tuple[dumps.Row, list[dumps.Row]]]
Call = tuple[Launches, Sequence[dumps.Row]]
Dump = Callable[..., Path]
Said = Callable[..., tuple[int, str]]
Capture = pytest.CaptureFixture[str]


def inputs(data: float = 1.0, weight: float = 2.0) -> list[dumps.Row]:
    return [value("primals_1", mean=data), value("primals_2", mean=weight)]


def call(data: float = 1.0, weight: float = 2.0, *, wrong: float = 0.0) -> Launches:
    """A kernel of the weight alone, one of the data, and one of both."""
    both = [value("w", mean=weight + wrong), value("x", mean=data)]
    return [
        launch(0, "k_w_0", [value("primals_2", mean=weight)], [value("w", "out", weight + wrong)]),
        launch(1, "k_x_1", [value("primals_1", mean=data)], [value("x", "out", data)]),
        launch(2, "k_y_2", both, [value("y", "out", weight + wrong + data)]),
    ]


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """`dump(first, second)`: calls of rank 0, calls of rank 1, …; each is launches and inputs."""

    def write(*ranks: Sequence[Call], root: str = "dump", **options: Any) -> Path:
        for rank, calls in enumerate(ranks):
            for run, (launches, given) in enumerate(calls):
                where = {"rank": rank, "run": run, "manifest": NH128, **options}
                dumps.write(tmp_path / root, launches, inputs=given, **where)
        return tmp_path / root

    return write


@pytest.fixture
def said(capsys: Capture) -> Said:
    """The exit code and the output of `compare --ranks`."""

    def act(path: Path, *options: object) -> tuple[int, str]:
        code = cli.main(["compare", str(path), "--ranks", *map(str, options)])
        return code, capsys.readouterr().out

    return act


def plain(data: float = 1.0, weight: float = 2.0, wrong: float = 0.0) -> Call:
    return call(data, weight, wrong=wrong), inputs(data, weight)


def draws(mean: float) -> Call:
    seed = launch(0, "aten.randint.low_out", [], [value("seed", "out", mean)])
    return [seed, launch(1, "k_1", [value("seed", mean=mean)], [value("y", "out", mean)])], []


def uses_random_numbers(mean: float) -> Call:
    use = launch(0, "cpp_fused_rand_0", [value("seed")], [value("y", "out", mean)])
    return [use], [value("seed")]


def reduced(data: float, result: float, kernel: str = REDUCE, *, early: float = 0.0) -> Call:
    """A collective over the data; `early` is what its memory holds before it was waited for."""
    given = value("x", "inout", data)
    start = value("x", "inout", early)
    done = value("x", "inout", result)
    launches = [
        launch(0, "k_x_0", [value("primals_1", mean=data)], [value("x", "out", data)]),
        launch(1, kernel, [given], [start], kind="collective"),
        launch(2, WAIT, [start], [done], kind="collective"),
        launch(3, "k_y_3", [value("x", mean=result)], [value("y", "out", result)]),
    ]
    return launches, [value("primals_1", mean=data)]


def reduced_in_cpp(result: float) -> Call:
    """There the wait is not said to write what it waits for."""
    start = "aoti_torch_cpu__c10d_functional_all_reduce_"
    waits = "aoti_torch_cpu__c10d_functional_wait_tensor"
    launches = [
        launch(0, start, [value("x", "inout", 1)], [value("x", "inout", 1)], kind="collective"),
        launch(1, waits, [value("x", mean=1)], kind="collective"),
        launch(2, "cpp_fused_2", [value("x", mean=result)], [value("y", "out", result)]),
    ]
    return launches, [value("x", mean=1)]


def sums(scale: float) -> Call:
    """A launch that makes much of small gradients."""
    gradient = value("tangents_1", mean=0, min=-scale, max=scale, std=scale / 2)
    return [launch(0, "k_sum_0", [gradient], [value("g", "out", scale * 1e4)])], [gradient]


def other_model() -> Call:
    return [launch(0, "extern_kernels.convolution", [value("q")], [value("r", "out")])], []


def product_of(rows: int, *, padded: str = "", wrong: float = 0.0) -> Call:
    """A product of so many rows, which is padded first if a kernel for that is named, and the
    kernel that reads the rows which both ranks have."""
    pad = [launch(0, padded, [value("primals_2", mean=2)], [value("p", "out", 2)])]
    product = value("m", mean=3, shape=[rows, 8], numel=8 * rows)
    launches = [
        *(pad if padded else ()),
        launch(1, "extern_kernels.mm", [value("primals_2", mean=2)], [{**product, "role": "out"}]),
        launch(2, "k_sum_2", [product], [value("y", "out", 5 + wrong)]),
    ]
    return launches, inputs()


def exchanged(rows: int, *padded: str) -> Call:
    """Ranks exchange tensors of one shape, whatever code they compiled."""
    sent = value("m", "inout", 3, shape=[rows, 8], numel=8 * rows)
    done = {**sent, "mean": 6}
    pads = [launch(0, x, [value("primals_2")], [value("p", "out")]) for x in padded]
    launches = [
        *pads,
        launch(1, REDUCE, [sent], [done], kind="collective"),
        launch(2, WAIT, [done], [done], kind="collective"),
    ]
    return launches, inputs()


def first(found: Ranks) -> Divergence:
    assert found.first is not None
    return found.first


def where(found: Ranks) -> tuple[int, str, str, str]:
    """The rank that parts, why, in which call, and at which launch."""
    divergence = first(found)
    return divergence.rank, divergence.reason, divergence.run, str(divergence.launch.place)


WRONG = [plain(wrong=4)]
PAD = "triton_poi_fused_mm_view_0"
# The calls of each rank, the first divergence, the reasons of what is no fault, and the groups of
# ranks that agree there, if there are any.
CASES: dict[str, tuple[list[list[Call]], tuple[int, str, str, str] | None, list[str], Any]] = {
    "equal": ([[plain()]] * 3, None, [], ()),
    "data of its own": ([[plain(1), plain(3)], [plain(5), plain(7)]], None, ["data"], ()),
    "random numbers of its own": ([[draws(1)], [draws(5)]], None, ["random"], ()),
    "a scatter": ([[reduced(1, 3, SCATTER)], [reduced(1, 7, SCATTER)]], None, ["received"], ()),
    "a sum makes ranks agree again": (
        [[reduced(1, 6, early=1)], [reduced(5, 6, early=6)]], None, ["data"], ()
    ),
    "what a collective holds before it is waited for": (
        [[reduced(1, 6, early=1)], [reduced(1, 6, early=6)]], None, [], ()
    ),
    "inputs were not recorded": ([[(call(1), [])], [(call(5), [])]], None, ["data"], ()),
    # What is 1e-6 may differ by all of it, and be equal within 1e-5.
    "small gradients": ([[sums(1e-6)], [sums(3e-6)]], None, ["data"], ()),
    "a product that is padded": ([[product_of(6)], [product_of(8, padded=PAD)]], None, [], ()),
    "a fault behind data of its own": (
        [[plain(1), plain(3)], [plain(5), plain(7, wrong=4)]],
        (1, "launch", "rank1/run1", "#0 k_w_0"), ["data"], ((0,), (1,)),
    ),
    "the earliest of several": (
        [[plain()] * 2, [plain(), *WRONG], [*WRONG, plain()]],
        (2, "launch", "rank2/run0", "#0 k_w_0"), [], ((0, 1), (2,)),
    ),
    "the first rank is the odd one": (
        [WRONG, [plain()], [plain()], [plain()]],
        (0, "launch", "rank0/run0", "#0 k_w_0"), [], ((1, 2, 3), (0,)),
    ),
    "no majority": (
        [[plain()], WRONG, [plain()], WRONG],
        (1, "launch", "rank1/run0", "#0 k_w_0"), [], ((0, 2), (1, 3)),
    ),
    "ranks that are wrong in different ways": (
        [[plain()], WRONG, [plain()], [plain(wrong=9)]],
        (1, "launch", "rank1/run0", "#0 k_w_0"), [], ((0, 2), (1,), (3,)),
    ),
    "parameters that part later": (
        [[plain(1), plain(3, 2.5), plain(1, 2.9)], [plain(5), plain(7, 2.5), plain(5, 9)]],
        (1, "parameters", "rank1/run2", "inputs"), ["data"], ((0,), (1,)),
    ),
    "parameters of the first rank part": (
        [[plain(rank), plain(rank, 9 if rank == 0 else 3)] for rank in range(4)],
        (0, "parameters", "rank0/run1", "inputs"), ["data"] * 3, ((1, 2, 3), (0,)),
    ),
    "a kernel that uses random numbers": (
        [[uses_random_numbers(1)], [uses_random_numbers(5)]],
        (1, "launch", "rank1/run0", "#0 cpp_fused_rand_0"), [], ((0,), (1,)),
    ),
    "a sum over all ranks": (
        [[reduced(1, 6, early=1)], [reduced(5, 9, early=5)]],
        (1, "collective", "rank1/run0", f"#2 {WAIT}"), ["data"], ((0,), (1,)),
    ),
    "the reader behind a wait in C++": (
        [[reduced_in_cpp(2)], [reduced_in_cpp(3)]],
        (1, "collective", "rank1/run0", "#2 cpp_fused_2"), [], ((0,), (1,)),
    ),
    "a padded product with a fault": (
        [[product_of(6)], [product_of(8, padded=PAD, wrong=4)]],
        (1, "launch", "rank1/run0", "#2 k_sum_2"), [], ((0,), (1,)),
    ),
    "a shape in the same code": (
        [[product_of(6)], [product_of(8)]],
        (1, "launch", "rank1/run0", "#1 extern_kernels.mm"), [], ((0,), (1,)),
    ),
    "a shape that is exchanged": (
        [[exchanged(6)], [exchanged(8, "pad_0")]],
        (1, "collective", "rank1/run0", f"#2 {WAIT}"), [], ((0,), (1,)),
    ),
    "another wrapper": (
        [[plain()], [other_model()], WRONG],
        (2, "launch", "rank2/run0", "#0 k_w_0"), [], ((0,), (2,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_ranks_part(case: str, dump: Dump) -> None:
    ranks, expected, given, groups = CASES[case]
    found = compare_ranks(dump(*ranks))
    assert (found.first and where(found)) == expected
    assert [x.reason for x in found.given] == given
    assert found.groups == groups


def test_what_parts_is_named(dump: Dump) -> None:
    found = compare_ranks(dump(*CASES["data of its own"][0]))
    (given,) = found.given
    assert (given.rank, given.run, given.names) == (1, "rank1/run0", ("primals_1",))
    found = compare_ranks(dump(*CASES["parameters of the first rank part"][0], root="parameters"))
    assert (found.reference, found.odd, first(found).names) == (1, (0,), ("primals_2",))
    found = compare_ranks(dump(*CASES["a sum over all ranks"][0], root="sum"))
    assert first(found).names == (REDUCE,)
    found = compare_ranks(dump(*CASES["another wrapper"][0], root="other"))
    assert "rank 1: not compared: " in describe_ranks.line(found.replicas[0])


@pytest.mark.parametrize(
    ("case", "verdict", "groups"),
    [
        ("equal", "equal: ranks 0-2, 6 of 6 pairs of launches, within tolerance, as far as "
         "statistics see", ""),
        ("the first rank is the odd one", "different: rank 0 diverges from ranks 1-3 at #0 k_w_0 "
         "(line 100) in rank0/run0", "there: ranks 1-3 agree; rank 0 alone"),
        ("no majority", "different: rank 1 diverges from rank 0 at #0 k_w_0 (line 100) in "
         "rank1/run0", "there: ranks 0, 2 agree; ranks 1, 3 agree; no group is the largest"),
    ],
)  # fmt: skip
def test_what_is_said_of_ranks(case: str, verdict: str, groups: str, dump: Dump) -> None:
    found = compare_ranks(dump(*CASES[case][0]))
    assert (describe_ranks.verdict(found), describe_ranks.groups(found)) == (verdict, groups)


def test_two_dumps_are_judged_by_what_was_waited_for(dump: Dump) -> None:
    path = dump([reduced(1, 6, early=1)], [reduced(1, 9, early=9)])
    comparison = compare(path / "rank1", path / "rank0")
    start, (wait,) = comparison.launches[2], comparison.culprits
    assert (start.state, start.results[0].note) == (
        "unknown",
        "not compared: the collective that writes it may still be running",
    )
    assert (wait.place.launch, "counterpart" in " ".join(wait.reasons)) == (2, False)


def cut(path: Path, lines: int, rest: str = "") -> None:
    """Leave so many lines of the events, as a program that was killed does."""
    kept = path.read_text().splitlines(keepends=True)[:lines]
    path.write_text("".join(kept) + rest)


@pytest.mark.parametrize(
    ("lines", "rest", "where", "says"),
    [
        # By lines: 2 inputs; #0 before, after, after; #1 before, after, after; #2 …
        pytest.param(0, "", "#0 k_w_0", "before the first launch", id="before anything"),
        pytest.param(0, '{"ph', "#0 k_w_0", "before the first launch", id="in the first line"),
        pytest.param(5, "", "#1 k_x_1", "after #0 k_w_0", id="between launches"),
        pytest.param(6, "", "#2 k_y_2", "after #1 k_x_1", id="in a launch that is not the last"),
        pytest.param(10, "", "#2 k_y_2", "in #2 k_y_2", id="in the last launch"),
        pytest.param(8, '{"launch": 2, "ph', "#2 k_y_2", "after #1 k_x_1", id="in a line"),
    ],
)
def test_a_record_that_ends_early(dump: Dump, lines: int, rest: str, where: str, says: str) -> None:
    path = dump([plain(), plain(), plain()], [plain(), plain()])
    cut(path / "rank1/run1/events.jsonl", lines, rest)
    found = compare_ranks(path)
    divergence = first(found)
    assert (divergence.rank, divergence.reason, divergence.run) == (1, "ended", "rank1/run1")
    assert str(divergence.launch.place) == where
    assert says in describe_ranks.verdict(found)
    assert "rank0/run2 has no counterpart" in describe_ranks.line(found.replicas[0])


def test_a_fault_before_the_end_of_a_record_comes_first(dump: Dump) -> None:
    path = dump([plain()], [plain(wrong=4)])
    cut(path / "rank1/run0/events.jsonl", 8)
    found = compare_ranks(path)
    assert [divergence.reason for divergence in found.replicas[0].divergences] == [
        "launch",
        "ended",
    ]


def test_the_first_rank_may_be_the_one_that_ended(dump: Dump) -> None:
    path = dump([plain()], [plain()], [plain()])
    cut(path / "rank0/run0/events.jsonl", 5)
    found = compare_ranks(path)
    assert (first(found).rank, found.odd) == (0, (0,))
    assert describe_ranks.verdict(found).startswith(
        "different: rank 0 diverges from ranks 1, 2 after"
    )


def test_the_first_rank_may_have_recorded_nothing(dump: Dump) -> None:
    path = dump([plain()], [plain()], [plain()])
    cut(path / "rank0/run0/events.jsonl", 0)
    (path / "rank0/run0").rename(path / "rank0/run7")
    dumps.write(path, *plain()[:1], inputs=plain()[1], rank=0, run=0)
    for rank in (1, 2):
        dumps.write(path, plain()[0], inputs=plain()[1], rank=rank, run=1)
    found = compare_ranks(path)
    assert (first(found).rank, first(found).reason, found.odd) == (0, "ended", (0,))


@pytest.mark.parametrize("name", ["f", "f{}"], ids=["one name", "a name for each rank"])
def test_calls_of_another_start_are_no_counterparts(name: str, tmp_path: Path) -> None:
    """The program was started again, and one rank had come further than the other."""
    starts = {0: [(11, 3), (13, 2)], 1: [(12, 2), (14, 2)]}
    for rank, processes in starts.items():
        calls = [(pid, step) for pid, steps in processes for step in range(steps)]
        for run, (pid, step) in enumerate(calls):
            launches, given = plain(data=float(step))
            dumps.write(
                tmp_path,
                launches,
                inputs=given,
                rank=rank,
                run=run,
                artifact=name.format(rank),
                pid=pid,
            )
    found = compare_ranks(tmp_path)
    (comparison,) = found.comparisons
    assert found.first is None
    assert [(run.a[-1], run.b[-1]) for run in comparison.runs] == [
        *zip("0123", "0134", strict=True)
    ]
    assert comparison.unpaired == ("B rank0/run2",)
    # Where they were not started as often, calls go by their order.
    last = tmp_path / "rank1/run3/run.json"
    last.write_text(last.read_text().replace('"pid": 14', '"pid": 15'))
    (comparison,) = compare_ranks(tmp_path).comparisons
    assert [(run.a[-1], run.b[-1]) for run in comparison.runs] == [
        *zip("0123", "0123", strict=True)
    ]


def test_without_own_data_any_input_that_differs_is_a_fault(dump: Dump) -> None:
    """Such as a weight that was initialised differently."""
    path = dump([plain(1)], [plain(5, 9)], [plain(7)])
    assert compare_ranks(path).first is None
    found = compare_ranks(path, data=["primals_1"])
    assert where(found) == (1, "inputs", "rank1/run0", "inputs")
    assert (first(found).names, found.groups) == (("primals_2",), ((0, 2), (1,)))


def test_own_data_may_agree_at_first(dump: Dump) -> None:
    path = dump([plain(1), plain(2)], [plain(1), plain(3)])
    assert [x.reason for x in compare_ranks(path).replicas[0].divergences] == ["parameters"]
    assert compare_ranks(path, data=["primals_1"]).first is None


def test_what_a_backward_graph_is_given_follows_from_the_forward_one(
    dump: Dump,
) -> None:
    def backward(data: float, weight: float = 2.0) -> Any:
        given = [value("primals_2", mean=weight), value("relu", mean=data)]
        given.append(value("tangents_1", mean=data))
        return [launch(0, "k_b_0", given, [value("g", "out", data)])], given

    path = dump([plain(1), backward(1)], [plain(5), backward(5)], [plain(7), backward(7, 9)])
    found = compare_ranks(path, data=["primals_1"])
    divergence = first(found)
    assert (divergence.rank, divergence.run, divergence.names) == (2, "rank2/run1", ("primals_2",))


def _named(dump: Path, **kinds: str) -> Path:
    """Add to a dump what its inputs are in the model."""
    given = {name: names.Input(f"block.{name}", "", kind) for name, kind in kinds.items()}
    names.write(dump, {"": names.Names(inputs=given)})
    return dump


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_a_parameter_that_differs_in_one_element_is_told_by_its_fingerprint(
    dump: Dump, kind: str
) -> None:
    """Its statistics are those of the other ranks."""

    def given(fingerprint: str) -> Any:
        return call(), [value("primals_1"), value("primals_2", mean=2, fingerprint=fingerprint)]

    path = _named(dump([given("a")] * 2, [given("a"), given("b")]), primals_2=kind)
    found = compare_ranks(path)
    assert where(found) == (1, "inputs", "rank1/run1", "inputs")
    assert describe_ranks.verdict(found).endswith(f": the {kind} block.primals_2")
    assert compare_ranks(dump([given("a")], [given("b")], root="other")).first is None


def test_a_buffer_that_a_call_updates_is_as_its_data(dump: Dump) -> None:
    """As the running mean of a batch norm is, if nothing brings ranks together."""

    def calls(data: float) -> list[Any]:
        table, rows = launch(0, "k_0", [value("primals_1", mean=data)], [value("y", "out", data)])
        update = {**table, "after": [["out", "y"], ["inout", "primals_2"]]}
        return [([(update, rows)], inputs(data, 2 + step * data)) for step in range(3)]

    path = _named(dump(calls(1), calls(5)), primals_1="data", primals_2="buffer")
    found = compare_ranks(path)
    assert found.first is None
    assert [x.reason for x in found.given] == ["data"]


def test_parts_of_a_model_are_not_compared(dump: Dump) -> None:
    path = dump([plain(1, 2)], [plain(1, 9)])
    found = compare_ranks(_named(path, primals_1="parameter", primals_2="shard"))
    assert found.first is None
    assert [(x.reason, x.names) for x in found.given] == [("shards", ("primals_2",))]
    assert "parts of the model, not compared" in describe_ranks.verdict(found)


def test_another_initialisation_is_not_known_to_be_a_part(dump: Dump, said: Said) -> None:
    """Most parameters differ: parts of a model, or weights that nothing made the same."""
    path = _named(dump([plain(1, 2)], [plain(4, 9)]), primals_1="parameter", primals_2="buffer")
    found = compare_ranks(path)
    assert (found.first, found.is_unexplained) == (None, True)
    code, out = said(path)
    assert (code, "parts of the model" in out) == (1, True)
    assert first(compare_ranks(path, data=["x"])).reason == "inputs"


def test_weights_of_a_function_are_not_known_to_be_data(dump: Dump) -> None:
    path = dump([plain(1), plain(1, 2)], [plain(1), plain(1, 3)])
    found = compare_ranks(_named(path, primals_1="data", primals_2="data"))
    assert where(found) == (1, "parameters", "rank1/run1", "inputs")


def test_what_only_differs_in_bits_is_no_known_data(dump: Dump) -> None:
    """A launch that makes much of little is not accused, and not called right."""

    def rank(mark: str, wrong: float) -> Any:
        x = value("primals_1", fingerprint="x")
        near = value("w", "out", 1.0, fingerprint=mark)
        launches = [
            launch(0, "k_w_0", [x], [near]),
            launch(1, "k_y_1", [{**near, "role": "in"}], [value("y", "out", wrong)]),
        ]
        return launches, [x]

    found = compare_ranks(dump([rank("a", 1)], [rank("b", 9)]))
    assert (found.first, found.is_unexplained) == (None, True)


def test_data_that_agreed_at_first_are_data(dump: Dump) -> None:
    path = _named(
        dump([plain(1), plain(2)], [plain(1), plain(3)]), primals_1="data", primals_2="parameter"
    )
    found = compare_ranks(path)
    assert (found.first, [x.reason for x in found.given]) == (None, ["data"])


def test_other_kernels_are_named_where_the_data_differ(dump: Dump) -> None:
    """Then no value tells: each rank may have chosen its code, or run another function."""

    def of(kernel: str, data: float) -> Any:
        read, made = value("primals_1", mean=data), value("x", "out", data)
        first, _, last = call(data)
        return [first, launch(1, kernel, [read], [made]), last], inputs(data)

    found = compare_ranks(dump([of("cpp_fused_tanh_0", 1)], [of("cpp_fused_relu_0", 5)]))
    said = "it launches other kernels: cpp_fused_relu_0 in place of cpp_fused_tanh_0"
    assert describe_ranks.verdict(found).endswith(f"; rank 1: {said}")
    assert said in describe_ranks.line(found.replicas[0])
    same = compare_ranks(dump([of("cpp_k_0", 1)], [of("cpp_k_0", 5)], root="same"))
    assert "other kernels" not in describe_ranks.verdict(same)


@pytest.mark.parametrize(
    ("ranks", "options", "slug"),
    [
        pytest.param(1, ["--ranks"], "one-rank", id="one rank in the dump"),
        pytest.param(2, ["--ranks", "1"], "one-rank", id="one rank named"),
        pytest.param(2, ["--ranks", "1,1"], "one-rank", id="one rank named twice"),
        pytest.param(2, ["--ranks", "0,2"], "no-such-rank", id="unknown"),
        pytest.param(2, ["--ranks", "0,-1"], "bad-ranks", id="negative"),
        pytest.param(2, ["--ranks", "0-1"], "bad-ranks", id="a range"),
        pytest.param(2, ["--ranks", "²"], "bad-ranks", id="no digit of ours"),
        pytest.param(2, [], "not-two-dumps", id="neither ranks nor a second dump"),
        pytest.param(2, ["{dump}", "--ranks"], "not-two-dumps", id="both"),
        pytest.param(2, ["{dump}", "--data", "x"], "not-two-dumps", id="own data of two dumps"),
    ],
)
def test_what_is_refused(
    dump: Dump,
    ranks: int,
    options: list[str],
    slug: str,
    capsys: Capture,
) -> None:
    path = str(dump(*[[plain()]] * ranks))
    page = Path(path).parent / "page.html"
    options = [option.format(dump=path) for option in options]
    assert cli.main(["compare", path, *options, "--html", str(page)]) == 2
    out, err = capsys.readouterr()
    assert f"error[{slug}]" in err
    assert (out, page.exists()) == ("", False)


def test_ranks_of_different_models_are_refused(dump: Dump) -> None:
    with pytest.raises(
        RewriterError, match=r"rank1 and .*rank0 have no launch in common"
    ) as raised:
        compare_ranks(dump([plain()], [other_model()]))
    assert raised.value.slug == "nothing-in-common"


OWN = [[plain(1)], [plain(5)]]
FAULTY = [[plain(1)], [plain(5, wrong=4)]]


@pytest.mark.parametrize(
    ("ranks", "options", "code", "verdict"),
    [
        pytest.param([[plain()], [plain()]], ["--strict"], 0, "equal", id="equal"),
        pytest.param(OWN, [], 1, "different data", id="data"),
        pytest.param(OWN, ["--data", "primals_1"], 0, "different data", id="own data"),
        pytest.param(OWN, ["--data", "x*,primals_*"], 0, "different data", id="patterns"),
        pytest.param(OWN, ["--data", "primals_2"], 1, "different", id="other inputs are own data"),
        pytest.param(OWN, ["--data", ""], 1, "different", id="no own data"),
        pytest.param(FAULTY, ["--data", "*"], 1, "different", id="a fault"),
        pytest.param([[plain()] * 2, [plain()]], ["--strict"], 1, "equal", id="fewer calls"),
        pytest.param(
            [[plain()], [other_model()], [plain()]], ["--strict"], 1, "equal", id="not compared"
        ),
    ],
)
def test_exit_codes_and_json(
    dump: Dump,
    ranks: Any,
    options: list[str],
    code: int,
    verdict: str,
    said: Said,
) -> None:
    path = dump(*ranks)
    found, out = said(path, "--json", *options)
    content = json.loads(out)
    assert (found, content["verdict"]) == (code, verdict)
    assert (content["first"] is not None) == (verdict == "different")


def test_what_is_printed(dump: Dump, said: Said) -> None:
    path = dump([plain()], [plain()], [plain(wrong=4)], [plain(5)])
    page = path.parent / "page.html"
    code, text = said(path, "--html", page)
    out = text.splitlines()
    verdict = "different: rank 2 diverges from ranks 0, 1, 3 at #0 k_w_0 (line 100) in rank2/run0"
    assert (code, out[0]) == (1, verdict)
    assert out[2] == "A is rank 2, B is rank 0"
    assert any(line.startswith("#2") and line.endswith("downstream of #0") for line in out)
    assert out[-4:] == [
        "rank 1: equal: 3 of 3 launches, within tolerance, as far as statistics see",
        "rank 2: diverges at #0 k_w_0 (line 100) in rank2/run0",
        "rank 3: received other data from rank3/run0 on (primals_1); launches whose inputs "
        "agree do not differ",
        "there: ranks 0, 1, 3 agree; rank 2 alone",
    ]
    assert verdict[1:] in page.read_text()


def test_what_to_do_about_data_is_said(dump: Dump, said: Said) -> None:
    path = dump(*OWN)
    assert "If each rank is meant to have its own data, pass --data primals_1:" in said(path)[1]
    assert "--data" not in said(path, "--data", "primals_1")[1]


def test_inputs_are_called_as_the_model_calls_them(dump: Dump, said: Said) -> None:
    path = _named(dump([plain(1)], [plain(5, 9)]), primals_2="parameter")
    code, out = said(path, "--data", "*.primals_2,primals_1")
    assert (code, "rank 1: received other data from rank1/run0 on" in out) == (0, True)
    _, out = said(path)
    assert "the inputs of rank1/run0: the parameter block.primals_2" in out
    assert "  in block.primals_2 (primals_2)  f32[4, 8]: values differ" in out


def test_of_inputs_those_that_agreed_are_shown(dump: Dump, said: Said) -> None:
    path = dump([plain(1), plain(3)], [plain(5), plain(7, 9)])
    _, out = said(path)
    assert "primals_2 agreed in the first call of the wrapper" in out
    assert "  in primals_2  f32[4, 8]: values differ" in out
    assert "  in primals_1" not in out


def test_the_row_of_inputs_is_about_those_that_parted(dump: Dump, said: Said) -> None:
    launches, (data, weight) = plain(7, 9)
    path = dump([plain(1), plain(3)], [plain(5), (launches, [{**data, "shape": [32]}, weight])])
    (row,) = (x for x in said(path)[1].splitlines() if x.endswith("culprit"))
    assert row.split()[:4] == ["inputs", "inputs", "unknown", "numeric"]


def test_wrappers_may_have_a_name_for_each_rank(tmp_path: Path) -> None:
    """The device's number is in the source, and the source's hash in the name."""
    back = [launch(0, "k_back_0", [value("g", mean=3)], [value("h", "out", 4)])]
    wrong = [launch(0, "k_back_0", [value("g", mean=3)], [value("h", "out", 5)])]
    for rank, last in enumerate((back, wrong)):
        calls = [(call(), inputs(), "f"), (back, [value("g", mean=3)], "b")]
        calls += [(call(), inputs(), "f"), (last, [value("g", mean=3)], "b")]
        for run, (launches, given, name) in enumerate(calls):
            options: Any = {"rank": rank, "run": run, "artifact": f"{name}{rank}.py"}
            dumps.write(tmp_path / "dump", launches, inputs=given, **options)
    found = compare_ranks(tmp_path / "dump")
    assert where(found) == (1, "launch", "rank1/run3", "#0 k_back_0")
    assert found.replicas[0].comparison is not None
    assert found.replicas[0].comparison.unpaired == ()


def test_ranks_are_compared_with_the_first_that_is_named(dump: Dump) -> None:
    found = compare_ranks(dump([plain(wrong=4)], [plain()], [plain()]), [2, 0])
    assert found.ranks == (2, 0)
    assert where(found)[0] == 0


def test_progress_counts_the_launches_of_all_ranks(dump: Dump) -> None:
    """Also where another rank than the first turns out to be the reference."""
    said: list[tuple[int, int]] = []
    path = dump([plain(wrong=4)], [plain()], [plain()], [plain()])
    compare_ranks(path, progress=lambda done, total: said.append((done, total)))
    assert [done for done, _ in said] == list(range(1, len(said) + 1))
    assert said[-1][0] == said[-1][1]
    assert all(done <= total for done, total in said)


def test_the_page_has_one_finding_for_what_matters(dump: Dump) -> None:
    """Each rank has data of its own, and one goes wrong: that is the finding, others are notes."""
    from rewriter.report.ranked import report

    right = [[plain(x), plain(x + 1)] for x in (1, 5, 9)]
    found = compare_ranks(dump(*right, [plain(3), plain(7, wrong=4)]))
    made = report(found)
    assert [x.kind for x in made.findings if x.severity == "finding"] == ["culprit"]
    (finding,) = (x for x in made.findings if x.severity == "finding")
    assert finding.text.startswith("Rank 3 diverges at #0 k_w_0 (line 100) in rank3/run1")
    assert finding.launch is not None
    assert str(finding.launch) == "#0 k_w_0"
    assert {x.kind for x in made.findings} <= {"culprit", "given", "limit"}
    # Every run that is shown has its own, and no others.
    assert sum(len(run.findings) for run in made.runs) == sum(bool(x.run) for x in made.findings)
