"""How much PyTorch's own printer prints of what the installed torch generates for the CPU."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import pytest

import rewriter
from artifacts import get
from capture import compile_case
from models import MODELS
from test_upstream_coverage import CALL


def share_on_cpu(models: Iterable[str]) -> tuple[int, int]:
    """How many launches upstream's printer reaches in what the installed torch generates."""
    reached = total = 0
    for model in models:
        case = MODELS[model]("cpu")
        options = {"aot_inductor.debug_intermediate_value_printer": "2"}
        for graph in compile_case(case, **options).graphs:
            for line, after in itertools.pairwise(graph.source.split("\n")):
                launch = re.match(
                    r"\s+(\w+ = )?(cpp_fused\w*|extern_kernels\.|torch\.ops\.|aten\.)", line
                )
                total += launch is not None
                reached += launch is not None and CALL in after
    return reached, total


def test_share_of_launches_that_upstream_prints_on_cpu() -> None:
    reached, total = share_on_cpu(["mlp"])
    assert total == len(rewriter.open(get("cpu-torch2.13/mlp").path).launches)
    assert (reached, total) == (2, 5)


@pytest.mark.exhaustive
def test_share_of_launches_that_upstream_prints_on_cpu_in_every_model() -> None:
    # Its printer crashes on the empty tensors of `empty`. C++ kernels, views, `primals_*` and
    # `tangents_*` it never prints, so 8 % are left.
    assert share_on_cpu(sorted(MODELS.keys() - {"empty"})) == (6, 77)
