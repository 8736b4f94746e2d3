"""Which values are looked at again where they are read last (`--args ends`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import get
from bodies import VIEW, wrapper

BOTH = "buf0, buf1 = new | write(arg0_1, buf0) | write(buf0, buf1)"
# The body, and what its lines show.
CASES = {
    "behind the last of those that read it": (
        f"{BOTH} | buf2 = new | write(buf0, buf2)",
        ["after 0: buf0 arg0_1", "after 1: buf1", "after 2: buf2 buf0"],
    ),
    "an input that is read through a view, as it was given": (
        f"buf0 = new | write({VIEW.format('arg0_1')}, buf0)",
        ["after 0: buf0 arg0_1"],
    ),
    "updated by the next launch: nothing is in between": (
        "buf0 = new | write(arg0_1, buf0) | buf1 = took buf0 | update(buf1)",
        ["after 0: buf0 arg0_1", "after 1: buf1"],
    ),
    "updated later: before it, and behind those that read it": (
        f"{BOTH} | buf2 = new | write(arg0_1, buf2) | buf3 = took buf0 | update(buf3)",
        ["after 0: buf0", "after 1: buf1 buf0", "after 2: buf2 arg0_1", "before 3: buf3",
         "after 3: buf3"],
    ),
    "its memory is taken over": (
        f"{BOTH} | buf2 = took buf0 | write(buf1, buf2)",
        ["after 0: buf0 arg0_1", "after 1: buf1 buf0", "after 2: buf2 buf1"],
    ),
    "what nobody showed, at both ends": (
        "buf0, buf1 = new | write(constant0, buf0) | write(constant0, buf1)",
        ["before 0: constant0", "after 0: buf0", "after 1: buf1 constant0"],
    ),
    "in a branch, whatever comes later": (
        f"{BOTH} | buf2 = new | if arg0_1 is not None:\n    write(buf0, buf2)",
        ["after 0: buf0 arg0_1", "after 1: buf1 buf0", "after 2: buf2 buf0"],
    ),
    "under the name that it has by then": (
        "buf0, buf2 = new | write(arg0_1, buf0) | buf1 = buf0 | del buf0 | write(buf1, buf2)",
        ["after 0: buf0 arg0_1", "after 1: buf2 buf1"],
    ),
    "not in a loop, where names mean another value each time": (
        "buf0, buf1 = new | write(arg0_1, buf0) | while True:\n    write(buf0, buf1)",
        ["after 0: buf0 arg0_1", "after 1: buf1"],
    ),
}  # fmt: skip


def _shown(folder: Path, body: str, **options: Any) -> list[str]:
    selection = rewriter.select(["hash"], args="ends", **options)
    made = rewriter.instrument(wrapper(folder, body), selection)
    return [
        f"{phase} {launch}: {' '.join(values)}"
        for (launch, phase), values in made.plan.passed.items()
        if phase != "inputs"
    ]


@pytest.mark.parametrize(("body", "shown"), CASES.values(), ids=list(CASES))
def test_values_are_shown_at_both_ends(body: str, shown: list[str], tmp_path: Path) -> None:
    assert _shown(tmp_path, body) == shown


def test_a_tensor_that_is_named_is_shown_behind_each_launch_between(tmp_path: Path) -> None:
    body = f"{BOTH} | buf2, buf3 = new | write(buf1, buf2) | write(buf0, buf3)"
    assert _shown(tmp_path, body, tensors=["buf0"]) == [
        "after 0: buf0", "after 1: buf0", "after 2: buf0", "after 3: buf0"
    ]  # fmt: skip


def test_weights_of_a_package_are_shown_where_a_call_begins() -> None:
    path = get("cuda-torch2.11/gpt aoti").path
    made = rewriter.instrument(path, rewriter.select(["hash"], args="ends"))
    (inputs,) = [x for x in made.plan.insertions if x.origin == "inputs"]
    assert inputs.text.count(b"_weight") > 10
    assert not [key for key in made.plan.passed if key[1] == "before" and key[0] < 10]
    written = rewriter.instrument(path, rewriter.select(["hash"]))
    (inputs,) = [x for x in written.plan.insertions if x.origin == "inputs"]
    assert b"_weight" not in inputs.text


def test_no_value_waits_for_those_of_the_next_launch() -> None:
    """It may be the next launch that changes them."""
    path = get("cuda-torch2.11/gpt").path
    selections = [rewriter.select(["hash"]), rewriter.select(["hash"], args="ends")]
    made = [rewriter.instrument(path, one).source for one in selections]
    waiting = [source.count(b"'together': True") for source in made]
    assert waiting[0] > 10
    assert waiting[1] == 0


def _unbound(body: Sequence[ast.stmt], bound: set[str]) -> Iterator[str]:
    """What lines of probes hand over and has no value there: names that are gone."""
    for statement in body:
        if isinstance(statement, ast.Delete):
            bound -= {x.id for x in statement.targets if isinstance(x, ast.Name)}
            continue
        if isinstance(statement, ast.With | ast.If | ast.While | ast.For):
            yield from _unbound(statement.body, bound)
            continue
        names = [x for x in ast.walk(statement) if isinstance(x, ast.Name)]
        if ast.unparse(statement).startswith(("_rw.before(", "_rw.after(")):
            yield from (
                x.id for x in names if x.id.startswith(("buf", "arg")) and x.id not in bound
            )
        bound |= {x.id for x in names if isinstance(x.ctx, ast.Store)}


@pytest.mark.parametrize("model", ["complex_numbers", "transformer", "conv", "customop"])
def test_what_is_handed_over_has_a_value(model: str) -> None:
    path = get(f"cpu-torch2.13/{model}").path
    source = rewriter.instrument(path, rewriter.select(["hash"], args="ends")).source
    functions = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.FunctionDef)]
    assert [name for one in functions for name in _unbound(one.body, set())] == []
