"""What operators of a user write is known in the program, and recorded with its roles."""

from __future__ import annotations

import torch
from torch import library

from rewriter.runtime.plain import declared


@library.custom_op("schemas_test::rope_", mutates_args=("q", "k"))
def rope_(q: torch.Tensor, angle: torch.Tensor, k: torch.Tensor) -> None:
    q.mul_(angle)
    k.mul_(angle)


ROW = {
    "launch": 1,
    "kernel": "torch.ops.schemas_test.rope_.default",
    "before": [["in", "buf0"], ["inout", "buf1"]],
    "after": [["in", "buf0"], ["inout", "buf1"], ["out", "buf2", "view(buf2)"], ["out", "buf3"]],
    "parameters": {"buf0": ["0"], "buf1": ["1"], "buf2": ["k"]},
}


def test_roles_are_those_of_the_schema() -> None:
    row = declared(ROW)
    assert row["before"] == [["inout", "buf0"], ["in", "buf1"]]
    assert row["after"] == [
        ["inout", "buf0"],
        ["in", "buf1"],
        ["out", "buf2", "view(buf2)"],
        ["out", "buf3"],
    ]
    assert row["schema"].startswith("schemas_test::rope_(Tensor(a0!) q, Tensor angle,")


def test_an_operator_that_is_not_registered_keeps_its_roles() -> None:
    row = {**ROW, "kernel": "torch.ops.schemas_test.unknown.default"}
    assert [declared(row), declared({"launch": 0})] == [row, {"launch": 0}]
