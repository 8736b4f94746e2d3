"""The declarations under `grammars/cpp`: each pattern and each known call can be reached."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib
import tree_sitter

import statements
from rewriter.locate.cpp import grammar
from rewriter.locate.declarations import folder
from rewriter.locate.vocabulary import vocabulary

FOLDER = folder() / "cpp"
FILES = sorted(FOLDER.glob("*.toml"))
SHAPES = [file for file in FILES if file.stem != "known_calls"]
QUERIES = sorted(FOLDER.glob("*.scm"))


@pytest.mark.parametrize("device", vocabulary().devices)
def test_operators_of_the_c_shim_are_launches_on_every_device(device: str) -> None:
    def launch(on: str, call: str) -> tuple[str, list[str]]:
        (found,) = statements.cpp(f"aoti_torch_{on}_{call};").launches
        return found.kind, [argument.role for argument in found.args]

    for call in ("topk(buf0, 3L, -1L, 1, 1, &buf1_handle)", "addmm_out(buf0, arg0_1, arg0_1)",
                 "bernoulli__float(buf0, 0.5, NULL)", "convolution(buf0, arg0_1, &h)"):  # fmt: skip
        assert launch(device, call) == launch("cpu", call)


def test_every_file_is_loaded() -> None:
    assert len(grammar.load().shapes) == len(SHAPES)
    assert {file.stem for file in QUERIES} == {"calls", "data_flow", "scopes"}


def test_shapes_are_tried_in_order() -> None:
    """The patterns of the one query are those of the shapes, in their order."""
    loaded = grammar.load()
    orders = [shape.order for shape in loaded.shapes]
    assert orders == sorted(orders)
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
        tree = tree_sitter.Parser(grammar.LANGUAGE).parse((statements.ENTRY % example).encode())
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


def test_kinds_by_source_and_by_name() -> None:
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
