"""Wrappers compiled for the GPU, with every launch replaced that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture import compile_case, export_case
from models import MODELS
from replacements import all_replaced, all_replaced_in_package
from rewriter.artifact.opening import open_artifact

pytestmark = pytest.mark.gpu


# What its graph says of them is not known: a layout that Inductor chose, and random numbers.
KEPT = {"conv", "dropout"}
# The graph leaves open where equal elements are sorted to.
SORTS = {"scatter"}


@pytest.mark.parametrize("model", sorted({*MODELS} - {"frozen"}))
def test_launches_are_replaced(model: str, tmp_path: Path) -> None:
    graphs = compile_case(MODELS[model]("cuda")).graphs
    found = [all_replaced(x, tmp_path, integers=model not in SORTS) for x in graphs]
    assert any(one.found for one in found) != (model in KEPT)


@pytest.mark.parametrize("model", ["customop", "dtypes", "mlp", "transformer"])
def test_launches_of_a_cpp_wrapper_are_replaced(model: str, tmp_path: Path) -> None:
    graphs = compile_case(MODELS[model]("cuda"), cpp_wrapper=True).graphs
    assert any(all_replaced(x, tmp_path).found for x in graphs)


@pytest.mark.parametrize("model", ["dtypes", "mlp", "transformer"])
def test_launches_of_a_package_are_replaced(model: str, tmp_path: Path) -> None:
    exported = export_case(MODELS[model]("cuda"), tmp_path / "exported")
    why = all_replaced_in_package(exported, tmp_path)
    launches = open_artifact(exported.wrapper).launches
    assert len(why) < len(launches), why
