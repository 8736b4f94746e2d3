"""A folder of declarations: each mistake in it is named, and each new file is a new shape."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import statements
from pages import page
from rewriter.core.errors import FAILED, RewriterError
from rewriter.locate import grammar as common
from rewriter.locate import vocabulary as names
from rewriter.locate.cpp import grammar as cpp_grammar
from rewriter.locate.declarations import folder
from rewriter.locate.python import grammar as python_grammar
from rewriter.locate.types import Located


@dataclass(frozen=True)
class Language:
    """A language; a new shape, and a statement of it and of `extern_out`, and how the shape would
    take that, too."""

    name: str
    load: Any
    located: Callable[[str], Located]
    good: str
    new: str
    out: str
    out_pattern: tuple[str, str]

    def kinds(self, statement: str) -> list[str]:
        self.load.cache_clear()
        return [launch.kind for launch in self.located(statement).launches]


PYTHON = Language(
    "python",
    python_grammar.load,
    statements.python,
    """
kind = "custom_op"
order = 5
roles = "schema"
match = [{ callee = "corp_kernels.*" }]

[examples]
valid = ["corp_kernels.fast(buf0)"]
invalid = ["other_kernels.fast(buf0)"]
""",
    "corp_kernels.fast(arg0_1)",
    "extern_kernels.mm(arg0_1, arg1_1, out=buf0)",
    ("corp_kernels", "extern_kernels"),
)
QUERY = '(call_expression function: (identifier) @callee (#match? @callee "^corp_")) @launch'
CPP = Language(
    "cpp",
    cpp_grammar.load,
    statements.cpp,
    f"""
kind = "custom_op"
order = 5
roles = "shim"
query = '''{QUERY}'''

[examples]
valid = ["corp_fast(buf0);"]
invalid = ["other_fast(buf0);"]
""",
    "corp_fast(buf0)",
    "aoti_torch_cpu_mm_out(buf0, arg0_1, arg0_1)",
    ("^corp_", "_out$"),
)
both = pytest.mark.parametrize("language", [PYTHON, CPP], ids=lambda language: language.name)


@pytest.fixture
def declarations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the declarations, which `load` reads from now on."""
    copy = tmp_path / "grammars"
    shutil.copytree(folder(), copy)
    for module in (common, names, cpp_grammar):
        monkeypatch.setattr(module, "folder", lambda: copy)
    readers = (python_grammar.load, cpp_grammar.load, names.vocabulary)
    for read in readers:
        read.cache_clear()
    yield copy
    for read in readers:
        read.cache_clear()


# What is replaced in a good shape, by what, and what the message must name.
WRONG = {
    "no TOML": (".*", "kind = ", "TOMLDecodeError"),
    "empty": (".*", "", "missing"),
    "kind missing": ('kind = "custom_op"', "", "kind"),
    "order missing": ("order = 5", "", "order"),
    "roles missing": (r'roles = "\w+"', "", "roles"),
    "examples missing": (r"\[examples\].*", "", "examples"),
    "valid missing": (r"\nvalid = \[", "\ngood = [", "valid"),
    "invalid missing": (r"\ninvalid = \[", "\nbad = [", "invalid"),
    "no valid example": (r"valid = \[.*?\]", "valid = []", "valid"),
    "no invalid example": (r"invalid = \[.*?\]", "invalid = []", "invalid"),
    "unknown key": ("^", "colour = 1", "colour"),
    "unknown roles": (r'roles = "\w+"', 'roles = "guess"', "guess"),
    "unknown kind": ('"custom_op"', '"corp"', "corp"),
    "unknown placeholder": ("corp_", "{device}", "{device}"),
    "order is no number": ("order = 5", 'order = "first"', "order"),
}
WRONG_PYTHON = {
    "match missing": ("match = .*?\n", "", "match"),
    "misspelt condition": ("callee =", 'keywrod = "out", callee =', "keywrod"),
    "callee missing": ("callee =", "keyword =", "callee"),
    "callee is no text": (r'"corp_kernels.\*"', "3", "TypeError"),
    "match is no table": (r"\{ .*? \}", "3", ""),
    "match is no list": (r"\[\{.*?\}\]", "3", ""),
}
WRONG_CPP = {
    "query missing": ("query =", "pattern =", "query"),
    "Python's key": ("^", "match = [{ callee = 'x' }]", "match"),
    "unknown kind by name": (
        "roles", 'kinds = [{ kernel = "a*", kind = "corp" }]\nroles', "corp"
    ),
    "unknown kind by source": (
        "roles", 'sources = [{ text = "a", kind = "corp" }]\nroles', "corp"
    ),
    "a row without its kernel": (
        "roles", 'kinds = [{ callee = "a*", kind = "custom_op" }]\nroles', "kernel"
    ),
    "kinds is no list": ("roles", 'kinds = "custom_op"\nroles', "Error"),
    "unbalanced query": ("@launch", "@launch)", "QueryError"),
    "unknown node": ("call_expression", "call_expresion", "call_expresion"),
    "unknown field": ("function:", "funktion:", "funktion"),
    "unknown predicate": (r"#match\?", "#matches?", "#matches?"),
    "a predicate of another tool": (r"#match\?", "#has-ancestor?", "#has-ancestor?"),
    "an order that crashes": (
        r' "\^corp_"\)', ' "^corp_") (#set! effect "free")', "#set! has to stand before"
    ),
    "a predicate that does not work": (r"#match\?", "#not-any-of?", "#not-any-of?"),
    "a bad expression": (r"\^corp_", "^corp_(", "expression"),
    "no @launch": ("@launch", "@call", "@launch"),
    "no @callee": (re.escape(QUERY), QUERY.replace("@callee", "@name"), "@callee"),
    "empty query": (re.escape(QUERY), "", "@callee, @launch"),
}  # fmt: skip
ROWS = [
    pytest.param(language, *row, id=f"{language.name}, {name}")
    for language, own in ((PYTHON, WRONG_PYTHON), (CPP, WRONG_CPP))
    for name, row in (WRONG | own).items()
]


def refusal(language: Language, file: Path) -> RewriterError:
    """How a folder with a wrong file is refused."""
    with pytest.raises(RewriterError) as caught:
        language.load()
    assert caught.value.slug == "grammar-invalid"
    assert caught.value.code == FAILED
    assert str(file) in caught.value.message
    assert "extending.md" in caught.value.hint
    return caught.value


@pytest.mark.parametrize(("language", "old", "new", "named"), ROWS)
def test_a_wrong_declaration_is_named(
    language: Language, old: str, new: str, named: str, declarations: Path
) -> None:
    text = re.sub(old, lambda _: new, language.good, count=1, flags=re.DOTALL)
    assert text != language.good
    file = declarations / language.name / "corp.toml"
    file.write_text(text)
    assert named in refusal(language, file).message


@both
def test_not_utf_8(language: Language, declarations: Path) -> None:
    file = declarations / language.name / "corp.toml"
    file.write_bytes(b'kind = "\xff"')
    refusal(language, file)


WRONG_QUERIES = {
    ("scopes", "(function_definition"): "QueryError",
    ("scopes", "(function_definition) @body"): "@name",
    ("calls", "(call_expression function: (_) @callee) @launch"): "@call",
    (
        "data_flow",
        "(declaration type: (_) @type declarator: (init_declarator declarator: (_) @name "
        "value: (_) @value))",
    ): "effect None",
    (
        "data_flow",
        "((declaration type: (_) @type declarator: (init_declarator declarator: (_) @name "
        'value: (_) @value)) (#set! effect "explode"))',
    ): "explode",
    ("data_flow", '((declaration type: (_) @type) (#set! effect "bind"))'): "@name",
    ("data_flow", '((declaration declarator: (_) @name) (#sets! effect "bind"))'): "#sets!",
}


@pytest.mark.parametrize(("query", "named"), WRONG_QUERIES.items(), ids=map(str, WRONG_QUERIES))
def test_a_wrong_query_file_is_named(
    query: tuple[str, str], named: str, declarations: Path
) -> None:
    file = declarations / "cpp" / f"{query[0]}.scm"
    file.write_text(query[1])
    assert named in refusal(CPP, file).message


@pytest.mark.parametrize("name", ["calls.scm", "data_flow.scm", "scopes.scm"])
def test_a_missing_query_file_is_named(name: str, declarations: Path) -> None:
    (declarations / "cpp" / name).unlink()
    refusal(CPP, declarations / "cpp" / name)


WRONG_GROUPS = {
    "group missing": (r"(?ms)^device = \[.*?^\]", "", "device"),
    "unknown group": (r"\Z", "\nother = []", "other"),
    "group is a number": (r"(?m)^copy = \[.*\]", "copy = 3", "TypeError"),
    "group is empty": (r"(?m)^copy = \[.*\]", "copy = []", "copy"),
    "unknown placeholder": (r"(?m)^copy = \[", 'copy = ["{device}", ', "{device}"),
}


@both
@pytest.mark.parametrize("case", WRONG_GROUPS)
def test_a_wrong_list_of_non_launches_is_named(
    case: str, language: Language, declarations: Path
) -> None:
    old, new, named = WRONG_GROUPS[case]
    file = declarations / language.name / "known_calls.toml"
    text = re.sub(old, lambda _: new, file.read_text(), count=1)
    assert text != file.read_text()
    file.write_text(text)
    assert named in refusal(language, file).message


@both
@pytest.mark.parametrize("keep", ["known_calls.toml", "cpp.toml", ""])
def test_an_incomplete_folder_is_an_incomplete_installation(
    keep: str, language: Language, declarations: Path
) -> None:
    for file in (declarations / language.name).glob("*.toml"):
        if file.name != keep:
            file.unlink()
    with pytest.raises(RewriterError) as caught:
        language.load()
    assert caught.value.slug == "grammar-missing"
    assert caught.value.code == FAILED
    assert "known_calls.toml" in caught.value.message
    assert "einstall" in caught.value.hint


@both
def test_a_new_file_is_a_new_shape(language: Language, declarations: Path) -> None:
    assert language.kinds(f"{language.new};") == []
    (unrecognised,) = language.located(f"{language.new};").unrecognised
    assert unrecognised.text == language.new
    (declarations / language.name / "corp.toml").write_text(language.good)
    assert language.kinds(f"{language.new};") == ["custom_op"]
    assert language.located(f"{language.new};").unrecognised == ()
    # The others stand as they were.
    assert language.kinds(f"{language.out};") == ["extern_out"]


@both
def test_a_lower_order_comes_first(language: Language, declarations: Path) -> None:
    for order, expected in ((5, "custom_op"), (95, "extern_out")):
        text = language.good.replace("order = 5", f"order = {order}")
        text = text.replace(*language.out_pattern)
        (declarations / language.name / "corp.toml").write_text(text)
        assert language.kinds(f"{language.out};") == [expected]


def test_a_group_comes_before_the_shapes_of_cpp(declarations: Path) -> None:
    (declarations / "cpp" / "corp.toml").write_text(CPP.good)
    file = declarations / "cpp" / "known_calls.toml"
    text = file.read_text().replace('"printf",', '"printf", "corp_*",')
    assert text != file.read_text()
    file.write_text(text)
    assert CPP.kinds(f"{CPP.new};") == []
    assert CPP.located(f"{CPP.new};").unrecognised == ()


def test_a_new_backend_is_a_line_and_a_file(
    declarations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page on extending has it. Its kernels are functions of Python, or C++."""
    extending = page("project/extending.md")
    _, shape = extending.code("toml")
    (line,) = re.findall(r"^foo = .*\n", extending.text, re.MULTILINE)
    known = declarations / "names.toml"
    known.write_text(known.read_text().replace("[kinds]\n", f"[kinds]\n{line}"))
    (declarations / "python" / "foo.toml").write_text(shape)
    helper, kernel = "def helper(x):\n    pass\n\n", "(in_ptr0, out_ptr0, n):\n    pass\n"
    sources = {
        "a function": f"import foo\n\n{helper}@foo.kernel\ndef foo_{kernel}",
        "one of several": f"def foo_main{kernel}\n{helper}",
        "C++": 'extern "C" void kernel(const float* in_ptr0, float* out_ptr0, int n) {}\n',
        "another language": "begin foo in_ptr0 out_ptr0 n\nend\n",
    }
    body = "foo_kernel_0.dispatch(arg0_1, buf0, 64, stream=stream0)"
    for language, source in sources.items():
        made = f"foo_kernel_0 = async_compile.foo('foo_kernel_0', '''\n{source}''')"
        monkeypatch.setitem(statements.DEFINITIONS, "foo_kernel_0", made)
        (launch,) = statements.python(f"buf0 = empty_strided_cuda((64,), (1,)); {body}").launches
        assert (launch.kind, launch.kernel) == ("foo", "foo_kernel_0")
        given = "inout" if language == "another language" else "in"
        assert [x.role for x in launch.args] == [given, "out", "in", "in"], language
