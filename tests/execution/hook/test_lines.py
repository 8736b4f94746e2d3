"""Wrappers with probes have the line numbers of the file: tracebacks and profiles show that."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture
from rewriter.core.edit import Insertion, apply, line_origins
from rewriter.core.source import Source
from rewriter.execution.hook.startup.sitecustomize import placed
from sampling import one_in

WRAPPERS = [*FIXTURES, *(one for one in CPP_FIXTURES if one.path.suffix == ".py")]


def tree_of(plain: bytes, insertions: list[Insertion]) -> ast.Module:
    text = apply(plain, insertions).decode()
    origins = line_origins(Source(Path("x.py"), plain), insertions)
    tree = placed(text, [number for number, _ in origins])
    assert isinstance(tree, ast.Module)
    return tree


def statements(tree: ast.AST) -> Iterator[tuple[object, ...]]:
    """Each statement and expression, with its place. The end of a block is left out: lines of
    probes may be its last ones."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)):
            is_block = isinstance(node, ast.stmt) and hasattr(node, "body")
            end = None if is_block else (node.end_lineno, node.end_col_offset)
            yield type(node).__name__, node.lineno, node.col_offset, end


@pytest.mark.parametrize(
    ("insertions", "numbers"),
    [
        pytest.param([], [1, 2, 3, 4], id="nothing"),
        pytest.param([(0, "p\n")], [1, 1, 2, 3, 4], id="before the first line"),
        pytest.param([(2, "p\nq\n")], [1, 2, 2, 2, 3, 4], id="two lines"),
        pytest.param([(2, "p\n"), (2, "q\n")], [1, 2, 2, 2, 3, 4], id="twice at one place"),
        pytest.param([(4, "q\n"), (2, "p\n")], [1, 2, 2, 3, 3, 4], id="in another order"),
        pytest.param([(8, "p\n")], [1, 2, 3, 4, 5], id="behind the last line"),
    ],
)
def test_lines_of_probes_have_the_number_of_the_next_line(
    insertions: list[tuple[int, str]], numbers: list[int]
) -> None:
    edits = [Insertion(offset, text.encode(), "test") for offset, text in insertions]
    assert [one.lineno for one in tree_of(b"a\nb\nc\nd\n", edits).body] == numbers


def test_a_statement_of_several_lines() -> None:
    plain = b"a = (\n    1,\n    2,\n)\nb = '''\n\n'''\n"
    one, probe, two = tree_of(plain, [Insertion(plain.index(b"b"), b"p\n", "test")]).body
    assert (one.lineno, one.end_lineno) == (1, 4)
    assert (probe.lineno, probe.end_lineno) == (5, 5)
    assert (two.lineno, two.end_lineno) == (5, 7)


@pytest.mark.properties
@pytest.mark.parametrize("fixture", one_in(4, WRAPPERS), ids=str)
def test_every_statement_has_its_line(fixture: Fixture) -> None:
    made = rewriter.instrument(fixture.path, rewriter.select("names,print"))
    plain = fixture.data
    tree = tree_of(plain, list(made.plan.insertions))
    before = Counter(statements(ast.parse(plain)))
    assert not before - Counter(statements(tree))
    assert compile(tree, "x.py", "exec").co_filename == "x.py"
    # What is inserted has no number beyond the file.
    last = max(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt))
    assert last <= plain.count(b"\n") + 1
