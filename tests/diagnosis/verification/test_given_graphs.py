"""Graphs of packages, as TORCH_COMPILE_DEBUG leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification.given_graphs import GivenGraphs
from rewriter.model_names.graph import ATTRIBUTE, parse, parse_inlined

# As torch 2.13 prints the graph of an exported program.
EXPORTED = """class <lambda>(torch.nn.Module):
    def forward(self):
        arg1_1: "f32[8, 4]"; arg2_1: "f32[8, 4]"; 

        arg1_1, arg2_1, = fx_pytree.tree_flatten_spec([], self._in_spec)
        # No stacktrace found for following nodes
        up_weight: "f32[4, 4]" = self.up.weight

        # File: model.py:9 in forward, code: return self.up(x) + y
        mm: "f32[8, 4]" = torch.ops.aten.mm.default(arg1_1, up_weight);  arg1_1 = up_weight = None
        add: "f32[8, 4]" = torch.ops.aten.add.Tensor(mm, arg2_1);  mm = arg2_1 = None
        return (add,)
"""  # noqa: W291
# Of operators that have to run in an order.
CONTROLLED = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4][1]cpu"):
        rand: "f32[4][1]cpu" = torch.ops.aten.rand.default([4])
        subgraph_rand_like = self.subgraph_rand_like
        after: "f32[4][1]cpu" = torch.ops.higher_order.control_deps((rand,), subgraph_rand_like, arg0_1)
        return (rand, after)

    class subgraph_rand_like(torch.nn.Module):
        def forward(self, arg_0: "f32[4][1]cpu"):
            rand_like_default: "f32[4][1]cpu" = torch.ops.aten.rand_like.default(arg_0)
            return rand_like_default
"""  # noqa: E501


def test_the_graph_of_an_exported_program_has_inputs_and_weights() -> None:
    graph = parse(EXPORTED)
    assert graph is not None
    assert list(graph.inputs) == ["arg1_1", "arg2_1"]
    assert graph.attributes == {"up_weight"}
    assert graph.nodes["up_weight"].operator == ATTRIBUTE
    assert graph.nodes["mm"].reads == ("arg1_1", "up_weight")


def test_an_operator_that_waits_for_another_is_that_operator() -> None:
    graph = parse_inlined(CONTROLLED)
    assert graph is not None
    node = graph.nodes["after"]
    assert (node.operator, node.reads) == ("rand_like", ("arg0_1",))
    assert node.call == "aten.rand_like.default(arg0_1)"


def test_a_wrapper_gets_the_graph_of_its_own_code(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "fx_graph_transformed.py").write_text(EXPORTED.replace("model.py", f"{name}.py"))
        lines = "".join(f"// line {number} of {name}\n" for number in range(100))
        (folder / "output_code.cpp").write_text(f"// {name}\n{lines}// and its kernels\n")
    given = GivenGraphs(tmp_path)
    assert "two.py" in given.of(b"// two\n// Compile cmd\n// g++\n")
    assert given.of(b"// three\n") == ""
    edited = (tmp_path / "one" / "output_code.cpp").read_bytes().replace(b"line 7 ", b"line 8 ")
    assert "one.py" in given.of(edited)
    assert "one.py" in GivenGraphs(tmp_path / "one" / "fx_graph_transformed.py").of(b"any")


def test_what_holds_no_graph(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        with pytest.raises(RewriterError) as caught:
            GivenGraphs(path)
        assert caught.value.slug == "no-graph"


def test_the_same_graph_in_two_places_is_one(tmp_path: Path) -> None:
    """As TORCH_COMPILE_DEBUG leaves it in its directory and in that of the cache."""
    for name in ("torch_compile_debug", "cache"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fx_graph_transformed.py").write_text(EXPORTED)
    assert GivenGraphs(tmp_path).of(b"another wrapper") == EXPORTED
    (tmp_path / "cache" / "fx_graph_transformed.py").write_text(CONTROLLED)
    assert GivenGraphs(tmp_path).of(b"another wrapper") == ""
