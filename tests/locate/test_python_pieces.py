"""A large wrapper is parsed in pieces: what is found in it is what its whole tree tells."""

from __future__ import annotations

import ast

import pytest

import rewriter
from artifacts import FIXTURES, Fixture, get
from rewriter.core import python_pieces, python_syntax
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.python.locate import locate
from sampling import one_in

WRAPPER = get("cuda-torch2.11/gpt")


def divide(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have everything beyond so many bytes read in pieces of that size."""
    monkeypatch.setattr(python_pieces, "LARGE", size)
    monkeypatch.setattr(python_pieces, "PIECE", size)
    monkeypatch.setattr(python_pieces, "PIECES", 10_000)


def statements(module: python_pieces.Module) -> list[str]:
    return [ast.dump(node, include_attributes=True) for node in flat(module, module.body)]


def flat(module: python_pieces.Module, block: list[ast.stmt]) -> list[ast.stmt]:
    found = []
    for statement in module.statements(block):
        inner = getattr(statement, "body", [])
        found += [*flat(module, inner)] if inner else [statement]
    return found


@pytest.mark.parametrize("fixture", one_in(12, FIXTURES))
def test_the_pieces_of_a_wrapper_hold_what_the_whole_holds(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("output_code.py", fixture.data)
    whole = locate(source)
    instrumented = rewriter.instrument(fixture.path, rewriter.select("print", when="both")).source
    divide(monkeypatch, 700)
    assert locate(source) == whole
    again = rewriter.instrument(fixture.path, rewriter.select("print", when="both")).source
    assert again == instrumented


@pytest.mark.parametrize("size", [1, 300, 2000])
def test_every_statement_is_read_where_it_stands(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = get("cuda-torch2.11/mlp").data.decode()
    whole = python_pieces.parse(text, divided=False)
    divide(monkeypatch, size)
    divided = python_pieces.parse(text, divided=True)
    assert not divided.is_whole
    assert len(list(ast.walk(ast.Module(divided.body, [])))) < len(
        list(ast.walk(ast.Module(whole.body, [])))
    )
    assert statements(divided) == statements(whole)
    found, expected = (
        sorted(type(node).__name__ for node in nodes)
        for nodes in (divided.walk(divided.body[-1]), ast.walk(whole.body[-1]))
    )
    assert found == expected


# What stands between other statements of a large function.
_IN = "\n" + " " * 12  # the indentation of those statements
ODD = {
    "a string with brackets": "x = '(['; y = \"#{\"",
    "a string over lines": "x = '''(\n  else:\n\\''' '''",
    "an escaped quote": r"x = 'it\'s ('",
    "brackets over lines": "x = [\n1,\n    (2,\n)]",
    "a continued line": "x = 1 + \\\n2",
    "a comment with quotes": "x = 1  # it's (",
    "a comment at the margin": "x = 1\n# it's (",
    "a decorated function": f"@a{_IN}@b{_IN}def f():{_IN}  return (1,\n)",
    "clauses": f"if x:{_IN}  y = 1{_IN}else:{_IN}  y = 2",
    "a loop with an else": f"for x in y:{_IN}  del x{_IN}else:{_IN}  pass",
    "a nested with": f"with a:{_IN}  x = f(1){_IN}  y = g(2){_IN}  del x",
    "a nested function": f"def f():{_IN}  x = 1{_IN}  del x{_IN}  x = 2",
    "several statements": "x = 1; del x; x = 2",
    "a blank line": f"x = 1\n\n      {_IN}x1 = 2",
    "a name in another script": "größe = 1",
    "a class": f"class A:{_IN}  b = 1{_IN}  c = 2{_IN}  d = 3",
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("size", [1, 40])
def test_odd_statements(case: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = "\n            ".join(["a = f(1)", ODD[case], "b = g(a)", ODD[case], "return b"])
    text = f"class R:\n    def call(self, args):\n        with d:\n            {inside}\n\nz = 1\n"
    whole = python_pieces.parse(text, divided=False)
    divide(monkeypatch, size)
    divided = python_pieces.parse(text, divided=True)
    divided.read_the_rest()
    assert statements(divided) == statements(whole)
    python_pieces.check(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    a = 1\n    b = 2)\n    c = (3\n    d = 4\n",
        "def f():\n    a = 1\n    b = '\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n    b = ((\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n      b = 2\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n  b = 2\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n    else:\n        b = 2\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n    b = '''\n    c = 3\n    d = 4\n",
        "def f():\n    a = 1\n    b = 3 \\\n",
    ],
)
def test_what_does_not_parse_is_refused_as_the_whole_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SyntaxError) as whole:
        python_syntax.parse(text)
    divide(monkeypatch, 1)
    with pytest.raises(SyntaxError) as checked:
        python_pieces.check(text)
    assert (checked.value.lineno, checked.value.msg) == (whole.value.lineno, whole.value.msg)


@pytest.mark.parametrize("damage", [b"(", b"'", b"= =", b"\\ x", b"else:"])
def test_errors_are_those_of_the_first_fault(
    damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = WRAPPER.data
    middle = data.index(b"\n", data.index(b"buf10 = ")) + 1
    broken = Source(
        "output_code.py", data[:middle] + b"            " + damage + b"\n" + data[middle:]
    )
    with pytest.raises(RewriterError) as whole:
        locate(broken)
    divide(monkeypatch, 500)
    with pytest.raises(RewriterError) as divided:
        locate(broken)
    assert divided.value.message == whole.value.message
