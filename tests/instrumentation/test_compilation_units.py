"""What a package is compiled from: the parts that take long are the same for many patches."""

from __future__ import annotations

import re
from typing import Any

import pytest

import rewriter
from artifacts import get
from rewriter.instrumentation.compilation_units import CompilationUnits, plan_everything, split

WRAPPER = get("cuda-torch2.11/mlp aoti").path


def units(probes: str, **chosen: Any) -> CompilationUnits:
    artifact = rewriter.open(WRAPPER)
    selection = rewriter.select(probes, **chosen)
    return split(
        rewriter.instrument(artifact, selection), plan_everything(artifact.wrappers[0], selection)
    )


@pytest.mark.parametrize(
    ("probes", "chosen"),
    [
        ("hash", {}),
        ("print,save", {}),
        ("print", {"calls": "3-5"}),
        ("names", {}),
        ("print", {"when": "both", "args": "all"}),
        ("print", {"launches": [1]}),
        ("inputs,print", {"tensors": "buf1,arg0_1"}),
        ("names", {"dormant": True}),
    ],
    ids=str,
)
def test_another_selection_needs_another_table_alone(probes: str, chosen: dict[str, Any]) -> None:
    once, again = units("print"), units(probes, **chosen)
    assert again.wrapper == once.wrapper
    assert again.table != once.table
    assert again.runtime == once.runtime


@pytest.mark.parametrize(("probes", "chosen"), [("print", {"format": "upstream"}), ("poison", {})])
def test_what_has_other_lines_needs_another_wrapper(probes: str, chosen: dict[str, Any]) -> None:
    assert units(probes, **chosen).wrapper != units("print").wrapper
    assert units(probes, **chosen).runtime == units("print").runtime


def test_a_line_that_may_not_count_asks_first() -> None:
    text = units("print").wrapper.decode()
    lines = re.findall(r"^ *([^/\n]*_rw\.(?:inputs|before|after)\(.*)$", text, re.MULTILINE)
    assert len(lines) > 4
    for line in lines:
        match = re.match(
            r"if \(inductor_rewriter::inductor_rewriter_picks\[(\d+)\]\.(\w+)\) "
            r"INDUCTOR_REWRITER_LINE \{ _rw\.(\w+)\((\w*).* \}\(\);  //",
            line,
        )
        assert match, line
        pick, side, phase, first = match.groups()
        if phase == "inputs":
            assert (pick, side) == ("0", "before")
        else:
            assert (int(pick), side) == (int(first) + 1, phase)


def picks(probes: str, **chosen: Any) -> list[tuple[str, str]]:
    table = units(probes, **chosen).table
    rows = table[table.index("const Pick inductor_rewriter_picks[] =") :].partition("};")[0]
    return re.findall(r"\{(\S+), (\S+)\}", rows)


def test_picks_are_those_of_the_lines_of_the_selection() -> None:
    artifact = rewriter.open(WRAPPER)
    everything = plan_everything(artifact.wrappers[0], rewriter.select("print"))
    assert everything is not None
    for chosen in ({}, {"launches": [1]}, {"when": "before"}, {"tensors": "buf*"}):
        plan = rewriter.instrument(artifact, rewriter.select("print", **chosen)).plan
        rows = picks("print", **chosen)
        keys = {(-1, "inputs"): rows[0][0]}
        for launch, row in enumerate(rows[1:]):
            keys |= {(launch, "before"): row[0], (launch, "after"): row[1]}
        for key, pick in keys.items():
            if pick == "nullptr":
                assert key not in plan.passed
                continue
            passed = zip(everything.passed[key], pick.strip('"'), strict=True)
            assert tuple(value for value, mark in passed if mark == "1") == plan.passed[key]
        assert keys.keys() >= plan.passed.keys()


def test_a_table_includes_nothing() -> None:
    table = units("print").table
    assert "#include" not in table
    assert len(table) < len(units("print").runtime) / 10


def test_the_compiled_wrapper_is_the_instrumented_one_but_for_its_table() -> None:
    whole = rewriter.instrument(WRAPPER, rewriter.select("print"))
    wrapper = split(whole).wrapper
    lines = [line for line in whole.source.splitlines() if b"_rw." in line or b"Call _rw(" in line]
    assert [line for line in wrapper.splitlines() if line in set(lines)] == lines
    assert b"rows[][14]" in whole.source
    assert b"rows[][14]" not in wrapper
    assert b"Table& wrapper = inductor_rewriter_table;" in wrapper
