"""The random numbers of Inductor's kernels: Philox, by its known answers and by its range."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from graph_calls import GraphCall
from rewriter.diagnosis.verification.bounded import UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.operators.random import _philox
from rewriter.model_names.graph import FxGraph, parse

GRAPH = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]{device}"):
        seeds: "i64[2][1]{device}" = torch.ops.prims.inductor_seeds.default(2, device(type='cpu'))
        seed: "i64[][]{device}" = torch.ops.prims.inductor_lookup_seed.default(seeds, 1)
        rand: "f32[64, 8][8, 1]{device}" = torch.ops.prims.inductor_random.default([64, 8], seed, 'rand')
        normal: "f32[64, 8][8, 1]{device}" = torch.ops.prims.inductor_random.default([64, 8], seed, 'randn')
        number: "i64[512][1]{device}" = torch.ops.prims.inductor_randint.default(3, 9, [512], seed)
        return (rand, normal, number)
"""  # noqa: E501


def _graph(device: str) -> FxGraph:
    graph = parse(GRAPH.replace("{device}", device))
    assert graph is not None
    return graph


def test_philox_gives_its_known_answers() -> None:
    words = _philox(0, torch.tensor([0]), on_gpu=True)
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_numbers_follow_from_the_seeds_that_a_kernel_read(device: str) -> None:
    seeds = exact(torch.tensor([5, -(2**62) + 12345]))
    evaluator = Evaluator(_graph(device), {"seeds": seeds})
    rand, normal, number = (evaluator.value(x).value for x in ("rand", "normal", "number"))
    assert 0 <= rand.min() < 0.02
    assert 0.98 < rand.max() < 1
    assert abs(rand.mean() - 0.5) < 0.05
    assert abs(normal.mean()) < 0.2
    assert 0.8 < normal.std() < 1.2
    assert sorted(number.unique().tolist()) == [3, 4, 5, 6, 7, 8]
    # The bits are those of float32.
    assert torch.equal(rand, rand.float().double())


def test_the_graph_of_a_package_names_the_device_at_its_seeds() -> None:
    text = re.sub(r"\](cpu|\{device\})\"", ']"', GRAPH)
    plain, seeds = parse(text), exact(torch.tensor([5, -(2**62) + 12345]))
    assert plain is not None
    values = [
        Evaluator(one, {"seeds": seeds}).value("rand").value for one in (plain, _graph("cpu"))
    ]
    assert torch.equal(*values)


def test_seeds_themselves_are_not_known() -> None:
    with pytest.raises(UncheckedError, match="draws random numbers"):
        Evaluator(_graph("cpu"), {}).value("rand")


@pytest.mark.parametrize(
    ("kernel", "drawn", "is_taken"),
    [
        ("aten.randint.low_out", torch.tensor([5, -(2**62)]), True),
        ("aoti_torch_cpu_randint_low_out", torch.tensor([5, -(2**62)]), True),
        ("aten.randint.low_out", torch.tensor([5]), False),
        ("aten.randint.low_out", torch.tensor([5.0, 6.0]), False),
    ],
)
def test_a_seed_that_was_recorded_is_known_to_what_follows(
    kernel: str, drawn: torch.Tensor, is_taken: bool, tmp_path: Path
) -> None:
    call = GraphCall(tmp_path, GRAPH.replace("{device}", "cpu"), {}, claims={("buf0", 0): "seeds"})
    outcome = call.launch({}, {"buf0": drawn}, kernel=kernel, kind="extern_out")
    claims = [(x.claim, x.comparison.is_unknown) for x in outcome.results]
    assert claims == [(call.graph.statement("seeds"), True)] * is_taken
    assert (outcome.route == "arguments", outcome.unknown == ["buf0"]) == (is_taken, not is_taken)
