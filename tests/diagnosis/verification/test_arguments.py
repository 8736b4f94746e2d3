"""Calls of operators that only the program registers: they are checked by what they are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_calls import GraphCall, Tensors
from launch_facts import checked
from rewriter.diagnosis.verification import calls, text
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.types import Verification
from rewriter.diagnosis.verification.whole_graph import GraphOutcome

_GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 6][6, 1]cpu", n: "Sym(s0)", layer, other):
        sin: "f32[4, 6][6, 1]cpu" = torch.ops.aten.sin.default(x)
        cos: "f32[4, 6][6, 1]cpu" = torch.ops.aten.cos.default(x)
        floordiv: "Sym(s0//2)" = n // 2
        mix: "f32[4, 6][6, 1]cpu" = torch.ops.nobody.mix.default([sin, cos], 0.5, floordiv)
        empty: "f32[4, 6][6, 1]cpu" = torch.ops.aten.empty.memory_format([4, 6])
        into = torch.ops.nobody.into.default(empty, mix, None, 'sum');  into = None
        note: "f32[0][1]cpu" = torch.ops.nobody.note.default(mix, layer)
        mix_1: "f32[4, 6][6, 1]cpu" = torch.ops.nobody.mix.default([mix, x], 0.5, 3)
        add: "f32[4, 6][6, 1]cpu" = torch.ops.aten.add.Tensor(empty, mix_1)
        return (add,)
"""
_SCHEMAS = {
    "nobody.mix.default": "nobody::mix(Tensor[] xs, float factor, int n, *, int by=3) -> Tensor",
    "nobody.note.default": "nobody::note(Tensor x, PyObject layer) -> Tensor",
    "nobody.into.default": "nobody::into(Tensor(a!) out, Tensor x, Tensor? mask, str how) -> ()",
}
X = torch.arange(24.0).reshape(4, 6)
SIN, COS, MIX = X.sin(), X.cos(), X.sin() - 1
VALUES = {"x": X, "buf0": SIN, "buf1": COS, "buf2": MIX, "view": SIN.t()}


class _Call(GraphCall):
    """A call of the graph for `n = 6`, of which two kernels have run: `buf0` is `sin`, `buf1` is
    `cos`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _GRAPH, {"x": X}, sizes={"n": 6, "s0": 6}, schemas=_SCHEMAS)
        self.launch({"x": X}, {"buf0": SIN, "buf1": COS})

    def own(self, name: str, statement: str, given: Tensors, written: Tensors) -> GraphOutcome:
        kernel = f"torch.ops.nobody.{name}.default"
        statement = statement.replace("CALL", kernel)
        return self.launch(given, written, kernel=kernel, kind="custom_op", statement=statement)

    def mix(self, call: str, names: str = "buf0 buf1") -> GraphOutcome:
        given = {name: VALUES[name] for name in names.split()}
        return self.own("mix", f"        buf2 = CALL({call})\n", given, {"buf2": MIX})


def _wrong(outcome: GraphOutcome) -> list[str]:
    assert outcome.route == "arguments"
    wrong = [x for x in outcome.results if not x.comparison.agrees]
    return [x.comparison.why if x.comparison.numel == 1 else x.claim for x in wrong]


@pytest.mark.parametrize(
    "call",
    [
        "[buf0, buf1], 0.5, 3",
        "[buf0, buf1], 0.5, s0 // 2, by=3",
        "xs=[buf0, buf1], factor=0.5, n=3",
    ],
)
def test_a_call_that_is_given_what_its_node_is_agrees(call: str, tmp_path: Path) -> None:
    outcome = _Call(tmp_path).mix(call)
    assert _wrong(outcome) == []
    result = outcome.results[-1]
    assert result.claim.startswith("mix = nobody.mix.default(")
    assert result.comparison.is_unknown  # it is taken as it was recorded


@pytest.mark.parametrize(
    ("call", "names", "wrong"),
    [
        pytest.param(
            "[buf1, buf0], 0.5, 3", "buf0 buf1",
            ["xs[0] = sin = aten.sin.default(x)", "xs[1] = cos = aten.cos.default(x)"],
            id="swapped",
        ),
        pytest.param(
            "[buf0, x], 0.5, 3", "buf0 x", ["xs[1] = cos = aten.cos.default(x)"], id="another"
        ),
        pytest.param(
            "[view, buf1], 0.5, 3", "view buf1",
            ["xs[0] is float32 [6, 4], not sin [4, 6]"], id="shape",
        ),
        pytest.param("[buf0], 0.5, 3", "buf0", ["xs has another number of members"], id="fewer"),
        pytest.param("[buf0, buf1], 1, 3", "buf0 buf1", ["factor is 1, not 0.5"], id="number"),
        pytest.param("[buf0, buf1], 0.5, s0", "buf0 buf1", ["n is 6, not 3"], id="size"),
        pytest.param("[buf0, buf1], 0.5, 3, by=4", "buf0 buf1", ["by is 4, not 3"], id="keyword"),
    ],
)  # fmt: skip
def test_an_argument_that_is_another_one_is_named(
    call: str, names: str, wrong: list[str], tmp_path: Path
) -> None:
    assert _wrong(_Call(tmp_path).mix(call, names)) == wrong


def test_what_is_not_known_is_no_finding(tmp_path: Path) -> None:
    with pytest.raises(UncheckedError, match="u0 is not known"):
        _Call(tmp_path).mix("[buf0, buf1], 0.5, u0")


@pytest.mark.parametrize("layer", ["layer", "other"])
def test_an_input_that_is_no_tensor_is_the_one_with_its_name(layer: str, tmp_path: Path) -> None:
    """As vLLM gives the name of a layer to the update of its cache, whose result is empty."""
    call = _Call(tmp_path)
    call.mix("[buf0, buf1], 0.5, 3")
    words: Any = ("note", f"buf9 = CALL(buf2, {layer})", {"buf2": MIX}, {"buf9": torch.ones(0)})
    if layer == "layer":
        assert _wrong(call.own(*words)) == []
    else:
        with pytest.raises(UncheckedError, match="layer is not known"):
            call.own(*words)


@pytest.mark.parametrize(("twice", "known"), [("", ["buf3"]), ("buf3", [])])
def test_of_what_is_given_twice_it_is_not_known_as_which_it_is_written(
    twice: str, known: list[str], tmp_path: Path
) -> None:
    call = _Call(tmp_path)
    call.mix("[buf0, buf1], 0.5, 3")
    given = {"buf3": torch.full((4, 6), 9.0), "buf2": MIX}
    kernel, statement = "torch.ops.nobody.into.default", "CALL(buf3, buf2, None, 'sum')"
    statement = statement.replace("CALL", kernel)
    outcome = call.launch(
        given, {"buf3": MIX}, kernel=kernel, kind="custom_op", statement=statement, twice=twice
    )
    assert outcome.route == "arguments"
    assert [x.arg for x in outcome.results if x.comparison.is_unknown and x.arg == "buf3"] == known


def test_what_it_writes_is_the_value_of_what_follows(tmp_path: Path) -> None:
    call = _Call(tmp_path)
    call.mix("[buf0, buf1], 0.5, 3")
    empty, left = torch.full((4, 6), 9.0), MIX * 7
    given = {"buf3": empty, "buf2": MIX}
    assert _wrong(call.own("into", "CALL(buf3, buf2, None, 'sum')", given, {"buf3": left})) == []
    given = {"buf2": MIX, "x": X}
    assert _wrong(call.own("mix", "buf4 = CALL([buf2, x], 0.5, 3)", given, {"buf4": COS})) == []
    given = {"buf3": left, "buf4": COS}
    (result,) = call.launch(given, {"buf5": left + COS}).results
    assert result.claim.startswith("add = ")
    assert result.comparison.agrees


def test_a_value_that_changed_after_its_launch_is_a_wrong_argument(tmp_path: Path) -> None:
    changed = SIN.clone()
    changed[2, 1] = 5.0
    given = {"buf0": changed, "buf1": COS}
    outcome = _Call(tmp_path).own("mix", "buf2 = CALL([buf0, buf1], 0.5, 3)", given, {"buf2": MIX})
    comparison = outcome.results[0].comparison
    assert (comparison.wrong, comparison.at, comparison.got) == (1, (2, 1), 5.0)


def test_behind_a_call_that_was_not_recorded_none_is_accused(tmp_path: Path) -> None:
    call = _Call(tmp_path)
    call.skip(["buf0", "buf1"], ["buf2"], kernel="torch.ops.nobody.mix.default", kind="custom_op")
    given = {"buf2": MIX, "x": X}
    with pytest.raises(UncheckedError, match="was not recorded"):
        call.own("mix", "buf4 = CALL([buf2, x], 0.5, 3)", given, {"buf4": COS})


def test_what_another_kernel_rounded_otherwise_agrees(tmp_path: Path) -> None:
    given = {"again": SIN * (1 + 3e-7), "buf1": COS}
    assert not torch.equal(given["again"], SIN)
    outcome = _Call(tmp_path).own("mix", "buf2 = CALL([again, buf1], 0.5, 3)", given, {"buf2": MIX})
    assert _wrong(outcome) == []


def test_they_are_counted_apart(tmp_path: Path) -> None:
    right = checked(kind="custom_op", route="arguments")
    verification = Verification((right, replace(right, route="operator")))
    assert verification.coverage == 1
    assert text.coverage(verification).endswith(
        "2 agree, 0 differ; 1 launch was only checked by what it is given"
    )
    results = tuple(_Call(tmp_path).mix("[buf0, buf1], 0.25, 3").results)
    wrong = replace(right, outcome="differs", results=results)
    assert text.headline(wrong).endswith(
        "is not given what its node of the graph is: factor is 0.25, not 0.5"
    )


def test_operators_of_torch_are_registered() -> None:
    assert not calls.is_unregistered("aten.add.Tensor")
    assert not calls.is_unregistered("aten.no_such_operator.default")
    assert not calls.is_unregistered("sym_size")
    assert calls.is_unregistered("nobody.mix.default")
