"""What is known of a scope's variables, step by step."""

from __future__ import annotations

import pytest

from rewriter.locate.flow import Content, Flow


@pytest.fixture
def flow() -> Flow:
    flow = Flow(tensors=frozenset({"arg0_1"}), scalars=frozenset({"arg1_1"}))
    flow.receive("arg0_1")
    flow.receive("arg1_1")
    flow.allocate("buf0")
    return flow


def test_nothing_is_read_from_memory_that_holds_nothing(flow: Flow) -> None:
    assert [flow.role("buf0", declared) for declared in ("in", "out", "inout", None)] == ["out"] * 4


def test_a_second_write_under_the_same_name_is_an_update(flow: Flow) -> None:
    flow.write("buf0")
    assert flow.role("buf0", "out") == "inout"
    assert flow.role("buf0", "in") == "in"


def test_a_reused_buffer_is_written_not_updated(flow: Flow) -> None:
    flow.write("buf0")
    flow.alias("buf1", "buf0", reuse=True)
    flow.forget("buf0")
    assert flow.get("buf1").root == "buf0"
    assert flow.get("buf1").content is Content.STALE
    assert flow.role("buf1", "out") == "out"
    assert flow.role("buf1", "inout") == "inout"


def test_inputs_hold_values(flow: Flow) -> None:
    assert flow.role("arg0_1", "out") == "inout"
    assert flow.type_of("arg0_1") == "tensor"
    assert flow.type_of("arg1_1") == "scalar"


def test_a_symbol_makes_its_input_a_scalar(flow: Flow) -> None:
    flow.receive("arg2_1")
    flow.alias("s77", "arg2_1", reuse=False)
    assert flow.type_of("s77") == flow.type_of("arg2_1") == "scalar"


def test_parts_written_through_views_do_not_write_the_rest(flow: Flow) -> None:
    first, second = (
        "reinterpret_tensor(buf0, (4,), (1,), 0)",
        "reinterpret_tensor(buf0, (4,), (1,), 4)",
    )
    flow.write("buf0", first)
    assert flow.role("buf0", None, second) == "out"
    assert flow.role("buf0", "out", second) == "out"
    assert flow.role("buf0", "out", first) == "inout"
    assert flow.role("buf0", "in", second) == "in"
    flow.write("buf0", second)
    assert flow.role("buf0", "out", second) == "inout"
    assert flow.role("buf0", None) == "inout"


def test_branches_know_nothing_of_each_other_until_they_join(flow: Flow) -> None:
    other = flow.branch()
    flow.write("buf0")
    assert other.role("buf0", "out") == "out"
    other.join(flow)
    assert other.role("buf0", "out") == "inout"
