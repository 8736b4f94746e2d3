"""Wrappers and packages compiled here, with every launch replaced that can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capture import Compiled, Exported
from models import MODELS, models_for
from replacements import all_replaced, all_replaced_in_package
from test_compiled import rare

# Why the launches of a model are never replaced; those of all others are.
RANDOM = [
    "inductor_seeds_default draws random numbers",
    "inductor_random_default draws random numbers",
]
INSIDE = "the graph of its function is not known"  # a branch or a loop, which C++ has in the entry
KEPT = {"dropout": RANDOM}
KEPT_CPP = {
    **KEPT,
    "cond": [INSIDE] * 3,
    "while_loop": [INSIDE] * 2,
    "nested": [INSIDE] * 7 + ["while_loop is computed by a graph or a kernel inside of the graph"],
    "random": [
        f"{x} draws random numbers"
        for x in ("rand", "rand_like", "randperm", "randint", "randn_like")
    ],
    "scalars": ["what it writes needs arg1_1, which it is not given"],
    "empty": ["it writes some results, and leaves others in new tensors"],
}
KEPT_IN_PACKAGE = {
    **KEPT_CPP,
    "complex_numbers": ["2j as Tensor cannot be passed to the proxy executor"],
    "cond": ["what buf2 holds is no node of the graph", *[INSIDE] * 3],
    # Weights of one value, which Inductor wrote into the kernels.
    "conv": [
        f"what it writes needs {x}, which it is not given" for x in ("conv_bias", "norm_bias")
    ],
    "conv_train": ["what it writes needs bias, which it is not given"],
    "customop": ["rewriter_demo.split.default returns more than tensors"],
    # Its weights are folded in a function of its own, with buffers of the same names.
    "folded": ["how buf0 lies in memory is not known", "buf1 lies otherwise than mm_1", INSIDE],
    "unbacked": ["aten._local_scalar_dense.default returns more than tensors"],
}
RUNNABLE = sorted({*MODELS} - {"frozen"})  # frozen weights come with the loader


@pytest.mark.parametrize("model", [rare(x) for x in RUNNABLE])
def test_all_launches_are_replaced(
    model: str, compiled: Callable[[str], Compiled], tmp_path: Path
) -> None:
    found = [all_replaced(graph, tmp_path) for graph in compiled(model).graphs]
    assert [x.reason for one in found for x in one.kept] == KEPT.get(model, [])


def of_kind(kind: str, *often: str) -> list[object]:
    """The models of a kind of artifact; only some are compiled again whenever the tests run."""
    names = sorted({*models_for(kind)} - {"frozen"})
    marks = {x: [] if x in often else [pytest.mark.exhaustive] for x in names}
    return [pytest.param(x, marks=marks[x], id=x) for x in names]


@pytest.mark.parametrize("model", of_kind("cpp_wrapper", "customop"))
def test_all_launches_of_a_cpp_wrapper_are_replaced(
    model: str, compiled_cpp: Callable[[str], Compiled], tmp_path: Path
) -> None:
    found = [all_replaced(graph, tmp_path) for graph in compiled_cpp(model).graphs]
    assert [x.reason for one in found for x in one.kept] == KEPT_CPP.get(model, [])


@pytest.mark.parametrize("model", of_kind("aoti"))
def test_all_launches_of_a_package_are_replaced(
    model: str, exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    assert all_replaced_in_package(exported(model), tmp_path) == KEPT_IN_PACKAGE.get(model, [])
