"""Python is read by libcst, each form once: what is found is what a parse of the whole tells."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import libcst as cst
import pytest

from artifacts import FIXTURES, Fixture, get
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.python.locate import locate
from rewriter.locate.python.module import Block, Module, parse, read
from rewriter.locate.python.statements import Statement, calls
from rewriter.locate.python.syntax import PythonError, TooDeepError, expression
from sampling import one_in

WRAPPER = get("cuda-torch2.11/gpt")
ROOT = Path(__file__).parents[2]


def test_libcst_reads_python_wrappers() -> None:
    """The owner's choice: nothing else parses the code of a wrapper."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert '"libcst>=' in pyproject.partition("dependencies = [")[2].partition("]")[0]
    rooms = [ROOT / "rewriter/locate", ROOT / "rewriter/instrumentation"]
    files = [file for room in rooms for file in room.rglob("*.py")]
    for file in [*files, ROOT / "rewriter/reproduction/python_cut.py"]:
        if file.name == "guards.py":
            continue  # conditions from a cache: not the code of a wrapper
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ast":
                assert node.attr == "literal_eval", f"{file}: ast.{node.attr}"
    program = (
        "import sys\nfrom rewriter import cli\n"
        f"cli.main(['list', {str(WRAPPER.path)!r}])\nassert 'libcst' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def called(text: str) -> list[tuple[int, str]]:
    """The calls in a text, with their lines, as Python's own parser sees them."""
    found = [
        (one.lineno, ast.unparse(one.func).split("(")[0].split("[")[0])
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.Call)
    ]
    return sorted(found)


def found(module: Module) -> list[tuple[int, str]]:
    """The same, as the module has them."""
    calls_found = [
        (one.line_of(call), one.callee(call).split("(")[0].split("[")[0])
        for one in module.every(module.body)
        for call in calls(one.node)
    ]
    return sorted(calls_found + [x for block in blocks(module) for x in decorators(block)])


def blocks(module: Module) -> list[Block]:
    todo = [part for part in module.each(module.body) if isinstance(part, Block)]
    for block in todo:
        todo += [x for _, suite in block.clauses for x in suite if isinstance(x, Block)]
    return todo


def decorators(block: Block) -> list[tuple[int, str]]:
    return [
        (one.line.number, one.callee(call).split("(")[0])
        for one in block.decorators
        for call in calls(one.node)
    ]


@pytest.mark.parametrize("fixture", one_in(6, FIXTURES))
def test_the_calls_of_a_wrapper_are_those_of_its_whole_tree(fixture: Fixture) -> None:
    module = parse(Source("output_code.py", fixture.data))
    assert found(module) == called(fixture.data.decode())


# What stands between other statements of a function.
_IN = "\n" + " " * 12  # the indentation of those statements
ODD = {
    "a string with brackets": "x = '(['; y = \"#{\"",
    "a string over lines": "x = '''(\n  else:\n\\''' '''",
    "an escaped quote": r"x = 'it\'s ('",
    "brackets over lines": "x = [\n1,\n    (2,\n)]",
    "calls over lines": "x = f(\n g(1),\n    h(i(2),\n))",
    "a continued line": "x = 1 + \\\nf(2)",
    "a comment with quotes": "x = 1  # it's (",
    "a comment at the margin": "x = 1\n# it's (",
    "a decorated function": f"@a{_IN}@b(c()){_IN}def f():{_IN}  return (1,\n)",
    "clauses": f"if x:{_IN}  y = f(1){_IN}elif g(2):{_IN}  h(3){_IN}else:{_IN}  y = 2",
    "a try": f"try:{_IN}  f(){_IN}except g() as e:{_IN}  h(){_IN}finally:{_IN}  j()",
    "a try with an else": f"try:{_IN}  f(){_IN}except g():{_IN}  h(){_IN}else:{_IN}  i()",
    "a loop with an else": f"for x in y():{_IN}  del x{_IN}else:{_IN}  f()",
    "a nested with": f"with a():{_IN}  x = f(1){_IN}  y = g(2){_IN}  del x",
    "a nested function": f"def f(b=g()):{_IN}  x = 1{_IN}  del x{_IN}  x = h(2)",
    "several statements": "x = f(); del x; x = g(2)",
    "a blank line": f"x = 1\n\n      {_IN}x1 = f(2)",
    "a name in another script": "größe = f(größe1, 'ö')",
    "a class": f"class A(b()):{_IN}  b = 1{_IN}  c = f(2){_IN}  d = 3",
    "blocks on one line": f"if x: f(1); g(2){_IN}else: h()",
    "an f-string": "x = f'{y}' + g(f\"{z1}\")",
    "a lambda": "x = lambda y: f(y)",
    "names like keywords": f"match = f(1){_IN}case = g(match){_IN}match(2)",
    "a match": f"match f(x):{_IN}  case 1:{_IN}    g(){_IN}  case _:{_IN}    h()",
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_odd_statements(case: str, newline: str) -> None:
    inside = "\n            ".join(["a = f(1)", ODD[case], "b = g(a)", ODD[case], "return b"])
    text = f"class R:\n    def call(self, args):\n        with d:\n            {inside}\n\nz = 1\n"
    module = read(text.replace("\n", newline).encode().decode("latin-1"))
    assert found(module) == called(text)


FAULTS = {
    "def f():\n    a = 1\n    b = 2)\n    c = (3\n    d = 4\n": 3,
    "def f():\n    a = 1\n    b = '\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n    b = ((\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n      b = 2\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n  b = 2\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n    else:\n        b = 2\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n    b = '''\n    c = 3\n    d = 4\n": 3,
    "def f():\n    a = 1\n    b = 3 \\\n": 3,
    "a = 1\nwith $:\n    b = 2\n": 2,
    "a = 1\nb = $\nc = = 2\n": 2,
    "a = 1\nb = (1,\n  2 3)\nc = 2\n": 3,
    "def f(:\n  a\nb = $\n": 1,
    "if a:\nb = 2\n": 2,
    "b = f'{a\nc = 2\n": 1,
    "a = 08\n": 1,
}


@pytest.mark.parametrize("text", FAULTS)
def test_an_error_is_about_the_first_fault(text: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(text)
    with pytest.raises(PythonError) as raised:
        read(text)
    assert raised.value.line == FAULTS[text]


@pytest.mark.parametrize("damage", [b"(", b"'", b"= =", b"\\ x", b"else:", b"x y"])
def test_an_error_shows_its_line(damage: bytes) -> None:
    data = WRAPPER.data
    middle = data.index(b"\n", data.index(b"buf10 = ")) + 1
    source = Source("w.py", data[:middle] + b"            " + damage + b"\n" + data[middle:])
    with pytest.raises(RewriterError) as raised:
        locate(source)
    line = data[:middle].count(b"\n") + 1
    assert f"w.py:{line}: " in raised.value.message
    shown, caret = raised.value.message.splitlines()[-2:]
    assert shown == f"    {source.line_text(line)}"
    assert caret.strip() == "^"
    assert caret.index("^") >= 4 + 12


def test_a_kernel_whose_body_is_not_needed_may_be_invalid() -> None:
    module = read("def f(a):\n    b = (1 2)\n", checks=False)
    (block,) = module.each(module.body)
    assert isinstance(block, Block)
    assert (block.name, block.parameters) == ("f", ["a"])
    with pytest.raises(PythonError):
        list(module.every(block.body))


# --- Depth --------------------------------------------------------------------------------------

DEEP = {
    "brackets": lambda n: "(" * n + "a" + ")" * n,
    "lists": lambda n: "[" * n + "a" + "]" * n,
    "calls in calls": lambda n: "f(" * n + "a" + ")" * n,
    "calls of calls": lambda n: "a" + "()" * n,
    "attributes": lambda n: "a" + ".a" * n,
    "elements": lambda n: "a" + "[0]" * n,
    "sums": lambda n: "a" + "+a" * n,
    "powers": lambda n: "a" + "**a" * n,
    "signs": lambda n: "-" * n + "a",
    "negations": lambda n: "not " * n + "a",
    "and": lambda n: "a" + " and a" * n,
    "strings": lambda n: "x = " + "'a' " * n,
    "prefixed strings": lambda n: "x = " + "r'a' " * n,
    "lambdas": lambda n: "lambda: " * n + "a",
    "conditions": lambda n: "a if b else " * n + "a",
    "comprehensions": lambda n: "[x " + "for x in y " * n + "]",
    "walrus": lambda n: "(" + "(a:=" * n + "1" + ")" * n + ")",
    "f-strings": lambda n: "f'" + "{a:" * n + "}" * n + "'",
    "brackets in f-strings": lambda n: "f'{" + "(" * n + "a" + ")" * n + "}'",
    "imports": lambda n: "import a" + ".a" * n,
    "brackets in a head": lambda n: "if " + "(" * n + "a" + ")" * n + ":\n  b",
    "decorators": lambda n: "@a" + ".a" * n + "\ndef f(): pass",
    "elif": lambda n: "if a:\n  b\n" + "elif a:\n  b\n" * n,
    "blocks": lambda n: "".join(" " * i + "if a:\n" for i in range(n)) + " " * n + "b",
}
_PROGRAM = """
import sys, threading
from rewriter.locate.python.module import read
from rewriter.locate.python.syntax import PythonError, TooDeepError
from test_python_module import DEEP
failed = []
def check():
    for kind, made in DEEP.items():
        for number in (1, 5, 20, 40, 80, 140, 240, 400, 2_000, 50_000):
            text = made(min(number, 2_000) if kind == "blocks" else number)
            try:
                module = read(text)
                list(module.every(module.body))
                ended = "read"
            except TooDeepError:
                ended = "too deep"
            except PythonError as error:
                ended = error.message
            wanted = "read" if number <= 5 else "too deep" if number >= 400 else ""
            if kind not in FREE and wanted and ended != wanted:
                failed.append((kind, number, ended))
FREE = ("f-strings", "brackets in f-strings")  # not read as deep, or no Python
threading.stack_size(512 << 10)
thread = threading.Thread(target=check)
thread.start()
thread.join()
sys.exit(repr(failed) if failed else 0)
"""


def test_the_parser_never_ends_in_a_crash() -> None:
    """With the smallest stack that threads have: 512 kB, on macOS."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


def test_what_is_deep_enough_for_generated_code() -> None:
    assert expression("f(" * 25 + "a" + ")" * 25) is not None
    assert expression("a" + " + a" * 100) is not None
    assert expression("[" + "torch.float32, " * 5_000 + "]") is not None
    assert expression("-" * 1_000 + "a") is None
    assert expression("x = 1") is None
    with pytest.raises(TooDeepError):
        read("a = 1\nb = " + "(" * 100 + ")" * 100)


def test_threads_may_read_at_once() -> None:
    wanted = locate(Source("w.py", WRAPPER.data))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(locate(Source("w.py", WRAPPER.data))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 4


def test_a_form_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper with a thousand launches more takes no more parses."""
    parsed: list[str] = []
    real = cst.parse_statement

    def counted(text: str) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(cst, "parse_statement", counted)
    line = "    zz_kernel_{0}.run(buf{0}, {0}, zz_fresh=buf{0})\n"
    text = "def call(args):\n" + "".join(line.format(number) for number in range(1_000))
    module = read(text + "    return (buf1,)\n")
    statements = [one for one in module.every(module.body) if isinstance(one, Statement)]
    assert len(statements) == 1_002
    assert len([one for one in parsed if "zz_fresh" in one]) == 1


def test_a_null_byte_is_no_python() -> None:
    with pytest.raises(PythonError, match="null byte") as raised:
        read("x = 1\nf('q\0r')\n")
    assert raised.value.line == 2


def test_a_multi_kernel_that_names_itself_has_no_parameters() -> None:
    text = (
        b"multi_kernel_0 = async_compile.multi_kernel('m', [multi_kernel_0])\n"
        b"def call(args):\n    arg0_1, = args\n    multi_kernel_0.run(arg0_1, 8)\n"
        b"    return (arg0_1,)\n"
    )
    (launch,) = locate(Source("w.py", text)).launches
    assert launch.kernel == "multi_kernel_0"
