"""Conditions on sizes, as torch keeps them with a graph, as rows of the table of inputs."""

from __future__ import annotations

import pytest

from rewriter.locate.guards import is_row, read_guards
from rewriter.locate.types import InputSpec

SPECS = (
    InputSpec("arg0_1", "tensor"),
    InputSpec("arg1_1", "int", symbol="s77"),
    InputSpec("arg2_1", "int", symbol="u0"),
    InputSpec("arg3_1", "int", symbol="s27"),
    InputSpec("arg4_1", "int"),
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("L['t9'] > 1", id="no such size"),
        pytest.param("L['t2'] > 1", id="a size without a name"),
        pytest.param("L['x'] > 1", id="another name"),
        pytest.param("G['t0'] > 1", id="another table"),
        pytest.param("L[0] > 1", id="a number for a name"),
        pytest.param("L['t0']", id="no comparison"),
        pytest.param("L['t0'] / 2 > 1", id="true division"),
        pytest.param("L['t0'] ** 2 > 1", id="a power"),
        pytest.param("L['t0'] > 1.5", id="no integer"),
        pytest.param("L['t0'] == True", id="a boolean"),
        pytest.param(f"L['t0'] < {2**60}", id="a large number"),
        pytest.param("L['t0'] is None", id="another comparison"),
        pytest.param("math.floor(L['t0']) > 1", id="a function of a module"),
        pytest.param("abs(L['t0']) > 1", id="another function"),
        pytest.param("min(L['t0'], key=2) > 1", id="a keyword"),
        pytest.param("Mod(L['t0']) == 0", id="too few arguments"),
        pytest.param("__import__('os').system('true') == 0", id="a call"),
        pytest.param("not (1 < L['t0'] < 4)", id="not a chain"),
        pytest.param("L['t0'] == 1 or (L['t0'] > 2 and L['t1'] > 2)", id="and in or"),
        pytest.param("(lambda: 1)() == 1", id="a lambda"),
        pytest.param("L['t0'] ==", id="no Python"),
        pytest.param("(" * 300 + "1" + ")" * 300 + " == 1", id="too deep"),
        pytest.param("1 == 1 " + " " * (1 << 16), id="too long"),
    ],
)
def test_what_is_not_checked(text: str) -> None:
    guards = read_guards(text, SPECS)
    assert guards.rows == ()
    assert len(guards.unread) == 1


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("2 <= L['t0']", ("2<=s77",), id="a limit"),
        pytest.param(
            "2 <= L['t0'] and L['t0'] <= 4096 and 2 <= L['t1']",
            ("2<=s77", "s77<=4096", "2<=s27"),
            id="limits",
        ),
        pytest.param("2 <= L['t0'] <= 4096", ("2<=s77", "s77<=4096"), id="a chain"),
        pytest.param("((L['t0'] % 8)) == 0", ("s77%8==0",), id="divisibility"),
        pytest.param("Eq(Mod(L['t0'], 8), 0)", ("s77%8==0",), id="as functions"),
        pytest.param("L['t0'] == L['t1']", ("s77==s27",), id="equal sizes"),
        pytest.param("L['t0'] != 3 * L['t1'] + 1", ("s77!=3*s27+1",), id="arithmetic"),
        pytest.param("not (L['t0'] == 1)", ("s77!=1",), id="not"),
        pytest.param("not not (L['t0'] < 1)", ("s77<1",), id="not not"),
        pytest.param(
            "L['t0'] == 1 or L['t0'] % 4 == 0", ("s77==1 or s77%4==0",), id="alternatives"
        ),
        pytest.param(
            "max(1, L['t0'], (L['t1'] + 7) // 8) < 9", ("max(1,s77,(s27+7)//8)<9",), id="max"
        ),
        pytest.param("-L['t0'] < -1", ("-s77<-1",), id="negative"),
    ],
)
def test_rows(text: str, rows: tuple[str, ...]) -> None:
    guards = read_guards(text, SPECS)
    assert (guards.rows, guards.unread) == (rows, ())
    assert all(map(is_row, guards.rows))


def test_what_is_read_is_kept_beside_what_is_not() -> None:
    guards = read_guards("2 <= L['t0'] and L['t0'] / 2 > 1.5", SPECS)
    assert guards.rows == ("2<=s77",)
    assert guards.unread == ("L['t0'] / 2 > 1.5",)


def test_a_condition_of_any_length_has_a_bound() -> None:
    text = " and ".join(f"{number} <= L['t0']" for number in range(1000))
    guards = read_guards(text, SPECS)
    assert len(guards.rows) == 200
    assert len(guards.unread) == 800


@pytest.mark.parametrize("text", ["s0==1; x", "s0 == 1", "'", '"', "\\", "", "a or "])
def test_what_is_no_row(text: str) -> None:
    assert not is_row(text)
