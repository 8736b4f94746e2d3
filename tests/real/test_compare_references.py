"""One model compiled twice: other kernels, other launches, another language, the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from capture import Graph
from comparisons import (
    Dumps,
    argument_changed,
    assert_first,
    assert_found,
    attention,
    bfloat16_layers,
    but,
    corrupted,
    culprits,
    dropout,
    find,
    graph_of,
    kernel_changed,
    launches,
    layers,
    swapped,
)
from models import Case
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.tolerance import Tolerances
from rewriter.comparison.dumps.types import Comparison
from sampling import sampled

Build = Callable[[], Case]

LAST = 15  # of the launches of `layers`


@pytest.fixture(scope="session")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    return Dumps(tmp_path_factory.mktemp("references"))


# A model, and the settings of its two wrappers.
REFERENCES: dict[str, tuple[Build, str, str]] = {
    "eager": (layers, "", "eager"),
    "eager attention": (attention, "", "eager"),
    "attention not fused": (attention, "", "no patterns"),
    "narrow vectors": (layers, "", "narrow vectors"),
    "random": (dropout, "random", "eager random"),
    "fusion off": (layers, "", "fusion off"),
    "fallback_random": (layers, "", "random"),
    "no vectors": (layers, "", "no vectors"),
    "no reuse": (layers, "", "no reuse"),
    "realized": (layers, "", "realized"),
}
DEFAULT = ("eager", "attention not fused")
ALL = [
    pytest.param(name, marks=[] if name in DEFAULT else pytest.mark.exhaustive)
    for name in REFERENCES
]


def graphs(name: str) -> tuple[Graph, Graph]:
    build, ours, theirs = REFERENCES[name]
    return graph_of(build, ours), graph_of(build, theirs)


def assert_complete(comparison: Comparison, a: Graph, b: Graph) -> None:
    """Every launch of both is matched, or is among those that are not; and once."""
    for side, graph in (("a", a), ("b", b)):
        places = [getattr(found, side) for found in comparison.launches]
        indices = [place.launch for place in places if place and place.launch is not None]
        assert sorted(indices) == [launch.index for launch in launches(graph.source)]
    unmatched = [found for found in comparison.launches if not (found.a and found.b)]
    assert list(comparison.unmatched) == unmatched


@pytest.mark.parametrize("name", ALL)
def test_the_same_model_is_equal(name: str, dumped: Dumps) -> None:
    for a, b in (graphs(name), graphs(name)[::-1]):
        comparison = compare(dumped(a), dumped(b))
        assert comparison.culprits == ()
        assert comparison.equal
        assert_complete(comparison, a, b)
        assert any(found.matched for found in comparison.launches)
        if len(launches(a.source)) != len(launches(b.source)):
            assert comparison.unmatched


@pytest.mark.parametrize("name", ALL)
def test_operators_are_matched_by_what_they_compute(name: str, dumped: Dumps) -> None:
    """Where both sides launch a matrix product for one operation of the model."""
    a, b = graphs(name)
    comparison = compare(dumped(a), dumped(b))
    pairs = {
        (found.a.launch, found.b.launch) for found in comparison.launches if found.a and found.b
    }

    def products(graph: Graph) -> dict[str, int]:
        return {
            launch.source_nodes[-1]: launch.index
            for launch in launches(graph.source)
            if launch.kernel.split(".")[-2:][0] in ("mm", "addmm") or launch.kernel[-2:] == "mm"
        }

    ours, theirs = products(a), products(b)
    assert {(ours[node], theirs[node]) for node in ours.keys() & theirs.keys()} <= pairs


@pytest.mark.parametrize(("launch", "fault"), sampled([1, 2, 8, 14], ["scaled", "nan", "bfloat16"]))
def test_the_fault_is_found_against_eager(launch: int, fault: str, dumped: Dumps) -> None:
    """A matrix product, which both sides launch; what surrounds it, only one of them."""
    a, b = graphs("eager")
    wrong = but(a, lambda source: corrupted(source, launch, fault))
    assert_first(compare(dumped(wrong), dumped(b)), launch)


@pytest.mark.parametrize("launch", [3, 5, 9, 13])
def test_the_fault_of_what_eager_does_not_launch_is_found(launch: int, dumped: Dumps) -> None:
    """A kernel that stands for several operators: what both sides read of it is wrong."""
    a, b = graphs("eager")
    wrong = but(a, lambda source: corrupted(source, launch, "scaled"))
    assert_first(compare(dumped(wrong), dumped(b)), launch)


def test_a_wrong_output_is_never_called_equal(dumped: Dumps) -> None:
    """The last kernel stands for ten operators, and no launch reads what it writes."""
    a, b = graphs("eager")
    wrong = but(a, lambda source: kernel_changed(source, LAST, "(0.5)", "(0.51)"))
    comparison = compare(dumped(wrong), dumped(b))
    assert not comparison.equal
    assert culprits(comparison) == [(LAST, 0)]


@pytest.mark.parametrize(
    "name", [pytest.param("eager attention", marks=pytest.mark.exhaustive), "attention not fused"]
)
def test_a_launch_fused_away_does_not_hide_the_fault(name: str, dumped: Dumps) -> None:
    """The projections are launched on both sides, attention is one launch or many."""
    a, b = graphs(name)
    for nth in range(3):
        index = find(a.source, "addmm", nth)
        wrong = but(a, lambda source, index=index: corrupted(source, index, "scaled"))
        assert_first(compare(dumped(wrong), dumped(b)), index)
    for nth in range(3):
        index = find(b.source, "addmm", nth)
        wrong = but(b, partial(argument_changed, index=index, which=0, text="torch.ones(16)"))
        assert_first(compare(dumped(wrong), dumped(a)), index)


def test_the_fault_of_a_launch_fused_away_is_narrowed_down(dumped: Dumps) -> None:
    """Attention is one launch here and five there, and what reads it has no counterpart either."""
    a, b = graphs("attention not fused")
    index = find(a.source, "scaled_dot_product")
    wrong = but(a, partial(argument_changed, index=index, which=3, text="scale=0.5"))
    comparison = compare(dumped(wrong), dumped(b))
    assert not comparison.equal
    first = comparison.culprits[0]
    assert first.place.launch is not None
    assert first.place.launch >= index
    if first.place.launch != index:
        assert any(f"#{index} " in reason for reason in first.reasons)


@pytest.mark.parametrize("name", ["no reuse", pytest.param("narrow vectors", marks=ALL[-1].marks)])
@pytest.mark.parametrize("launch", [0, 4, 9, LAST])
def test_the_fault_is_found_against_other_kernels(name: str, launch: int, dumped: Dumps) -> None:
    a, b = graphs(name)
    wrong = but(a, lambda source: corrupted(source, launch, "scaled"))
    comparison = compare(dumped(wrong), dumped(b))
    assert_found(comparison, launch)
    assert comparison.unmatched == ()


# --- Lower precision throughout

# What six blocks of bfloat16 make of numbers around 1, and what a sum of sixteen does.
LOOSE = Tolerances(rtol=0.016, atol=0.1)


def test_lower_precision_is_no_other_structure(dumped: Dumps) -> None:
    """Everything is matched and compared by value, and rounding explains what differs.

    Where close numbers are subtracted, bfloat16 is further off than a tolerance for it allows.
    """
    comparison = compare(dumped(graph_of(bfloat16_layers)), dumped(graph_of(layers)))
    assert comparison.unmatched == ()
    assert {found.state for found in comparison.launches} <= {"equal", "rounding"}
    results = [tensor for found in comparison.launches for tensor in found.results]
    assert {tensor.basis for tensor in results} == {"tensors"}
    assert comparison.launches[0].state == "equal"
    assert comparison.culprits == ()
    assert comparison.rounded
    assert describe.verdict(comparison) == (
        f"equal up to rounding: bfloat16 explains all differences of {LAST + 1} of {LAST + 1} "
        "launches"
    )


@pytest.mark.parametrize(
    ("launch", "plant"),
    [
        pytest.param(9, partial(kernel_changed, old="(0.5)", new="(0.55)"), id="a constant"),
        pytest.param(8, partial(swapped, first=0, second=1), id="swapped operands"),
        pytest.param(13, partial(kernel_changed, old=".tanh()", new=".exp()"), id="an operator"),
        pytest.param(10, partial(corrupted, fault="rolled"), id="another order"),
    ],
)
def test_a_fault_is_told_from_rounding(
    launch: int, plant: Callable[..., str], dumped: Dumps
) -> None:
    """Each is at a launch whose inputs differ by the rounding of all that ran before."""
    wrong = but(graph_of(bfloat16_layers), lambda source: plant(source, launch))
    comparison = compare(dumped(wrong), dumped(graph_of(layers)))
    assert culprits(comparison)[0] == (launch, 0)
    assert all(found.state != "numeric" for found in comparison.launches[:launch])


def test_lower_precision_is_equal_within_what_is_asked_for(dumped: Dumps) -> None:
    a, b = dumped(graph_of(bfloat16_layers)), dumped(graph_of(layers))
    assert compare(a, b, tolerances=LOOSE).equal


@pytest.mark.parametrize("launch", [1, 8, 12])
def test_the_fault_is_found_in_lower_precision(launch: int, dumped: Dumps) -> None:
    wrong = but(graph_of(bfloat16_layers), lambda source: corrupted(source, launch, "nan"))
    comparison = compare(dumped(wrong), dumped(graph_of(layers)), tolerances=LOOSE)
    assert_found(comparison, launch)
    assert comparison.culprits[0].state == "non-finite"
