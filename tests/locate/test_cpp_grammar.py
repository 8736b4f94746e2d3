"""The declarations under `grammars/cpp`: their own examples hold, and wrong ones are told so."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import tree_sitter

from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.source import Source
from rewriter.locate import grammar as common
from rewriter.locate.cpp import grammar
from rewriter.locate.cpp.locate import locate
from rewriter.locate.declarations import folder
from rewriter.locate.types import Located
from rewriter.locate.vocabulary import vocabulary

FOLDER = folder() / "cpp"
FILES = sorted(FOLDER.glob("*.toml"))
SHAPES = [file for file in FILES if file.stem != "known_calls"]
QUERIES = sorted(FOLDER.glob("*.scm"))

ENTRY = """\
#include <torch/csrc/inductor/aoti_include/cpu.h>
namespace torch::aot_inductor {
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 2);
    auto arg0_1 = std::move(inputs[0]);
    auto buf0 = std::move(inputs[1]);
    %s
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""


def located(statement: str) -> Located:
    """The locator's answer for a wrapper whose entry runs `statement` alone."""
    return locate(Source("wrapper.cpp", (ENTRY % statement).encode()))


def kinds(statement: str) -> list[str]:
    return [launch.kind for launch in located(statement).launches]


def _examples(which: str) -> list[Any]:
    found = []
    for file in SHAPES:
        declared = tomllib.loads(file.read_text())
        of = {declared["kind"], *(row["kind"] for row in declared.get("kinds", []))}
        for example in declared["examples"][which]:
            found.append(pytest.param(of, example, id=f"{file.stem}: {example[:50]}"))
    return found


@pytest.mark.parametrize(("of", "statement"), _examples("invalid"))
def test_invalid_examples_are_not_of_that_kind(of: set[str], statement: str) -> None:
    assert not of & set(kinds(statement))


@pytest.mark.parametrize(("of", "statement"), _examples("valid"))
def test_valid_examples(of: set[str], statement: str) -> None:
    found = located(statement)
    assert len(found.launches) == 1
    assert found.launches[0].kind in of
    # Nothing else is in it that would have to be told of.
    assert {call.text for call in found.unrecognised} <= {statement.rstrip(";")}
    assert found.unrecognised == ()


@pytest.mark.parametrize("device", vocabulary().devices)
def test_operators_of_the_c_shim_are_launches_on_every_device(device: str) -> None:
    def launch(on: str, call: str) -> tuple[str, list[str]]:
        (found,) = located(f"aoti_torch_{on}_{call};").launches
        return found.kind, [argument.role for argument in found.args]

    for call in ("topk(buf0, 3L, -1L, 1, 1, &buf1_handle)", "addmm_out(buf0, arg0_1, arg0_1)",
                 "bernoulli__float(buf0, 0.5, NULL)", "convolution(buf0, arg0_1, &h)"):  # fmt: skip
        assert launch(device, call) == launch("cpu", call)


def test_every_shape_has_examples() -> None:
    for shape in grammar.load().shapes:
        assert shape.valid, shape.kind
        assert shape.invalid, shape.kind


def test_every_file_is_loaded() -> None:
    assert len(grammar.load().shapes) == len(SHAPES)
    assert {file.stem for file in QUERIES} == {"calls", "data_flow", "scopes"}


def test_shapes_are_tried_in_order() -> None:
    loaded = grammar.load()
    orders = [shape.order for shape in loaded.shapes]
    assert orders == sorted(orders)
    assert [shape.order for shape in loaded.owners] == sorted(s.order for s in loaded.owners)
    # The patterns of the one query are those of the shapes, in their order.
    patterns = [grammar.query(shape.query).pattern_count for shape in loaded.shapes]
    owners = [
        shape for shape, count in zip(loaded.shapes, patterns, strict=True) for _ in range(count)
    ]
    assert loaded.owners == owners


@pytest.mark.parametrize("file", SHAPES, ids=lambda file: file.stem)
def test_every_pattern_of_a_shape_has_an_example(file: Path) -> None:
    declared = tomllib.loads(file.read_text())
    query = grammar.query(declared["query"])
    met = set()
    for example in declared["examples"]["valid"]:
        tree = tree_sitter.Parser(grammar.LANGUAGE).parse((ENTRY % example).encode())
        met |= {pattern for pattern, _ in tree_sitter.QueryCursor(query).matches(tree.root_node)}
    assert met == set(range(query.pattern_count))


# --- Calls that are no launches -----------------------------------------------------------------

GROUPS: dict[str, list[str]] = tomllib.loads((FOLDER / "known_calls.toml").read_text())
ENTRIES = [
    pytest.param(group, entry, id=f"{group}: {entry}")
    for group, entries in GROUPS.items()
    for entry in entries
]


def sample(pattern: str) -> str:
    """A callee that a pattern is for."""
    return pattern.replace("**", "x").replace("*", "x")


@pytest.mark.parametrize(("group", "entry"), ENTRIES)
def test_an_entry_of_a_group_can_be_reached(group: str, entry: str) -> None:
    """The first group that a callee is in counts: one in two groups is in the first alone."""
    assert grammar.load().effect(sample(entry)) == group


def test_no_entry_stands_there_twice() -> None:
    entries = [entry for group in GROUPS.values() for entry in group]
    assert len(entries) == len(set(entries))


def test_no_launch_is_hidden_by_a_group() -> None:
    """Groups are tried before the shapes."""
    for callee in (
        "cpp_fused_relu_0", "call_triton_poi_fused_0", "launchKernel", "kernels.cuda_fused_0",
        "aoti_torch_cpu_addmm_out", "aoti_torch_cpu_topk", "aoti_torch_cpu_clone",
        "aoti_torch_cpu_view_as_real", "aoti_torch_cuda_zeros", "aoti_torch_cpu_item",
        "aoti_torch_index_put_out", "aoti_torch_proxy_executor_call_function",
        "aoti_torch_call_dispatcher", "op.callBoxed", "PyObject_CallObject",
        "aoti_torch_cpu__c10d_functional_wait_tensor", "aoti_torch_cpu_get_x",
    ):  # fmt: skip
        assert grammar.load().effect(callee) is None


# --- A folder of declarations -------------------------------------------------------------------


@pytest.fixture
def declarations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the declarations for C++, which `load` reads from now on."""
    folder = tmp_path / "cpp"
    folder.mkdir()
    for file in (*FILES, *QUERIES):
        (folder / file.name).write_bytes(file.read_bytes())
    for module in (common, grammar):
        monkeypatch.setattr(module, "folder", lambda: tmp_path)
    grammar.load.cache_clear()
    yield folder
    grammar.load.cache_clear()


QUERY = '(call_expression function: (identifier) @callee (#match? @callee "^corp_")) @launch'
GOOD = f"""
kind = "custom_op"
order = 5
roles = "shim"
query = '''{QUERY}'''

[examples]
valid = ["corp_fast(buf0);"]
invalid = ["other_fast(buf0);"]
"""

# What is wrong, and what the message must name.
WRONG = {
    "no TOML": ("kind = ", "TOMLDecodeError"),
    "empty": ("", "missing"),
    "kind missing": (GOOD.replace('kind = "custom_op"', ""), "kind"),
    "order missing": (GOOD.replace("order = 5", ""), "order"),
    "roles missing": (GOOD.replace('roles = "shim"', ""), "roles"),
    "query missing": (GOOD.replace("query =", "pattern ="), "query"),
    "examples missing": (GOOD.partition("[examples]")[0], "examples"),
    "valid missing": (GOOD.replace("valid = [", "good = [", 1), "valid"),
    "invalid missing": (GOOD.replace("invalid = [", "bad = [", 1), "invalid"),
    "unknown key": ("colour = 1\n" + GOOD, "colour"),
    "Python's key": ("match = [{ callee = 'x' }]\n" + GOOD, "match"),
    "unknown roles": (GOOD.replace('"shim"', '"guess"'), "guess"),
    "unknown kind": (GOOD.replace('"custom_op"', '"corp"'), "corp"),
    "unknown kind by name": (
        GOOD.replace("roles", 'kinds = [{ kernel = "a*", kind = "corp" }]\nroles'),
        "corp",
    ),
    "unknown kind by source": (
        GOOD.replace("roles", 'sources = [{ text = "a", kind = "corp" }]\nroles'),
        "corp",
    ),
    "a row without its kernel": (
        GOOD.replace("roles", 'kinds = [{ callee = "a*", kind = "custom_op" }]\nroles'),
        "kernel",
    ),
    "kinds is no list": (GOOD.replace("roles", 'kinds = "custom_op"\nroles'), "Error"),
    "order is no number": (GOOD.replace("order = 5", 'order = "first"'), "order"),
    "unbalanced query": (GOOD.replace("@launch", "@launch)"), "QueryError"),
    "unknown node": (GOOD.replace("call_expression", "call_expresion"), "call_expresion"),
    "unknown field": (GOOD.replace("function:", "funktion:"), "funktion"),
    "unknown placeholder": (GOOD.replace('"^', '"^{device}'), "{device}"),
    "unknown predicate": (GOOD.replace("#match?", "#matches?"), "#matches?"),
    "a predicate of another tool": (GOOD.replace("#match?", "#has-ancestor?"), "#has-ancestor?"),
    "an order that crashes": (
        GOOD.replace(' "^corp_")', ' "^corp_") (#set! effect "free")'),
        "#set! has to stand before",
    ),
    "a predicate that does not work": (GOOD.replace("#match?", "#not-any-of?"), "#not-any-of?"),
    "a bad expression": (GOOD.replace("^corp_", "^corp_("), "expression"),
    "no @launch": (GOOD.replace("@launch", "@call"), "@launch"),
    "no @callee": (GOOD.replace("@callee", "@name"), "@callee"),
    "empty query": (GOOD.replace(QUERY, ""), "@callee, @launch"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_named(case: str, declarations: Path) -> None:
    text, named = WRONG[case]
    assert text != GOOD
    file = declarations / "corp.toml"
    file.write_text(text)
    with pytest.raises(RewriterError) as caught:
        grammar.load()
    assert caught.value.slug == "grammar-invalid"
    assert caught.value.code == FAILED
    assert str(file) in caught.value.message
    assert named in caught.value.message
    assert "extending.md" in caught.value.hint


def test_not_utf_8(declarations: Path) -> None:
    (declarations / "corp.toml").write_bytes(b'kind = "\xff"')
    with pytest.raises(RewriterError, match=r"corp\.toml"):
        grammar.load()


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
    file = declarations / f"{query[0]}.scm"
    file.write_text(query[1])
    with pytest.raises(RewriterError) as caught:
        grammar.load()
    assert caught.value.slug == "grammar-invalid"
    assert caught.value.code == FAILED
    assert str(file) in caught.value.message
    assert named in caught.value.message


@pytest.mark.parametrize("name", [file.name for file in QUERIES])
def test_a_missing_query_file_is_named(name: str, declarations: Path) -> None:
    (declarations / name).unlink()
    with pytest.raises(RewriterError) as caught:
        grammar.load()
    assert name in caught.value.message
    assert caught.value.code == FAILED


KNOWN_CALLS = (FOLDER / "known_calls.toml").read_text()
WRONG_GROUPS = {
    "group missing": (re.sub(r"(?ms)^device = \[.*?^\]", "", KNOWN_CALLS), "device"),
    "unknown group": (KNOWN_CALLS + "\nother = []", "other"),
    "Python's group": (KNOWN_CALLS + "\nfunctions = []", "functions"),
    "group is a number": (re.sub(r"(?m)^copy = \[.*\]", "copy = 3", KNOWN_CALLS), "TypeError"),
    "group is empty": (re.sub(r"(?m)^copy = \[.*\]", "copy = []", KNOWN_CALLS), "copy"),
}


@pytest.mark.parametrize("case", WRONG_GROUPS)
def test_a_wrong_list_of_non_launches_is_named(case: str, declarations: Path) -> None:
    text, named = WRONG_GROUPS[case]
    assert text != KNOWN_CALLS
    (declarations / "known_calls.toml").write_text(text)
    with pytest.raises(RewriterError) as caught:
        grammar.load()
    assert "known_calls.toml" in caught.value.message
    assert named in caught.value.message


@pytest.mark.parametrize("keep", ["known_calls.toml", "cpp.toml", ""])
def test_an_incomplete_folder_is_an_incomplete_installation(keep: str, declarations: Path) -> None:
    for file in declarations.glob("*.toml"):
        if file.name != keep:
            file.unlink()
    with pytest.raises(RewriterError) as caught:
        grammar.load()
    assert caught.value.slug == "grammar-missing"
    assert caught.value.code == FAILED
    assert "known_calls.toml" in caught.value.message
    assert "einstall" in caught.value.hint


def test_a_new_file_is_a_new_shape(declarations: Path) -> None:
    statement = "corp_fast(buf0);"
    assert kinds(statement) == []
    assert [call.text for call in located(statement).unrecognised] == ["corp_fast(buf0)"]
    (declarations / "corp.toml").write_text(GOOD)
    grammar.load.cache_clear()
    assert kinds(statement) == ["custom_op"]
    assert located(statement).unrecognised == ()
    # The others stand as they were.
    assert kinds("aoti_torch_cpu_mm_out(buf0, arg0_1, arg0_1);") == ["extern_out"]


def test_a_lower_order_comes_first(declarations: Path) -> None:
    statement = "aoti_torch_cpu_mm_out(buf0, arg0_1, arg0_1);"
    for order, expected in ((5, "custom_op"), (95, "extern_out")):
        text = GOOD.replace("order = 5", f"order = {order}").replace("^corp_", "_out$")
        (declarations / "corp.toml").write_text(text)
        grammar.load.cache_clear()
        assert kinds(statement) == [expected]


def test_a_group_comes_before_the_shapes(declarations: Path) -> None:
    (declarations / "corp.toml").write_text(GOOD)
    text = KNOWN_CALLS.replace('"printf",', '"printf", "corp_*",')
    assert text != KNOWN_CALLS
    (declarations / "known_calls.toml").write_text(text)
    grammar.load.cache_clear()
    assert kinds("corp_fast(buf0);") == []
    assert located("corp_fast(buf0);").unrecognised == ()


def test_kinds_by_source_and_by_name(declarations: Path) -> None:
    (shape,) = [s for s in grammar.load().shapes if s.kind == "triton"]
    assert shape.kind_of("triton_poi_fused_0", "") == "triton"
    assert shape.kind_of("triton_poi_fused_0", "'combo_grid_meta': {}") == "combo"
    assert shape.kind_of("triton_tem_fused_mm_0", "") == "triton_template"
    assert shape.kind_of("triton_tem_fused_mm_0", "custom_kernel=True") == "triton_user"
    assert shape.kind_of("multi_kernel_0", "def triton_red_fused_0(): pass") == "multi_kernel"
    assert shape.kind_of("add_k_0", "") == "triton_user"


@pytest.mark.properties
@pytest.mark.parametrize("times", [10, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_queries_may_be_freed(times: int) -> None:
    """py-tree-sitter 0.26.1 corrupts memory for some, and dies a while later."""
    code = (
        "import ast, gc\nfrom pathlib import Path\nfrom rewriter.locate.cpp import grammar\n"
        "text = Path(grammar.__file__).read_text()\n"
        f"for _ in range({times}):\n    grammar.load()\n    grammar.load.cache_clear()\n"
        "    gc.collect()\n    ast.parse(text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_predicate_that_is_let_through_is_one_that_works() -> None:
    """tree-sitter takes one that it does not know for one that holds."""
    tree = tree_sitter.Parser(grammar.LANGUAGE).parse(b"void f() { corp_fast(buf0); }")
    never = {
        "eq?": '"x"', "not-eq?": '"corp_fast"', "match?": '"^x"', "not-match?": '"^corp"',
        "any-of?": '"x" "y"',
    }  # fmt: skip
    for predicate, argument in never.items():
        query = grammar.query(
            f"(call_expression function: (identifier) @callee (#{predicate} @callee {argument}))"
        )
        assert tree_sitter.QueryCursor(query).matches(tree.root_node) == [], predicate


def test_an_interrupt_while_a_query_is_compiled_is_no_mistake_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = sys.modules["re._compiler" if sys.version_info >= (3, 11) else "sre_compile"]
    compile_ = compiler.compile

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return compile_(*args)

    monkeypatch.setattr(compiler, "compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grammar.query('((identifier) @name (#match? @name "^of_this_test_alone$"))')
