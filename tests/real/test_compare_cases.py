"""Comparisons with a known answer: a fault is planted at one launch, which has to be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from capture import Compiled, Graph, compile_case
from comparisons import (
    DIFFERS,
    Dumps,
    affected,
    argument_changed,
    assert_first,
    assert_found,
    but,
    corrupted,
    culprits,
    downstream,
    graph_of,
    kernel_changed,
    launches,
    layers,
    poisoned,
    ran,
    reordered,
    rounded,
    swapped,
    trained,
)
from harness import copy
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.types import Comparison
from sampling import one_in, sampled

Compile = Callable[[str], Compiled]
Plant = Callable[[str], str]

LAST = (
    15  # launches of `layers`: 0 to 3 are the projections, then a block is a product and a kernel
)


@pytest.fixture(scope="session")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    return Dumps(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="session")
def plain() -> Graph:
    return graph_of(layers)


# By launch; every block has kernels and shapes like the others.
PLANTS = {
    "a constant of a kernel": (0, partial(kernel_changed, old="(2.0)", new="(2.01)")),
    "a constant of a shared kernel": (9, partial(kernel_changed, old="(0.5)", new="(0.51)")),
    "the last kernel": (LAST, partial(kernel_changed, old="(0.5)", new="(0.51)")),
    "a scalar of an operator": (1, partial(argument_changed, which=4, text="beta=1.01")),
    "swapped operands of a kernel": (0, partial(swapped, first=0, second=1)),
    "swapped operands of an operator": (8, partial(swapped, first=0, second=1)),
    "a view as another": (2, partial(argument_changed, which=2, text="arg4_1")),
    "a kernel in bfloat16": (7, rounded),
    "an operator in bfloat16": (10, partial(corrupted, fault="bfloat16")),
    "NaN of a kernel": (11, poisoned),
    "NaN of an operator": (12, partial(corrupted, fault="nan")),
    "NaN of the first launch": (0, partial(corrupted, fault="nan")),
    "a result in another order": (6, partial(corrupted, fault="rolled")),
    "a shared kernel, once": (13, partial(corrupted, fault="scaled")),
}
# Found by what a plant does to statistics, and by the bytes.
HIDDEN = {"a result in another order"}


def at(launch: int, plant: Callable[..., str]) -> Plant:
    return lambda source: plant(source, launch)


@pytest.mark.parametrize("name", PLANTS)
def test_the_fault_is_found(name: str, plain: Graph, dumped: Dumps) -> None:
    launch, plant = PLANTS[name]
    comparison = compare(dumped(but(plain, at(launch, plant))), dumped(plain))
    assert_found(comparison, launch)
    assert downstream(comparison) == affected(plain.source, launch)
    assert not comparison.unmatched
    assert not comparison.equal


@pytest.mark.parametrize("name", ["a constant of a shared kernel", "NaN of an operator"])
def test_the_fault_is_found_in_the_second_dump(name: str, plain: Graph, dumped: Dumps) -> None:
    launch, plant = PLANTS[name]
    assert_found(compare(dumped(plain), dumped(but(plain, at(launch, plant)))), launch)


def test_two_dumps_of_one_wrapper_are_equal(plain: Graph, dumped: Dumps) -> None:
    again = replace(plain, args=list(plain.args))
    comparison = compare(dumped(plain), dumped(again))
    assert comparison.equal
    assert comparison.culprits == ()
    # The inputs, the launches, and what is returned.
    assert [found.state for found in comparison.launches] == ["equal"] * (1 + LAST + 1 + 1)


def test_a_nan_is_told_from_a_wrong_number(plain: Graph, dumped: Dumps) -> None:
    for name, state in (("NaN of a kernel", "non-finite"), ("a kernel in bfloat16", "numeric")):
        launch, plant = PLANTS[name]
        comparison = compare(dumped(but(plain, at(launch, plant))), dumped(plain))
        assert comparison.culprits[0].state == state


@pytest.mark.parametrize(("probe", "name"), sampled(["print", "hash"], list(PLANTS)))
def test_the_fault_is_found_without_tensors(
    probe: str, name: str, plain: Graph, dumped: Dumps
) -> None:
    launch, plant = PLANTS[name]
    a, b = (dumped(graph, probe=probe) for graph in (but(plain, at(launch, plant)), plain))
    comparison = compare(a, b)
    if probe == "hash" or name not in HIDDEN:
        assert_first(comparison, launch)
        basis = {"print": "statistics", "hash": "hashes"}[probe]
        assert {tensor.basis for tensor in comparison.culprits[0].results} == {basis}
    if probe == "hash":
        assert downstream(comparison) == affected(plain.source, launch)


def test_statistics_blame_the_reader_of_a_result_in_another_order(
    plain: Graph, dumped: Dumps
) -> None:
    """They cannot see the order of values, only what the next launch makes of it."""
    launch, plant = PLANTS["a result in another order"]
    graphs = but(plain, at(launch, plant)), plain
    comparison = compare(*(dumped(graph, probe="print") for graph in graphs))
    assert culprits(comparison) == [(launch + 1, 0)]


@pytest.mark.parametrize("name", one_in(2, list(PLANTS)))
def test_the_fault_is_found_with_results_only(name: str, plain: Graph, dumped: Dumps) -> None:
    launch, plant = PLANTS[name]
    graphs = but(plain, at(launch, plant)), plain
    comparison = compare(*(dumped(graph, when="after") for graph in graphs))
    assert_found(comparison, launch)
    assert downstream(comparison) == affected(plain.source, launch)


# --- Other orders


PAIR = 1  # launches 1 and 2 are independent


@pytest.fixture(scope="session")
def free() -> Graph:
    """Nothing is written to memory that another launch has read."""
    return graph_of(layers, "no reuse")


def same_work(comparison: Comparison) -> bool:
    """Whether launches were paired that compute the same, as Inductor's comments say."""
    return all(
        found.a.source_nodes == found.b.source_nodes
        for found in comparison.launches
        if found.a and found.b
    )


def test_another_order_is_no_difference(free: Graph, dumped: Dumps) -> None:
    comparison = compare(dumped(but(free, at(PAIR, reordered))), dumped(free))
    assert comparison.equal
    assert comparison.culprits == ()
    assert comparison.unmatched == ()
    assert same_work(comparison)


def without_comments(source: str) -> str:
    return "".join(
        line for line in source.splitlines(keepends=True) if "# Topologically" not in line
    )


def test_another_order_is_no_difference_without_provenance(free: Graph, dumped: Dumps) -> None:
    """The two differ in what they read, and in nothing else."""
    graphs = but(free, without_comments, at(PAIR, reordered)), but(free, without_comments)
    comparison = compare(*map(dumped, graphs))
    assert comparison.equal
    assert comparison.culprits == ()
    assert comparison.unmatched == ()


@pytest.mark.parametrize(
    ("launch", "found"), [(0, 0), (1, 2), (2, 1), (4, 4), (9, 9), (LAST, LAST)]
)
def test_the_fault_is_found_in_another_order(
    launch: int, found: int, free: Graph, dumped: Dumps
) -> None:
    """The plant is at `launch` of the plain wrapper, which is `found` in the other order."""
    other = but(free, at(launch, partial(corrupted, fault="scaled")), at(PAIR, reordered))
    if launch in (1, 2):  # a plant at run time counts calls
        other = but(free, at(PAIR, reordered), at(found, partial(corrupted, fault="scaled")))
    comparison = compare(dumped(other), dumped(free))
    assert_found(comparison, found)
    assert comparison.unmatched == ()
    assert same_work(comparison)


# --- Several faults


def test_two_independent_faults_are_two_culprits(plain: Graph, dumped: Dumps) -> None:
    faults = (at(launch, partial(corrupted, fault="scaled")) for launch in (1, 2))
    comparison = compare(dumped(but(plain, *faults)), dumped(plain))
    assert culprits(comparison) == [(1, 0), (2, 0)]
    assert_first(comparison, 1)


def test_what_follows_from_a_fault_hides_another(plain: Graph, dumped: Dumps) -> None:
    """A launch that reads wrong values is not said to be wrong itself."""
    faults = (at(launch, partial(corrupted, fault="scaled")) for launch in (5, 10))
    comparison = compare(dumped(but(plain, *faults)), dumped(plain))
    assert_found(comparison, 5)


def test_a_wrong_kernel_is_found_where_it_runs_first(plain: Graph, dumped: Dumps) -> None:
    """Six launches share it, and all of them compute with the wrong constant."""

    def everywhere(source: str) -> str:
        return source.replace("static_cast<float>(0.5)", "static_cast<float>(0.51)")

    comparison = compare(dumped(but(plain, everywhere)), dumped(plain))
    assert_found(comparison, 5)


def test_other_inputs_are_said_to_be_the_cause(plain: Graph, dumped: Dumps) -> None:
    other = replace(plain, args=[plain.args[0] * 1.01, *plain.args[1:]])
    comparison = compare(dumped(other), dumped(plain))
    first, *more = comparison.culprits
    assert first.place.launch is None
    assert not more
    assert downstream(comparison) == set(range(LAST + 1))


def test_a_launch_that_writes_to_what_it_reads_is_found(plain: Graph, dumped: Dumps) -> None:
    """What it returns is right; the next one that reads the same is wrong.

    A dump of what launches write cannot tell, and says so.
    """
    wrong = but(plain, at(4, partial(corrupted, fault="overwriting")))
    (culprit,) = compare(dumped(wrong), dumped(plain)).culprits
    assert culprit.place.launch == 5
    assert "`--args all` also records them here" in culprit.reasons[-1]
    comparison = compare(dumped(wrong, args="all"), dumped(plain, args="all"))
    assert_first(comparison, 4)
    assert tuple(found.place.launch for found in comparison.launches if found.state in DIFFERS)[
        :2
    ] == (4, 5)


def test_results_only_narrow_down_a_launch_that_writes_to_what_it_reads(
    plain: Graph, dumped: Dumps
) -> None:
    """What it read is only known after it, so it may be the one that was given wrong values."""
    graphs = but(plain, at(4, partial(corrupted, fault="overwriting"))), plain
    comparison = compare(*(dumped(graph, when="after") for graph in graphs))
    assert comparison.culprits[0].place.launch in (4, 5)


# --- Loops and repeated kernels


@pytest.mark.parametrize("fault", ["scaled", "nan"])
@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_the_iteration_of_a_loop_is_found(
    iteration: int, fault: str, compiled: Compile, dumped: Dumps
) -> None:
    graph = compiled("while_loop").graphs[0]
    body = next(launch for launch in launches(graph.source) if "body" in launch.scope)
    wrong = but(graph, lambda source: corrupted(source, body.index, fault, iteration))
    comparison = compare(dumped(wrong), dumped(graph))
    assert_found(comparison, body.index, iteration)
    after = [
        found.place.iteration
        for found in comparison.launches
        if found.blame == "downstream" and found.place.launch == body.index
    ]
    assert after == list(range(iteration + 1, 3))
    assert comparison.unmatched == ()


@pytest.mark.parametrize("kernel", ["extern_kernels.mm", "cpp_fused_add_relu_0"])
@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_the_call_of_a_subgraph_is_found(
    iteration: int, kernel: str, compiled: Compile, dumped: Dumps
) -> None:
    graph = compiled("subgraph").graphs[0]
    (index,) = (x.index for x in launches(graph.source) if x.kernel == kernel)
    wrong = but(graph, lambda source: corrupted(source, index, "scaled", iteration))
    comparison = compare(dumped(wrong), dumped(graph))
    assert_found(comparison, index, iteration)
    # Two launches take turns, three times each.
    wrong_later = sum(found.blame == "downstream" for found in comparison.launches)
    assert wrong_later == 2 * (2 - iteration) + (kernel == "extern_kernels.mm")


def test_a_loop_that_ends_sooner_is_found(compiled: Compile, dumped: Dumps) -> None:
    """Its condition went wrong: the launch that computes it, in the first round that differs."""
    graph = compiled("while_loop").graphs[0]
    condition = next(launch for launch in launches(graph.source) if "cond" in launch.scope)
    wrong = but(graph, lambda source: kernel_changed(source, condition.index, "(3)", "(2)"))
    comparison = compare(dumped(wrong), dumped(graph))
    assert_first(comparison, condition.index, 2)
    assert {found.b.kernel for found in comparison.unmatched if found.b} == {
        launch.kernel for launch in launches(graph.source) if "while_loop" in launch.scope
    }


# --- Forward and backward


@pytest.fixture(scope="session")
def both_ways() -> list[Graph]:
    """A forward and its backward."""
    return compile_case(trained()).graphs


@pytest.mark.parametrize("kernel", ["extern_kernels.mm", "gelu_backward"])
def test_the_fault_of_a_backward_is_found(
    kernel: str, both_ways: list[Graph], dumped: Dumps
) -> None:
    forward, backward = both_ways
    launch = next(x.index for x in launches(backward.source) if kernel in x.kernel)
    wrong = but(backward, at(launch, partial(corrupted, fault="scaled")))
    comparison = compare(dumped(forward, wrong), dumped(forward, backward))
    assert [(run.a, run.b) for run in comparison.runs] == [("rank0/run0",) * 2, ("rank0/run1",) * 2]
    assert all(found.state not in DIFFERS for found in comparison.runs[0].launches)
    assert_found(comparison, launch)
    assert downstream(comparison) == affected(backward.source, launch)


def test_the_fault_of_a_forward_is_found_first(both_ways: list[Graph], dumped: Dumps) -> None:
    """And what it saved for the backward is wrong there from the start."""
    forward, backward = both_ways
    wrong = but(forward, at(0, partial(argument_changed, which=4, text="beta=1.5")))
    # After the weight and the input, and before the gradient.
    weight, given, *made, gradient = backward.args
    saved = [weight, given, *(copy(value).mul_(1.1) for value in made), gradient]
    comparison = compare(dumped(wrong, replace(backward, args=saved)), dumped(forward, backward))
    assert_first(comparison, 0)
    assert ran(comparison.culprits[0].place) == (0, 0)
    assert comparison.culprits[0] in comparison.runs[0].launches


def test_a_fault_of_an_operator_without_out_is_found(both_ways: list[Graph], dumped: Dumps) -> None:
    forward, _ = both_ways
    attention = next(x.index for x in launches(forward.source) if x.kind == "fallback")
    wrong = but(forward, at(attention, partial(argument_changed, which=4, text="False")))
    comparison = compare(dumped(wrong), dumped(forward))
    assert_found(comparison, attention)
