"""The declarations under `grammars/`: their own examples hold, and wrong ones are told so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import tomllib

from pages import page
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate import grammar
from rewriter.locate import vocabulary as names
from rewriter.locate.declarations import folder
from rewriter.locate.python import grammar as python_grammar
from rewriter.locate.python.locate import locate
from rewriter.locate.types import Located
from rewriter.locate.vocabulary import PLACEHOLDERS, vocabulary

FILES = sorted((folder() / "python").glob("*.toml"))
SHAPES = [file for file in FILES if file.stem != "known_calls"]

_TRITON = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
{head}
@triton.jit
def kernel(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tl.store(out_ptr0, tl.load(in_ptr0))
"""
_META = "triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'}}"


def _triton(name: str, head: str) -> str:
    source = _TRITON.format(head=head)
    return f"{name} = async_compile.triton('{name}', '''{source}''', device_str='cuda')"


# What makes each kernel that the examples name; a name that is not here is one that the file does
# not define.
DEFINITIONS = {
    "helion_add_0": "\ndef helion_add_0(x, y):\n    return x + y\n",
    "triton_poi_fused_0": _triton("triton_poi_fused_0", f"@triton_heuristics.pointwise({_META})"),
    "triton_for_fused_0": _triton(
        "triton_for_fused_0",
        f"@triton_heuristics.foreach({_META}, inductor_meta={{'grid_type': 'ComboKernelGrid'}})",
    ),
    "triton_tem_fused_mm_0": _triton(
        "triton_tem_fused_mm_0", f"@triton_heuristics.template({_META}, num_stages=3)"
    ),
    "add_k_0": _triton("add_k_0", f"@triton_heuristics.user_autotune({_META}, custom_kernel=True)"),
    "multi_kernel_0": (
        "multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_0])"
    ),
    "cpp_fused_add_0": (
        "cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''\n"
        "extern \"C\" void kernel(const float* in_ptr0, float* out_ptr0)\n{}\n''')"
    ),
    "cuda_fused_0": (
        "cuda_fused_0 = async_compile.cuda(r'''int cuda_fused_0(void* X, void* Y)''', 'so')"
    ),
    "cutedsl_0": "cutedsl_0 = async_compile.cutedsl('cutedsl_0', r'''import cutlass''')",
}


def located(statement: str) -> Located:
    """The locator's answer for a wrapper whose call runs `statement` alone."""
    made = [text for name, text in DEFINITIONS.items() if name in statement]
    if "multi_kernel_0" in statement:
        made.insert(0, DEFINITIONS["triton_poi_fused_0"])
    text = "\n".join(
        [
            "from torch._inductor.async_compile import AsyncCompile",
            "async_compile = AsyncCompile()",
            *made,
            "def call(args):",
            "    arg0_1, arg1_1 = args",
            f"    {statement}",
            "    return (buf0,)",
            "",
        ]
    )
    return locate(Source("output_code.py", text.encode()))


def kinds(statement: str) -> list[str]:
    return [launch.kind for launch in located(statement).launches]


def _examples(which: str) -> Iterator[tuple[str, str]]:
    for file in SHAPES:
        declared = tomllib.loads(file.read_text())
        for example in declared["examples"][which]:
            yield declared["kind"], example


def rows(which: str) -> pytest.MarkDecorator:
    found = list(_examples(which))
    return pytest.mark.parametrize(
        ("kind", "statement"), found, ids=[f"{kind}: {statement[:50]}" for kind, statement in found]
    )


@rows("invalid")
def test_invalid_examples_are_not_of_that_kind(kind: str, statement: str) -> None:
    assert kind not in kinds(statement)


@rows("valid")
def test_valid_examples(kind: str, statement: str) -> None:
    found = located(statement)
    assert [launch.kind for launch in found.launches] == [kind]
    assert found.unrecognised == ()


def test_every_kind_has_a_file_with_examples() -> None:
    shapes = python_grammar.load().shapes
    assert {shape.kind for shape in shapes} == set(vocabulary().kinds)
    for shape in shapes:
        assert shape.valid, shape.kind
        assert shape.invalid, shape.kind


def test_shapes_are_tried_in_order() -> None:
    orders = [shape.order for shape in python_grammar.load().shapes]
    assert orders == sorted(orders)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_pattern_compiles_and_matches_itself(file: Path) -> None:
    declared = tomllib.loads(file.read_text())
    if file.stem == "known_calls":
        patterns = [pattern for group in declared.values() for pattern in group]
    else:
        patterns = [match["callee"] for match in declared["match"]] + declared.get("except", [])
    for pattern in patterns:
        compiled = grammar.compile_glob(pattern)
        callee = pattern.replace("**", "a.b").replace("*", "a")
        for device, library in product(vocabulary().devices, vocabulary().libraries):
            named = callee.replace("{devices}", device).replace("{libraries}", library)
            assert compiled.fullmatch(named)
        has_one = any(one in callee for one in PLACEHOLDERS)
        assert has_one == (compiled.fullmatch(callee) is None)


GLOBS = [
    ("*.run", "a.b.run", False),
    ("*.run", "run", False),
    ("*.run", "kernel.running", False),
    ("aten.**", "aten", False),
    ("aten.**", "aten.", False),
    ("aten.view.dtype", "atenxviewxdtype", False),
    ("self.partitions[]", "self.partitions", False),
    ("torch.ops.*.*", "torch.ops.corp.scale.default", False),
    ("*.run", "kernel.run", True),
    ("aten.**", "aten.index_put_", True),
    ("aten.**", "aten.scatter_reduce_.two", True),
    ("**.view", "reinterpret_tensor().view", True),
    ("self.partitions[]", "self.partitions[]", True),
    ("*", "kernel", True),
]


@pytest.mark.parametrize(
    ("pattern", "callee", "matches"), GLOBS, ids=[f"{row[0]} ~ {row[1]}" for row in GLOBS]
)
def test_glob(pattern: str, callee: str, matches: bool) -> None:
    assert (grammar.compile_glob(pattern).fullmatch(callee) is not None) is matches


# --- A folder of declarations -------------------------------------------------------------------


@pytest.fixture
def declarations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the declarations for Python, which `load` reads from now on, beside the names."""
    copy = tmp_path / "python"
    copy.mkdir()
    for file in FILES:
        (copy / file.name).write_bytes(file.read_bytes())
    (tmp_path / "names.toml").write_bytes((folder() / "names.toml").read_bytes())
    for module in (grammar, names):
        monkeypatch.setattr(module, "folder", lambda: tmp_path)
    for read in (python_grammar.load, vocabulary):
        read.cache_clear()
    yield copy
    for read in (python_grammar.load, vocabulary):
        read.cache_clear()


GOOD = """
kind = "custom_op"
order = 5
roles = "schema"
match = [{ callee = "corp_kernels.*" }]

[examples]
valid = ["corp_kernels.fast(buf0)"]
invalid = ["other_kernels.fast(buf0)"]
"""

# What is wrong, the file, and what the message must name.
WRONG = {
    "no TOML": ("kind = ", "TOMLDecodeError"),
    "empty": ("", "missing"),
    "kind missing": (GOOD.replace('kind = "custom_op"', ""), "kind"),
    "order missing": (GOOD.replace("order = 5", ""), "order"),
    "match missing": (GOOD.replace('match = [{ callee = "corp_kernels.*" }]', ""), "match"),
    "examples missing": (GOOD.partition("[examples]")[0], "examples"),
    "valid missing": (GOOD.replace("valid = [", "good = [", 1), "valid"),
    "unknown key": ("colour = 1\n" + GOOD, "colour"),
    "misspelt condition": (GOOD.replace("callee =", 'keywrod = "out", callee ='), "keywrod"),
    "callee missing": (GOOD.replace("callee =", "keyword ="), "callee"),
    "callee is no text": (GOOD.replace('"corp_kernels.*"', "3"), "TypeError"),
    "match is no table": (GOOD.replace('{ callee = "corp_kernels.*" }', "3"), ""),
    "match is no list": (GOOD.replace('[{ callee = "corp_kernels.*" }]', "3"), ""),
    "unknown roles": (GOOD.replace('"schema"', '"guess"'), "guess"),
    "unknown kind": (GOOD.replace('"custom_op"', '"corp"'), "corp"),
    "unknown placeholder": (GOOD.replace("corp_kernels.*", "{device}_kernels.*"), "{device}"),
    "order is no number": (GOOD.replace("order = 5", 'order = "first"'), "order"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_named(case: str, declarations: Path) -> None:
    text, named = WRONG[case]
    file = declarations / "corp.toml"
    file.write_text(text)
    with pytest.raises(RewriterError) as caught:
        python_grammar.load()
    assert caught.value.slug == "grammar-invalid"
    assert caught.value.code == FAILED
    assert str(file) in caught.value.message
    assert named in caught.value.message
    assert caught.value.hint


def test_not_utf_8(declarations: Path) -> None:
    (declarations / "corp.toml").write_bytes(b'kind = "\xff"')
    with pytest.raises(RewriterError, match=r"corp\.toml"):
        python_grammar.load()


KNOWN_CALLS = (folder() / "python" / "known_calls.toml").read_text()
WRONG_GROUPS = {
    "group missing": (re.sub(r"(?ms)^device = \[.*?^\]", "", KNOWN_CALLS), "device"),
    "unknown group": (KNOWN_CALLS + "\nother = []", "other"),
    "group is a number": (re.sub(r"(?m)^copy = \[.*\]", "copy = 3", KNOWN_CALLS), "TypeError"),
}


@pytest.mark.parametrize("case", WRONG_GROUPS)
def test_a_wrong_list_of_non_launches_is_named(case: str, declarations: Path) -> None:
    text, named = WRONG_GROUPS[case]
    assert text != KNOWN_CALLS
    (declarations / "known_calls.toml").write_text(text)
    with pytest.raises(RewriterError) as caught:
        python_grammar.load()
    assert "known_calls.toml" in caught.value.message
    assert named in caught.value.message


def test_without_the_list_of_non_launches_nothing_is_guessed(declarations: Path) -> None:
    (declarations / "known_calls.toml").unlink()
    with pytest.raises(RewriterError) as caught:
        python_grammar.load()
    assert "known_calls" in str(caught.value)


def test_an_empty_folder_is_an_incomplete_installation(declarations: Path) -> None:
    for file in declarations.iterdir():
        file.unlink()
    with pytest.raises(RewriterError) as caught:
        python_grammar.load()
    assert caught.value.slug == "grammar-missing"
    assert caught.value.code == FAILED
    assert "einstall" in caught.value.hint


def test_a_new_file_is_a_new_shape(declarations: Path) -> None:
    statement = "buf0 = corp_kernels.fast(arg0_1)"
    assert kinds(statement) == []
    assert [call.text for call in located(statement).unrecognised] == ["corp_kernels.fast(arg0_1)"]
    (declarations / "corp.toml").write_text(GOOD)
    python_grammar.load.cache_clear()
    assert kinds(statement) == ["custom_op"]
    assert located(statement).unrecognised == ()
    # The others stand as they were.
    assert kinds("extern_kernels.mm(buf0, buf1, out=buf2)") == ["extern_out"]


def test_a_new_backend_is_a_line_and_a_file(
    declarations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page on extending has it. Its kernels are functions of Python, or C++."""
    extending = page("project/extending.md")
    _, shape = extending.code("toml")
    (line,) = re.findall(r"^foo = .*\n", extending.text, re.MULTILINE)
    known = declarations.parent / "names.toml"
    known.write_text(known.read_text().replace("[kinds]\n", f"[kinds]\n{line}"))
    (declarations / "foo.toml").write_text(shape)
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
        monkeypatch.setitem(DEFINITIONS, "foo_kernel_0", made)
        (launch,) = located(f"buf0 = empty_strided_cuda((64,), (1,)); {body}").launches
        assert (launch.kind, launch.kernel) == ("foo", "foo_kernel_0")
        given = "inout" if language == "another language" else "in"
        assert [x.role for x in launch.args] == [given, "out", "in", "in"], language


def test_a_lower_order_comes_first(declarations: Path) -> None:
    statement = "extern_kernels.mm(arg0_1, arg1_1, out=buf0)"
    file = declarations / "corp.toml"
    for order, expected in ((5, "custom_op"), (95, "extern_out")):
        text = GOOD.replace("order = 5", f"order = {order}").replace(
            "corp_kernels", "extern_kernels"
        )
        file.write_text(text)
        python_grammar.load.cache_clear()
        assert kinds(statement) == [expected]


def test_the_synthetic_wrappers_parse() -> None:
    for text in DEFINITIONS.values():
        ast.parse(text)
