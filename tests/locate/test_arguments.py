"""Roles of arguments over the same memory."""

from __future__ import annotations

from rewriter.core.types import Role
from rewriter.locate.arguments import unify_roles
from rewriter.locate.flow import Flow
from rewriter.locate.types import Argument


def tensor(name: str, buffer: str, role: Role) -> Argument:
    return Argument(name, name, buffer, role, "tensor")


def concatenation() -> Flow:
    """`buf3` holds two parts: `buf1`, which is written already, and `buf2`, which is not."""
    flow = Flow(frozenset(), frozenset())
    flow.allocate("buf3")
    for part in ("buf1", "buf2"):
        flow.alias(part, "buf3", reuse=False, fresh=True)
    flow.write("buf1")
    return flow


def test_a_whole_whose_last_part_a_launch_writes_had_no_value_before() -> None:
    roles = unify_roles(
        [tensor("buf3", "buf3", "in"), tensor("buf2", "buf3", "out"), tensor("buf4", "buf4", "in")],
        concatenation(),
    )
    assert [argument.role for argument in roles] == ["out", "out", "in"]


def test_a_part_that_is_read_beside_it_had_one() -> None:
    roles = unify_roles(
        [tensor("buf1", "buf3", "in"), tensor("buf2", "buf3", "out")], concatenation()
    )
    assert [argument.role for argument in roles] == ["in", "out"]


def test_what_one_argument_reads_and_another_writes_is_updated() -> None:
    flow = Flow(frozenset(), frozenset())
    flow.compute("buf1", "tensor")
    roles = unify_roles([tensor("buf1", "buf1", "in"), tensor("buf1", "buf1", "out")], flow)
    assert [argument.role for argument in roles] == ["inout", "inout"]
