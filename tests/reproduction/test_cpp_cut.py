"""Launches of C++ wrappers as Python, from the text alone: nothing is compiled or run."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.locate.types import Launch
from rewriter.reproduction import schemas
from rewriter.reproduction.cpp_text import CppNames, UnreadError, elements, split, unwrapped
from rewriter.reproduction.reproduce import cut_out
from rewriter.reproduction.types import Recorded, Tensor

ARTIFACTS = Path(__file__).parents[2] / "fixtures/artifacts/cpu-torch2.13"
CUDA = ARTIFACTS.with_name("cuda-torch2.11")
SIZES = {"s77": "4", "s40": "4", "s27": "8", "u0": "3", "u1": "3", "u3": "3", "zuf0": "0.5"}


def recorded(wrapper: Wrapper, launch: Launch, *, carried: bool = False) -> Recorded:
    """As if the launch had been recorded; `carried` as if only what it views had been."""
    tensors = [x for x in launch.args if x.type == "tensor"]
    given = {
        x.name: Tensor(
            x.name, x.role, "float32", (4, 8), (8, 1), "cpu", Path("x.pt"), carried=carried
        )
        for x in tensors
        if x.role != "out" or "&" not in x.expr
    }
    written = {x.name: given[x.name] for x in tensors if x.role != "in"}
    sources = {x.name: x.read_bytes() for x in wrapper.path.parent.glob("kernel*.cpp")}
    run = cast(Any, SimpleNamespace(path=Path("x.dump/rank0/run0")))
    return Recorded(run, wrapper, launch, cast(Any, None), given, written, SIZES, sources=sources)


def opened(name: str) -> Wrapper:
    return open_artifact(ARTIFACTS / name).only


def launched(path: Path, kernel: str, **options: Any) -> Recorded:
    """The launch of a kernel with this in its name, as if it had been recorded."""
    wrapper = open_artifact(path).only
    launch = next(x for x in wrapper.located.launches if kernel in x.kernel)
    return recorded(wrapper, launch, **options)


@pytest.mark.parametrize(
    ("artifact", "kernel", "statement"),
    [
        ("mlp/aoti/wrapper.cpp", "topk", "torch.ops.aten.topk.default(given_0, 3, -1, True, True)"),
        (
            "conv/cpp_wrapper/output_code.py",
            "convolution",
            "torch.ops.aten.convolution.default(given_0, given_1, given_2, [1, 1], [1, 1], [1, 1], "
            "False, [0, 0], 1)",
        ),
        (
            "conv_train/cpp_wrapper/output_code1.py",
            "convolution_backward",
            "torch.ops.aten.convolution_backward.default(given_0, given_1, given_2, [4], [1, 1], "
            "[0, 0], [1, 1], False, [0, 0], 1, [False, True, True])",
        ),
        (
            "scatter/aoti/wrapper.cpp",
            "scatter_reduce_two_out",
            "torch.ops.aten.scatter_reduce.two_out(given_0, 0, given_1, given_2, 'sum', "
            "include_self=True, out=given_0)",
        ),
        (
            "frozen/aoti/wrapper.cpp",
            "mkldnn__convolution_pointwise",
            "torch.ops.mkldnn._convolution_pointwise.default(",
        ),
        (
            "complex_numbers/aoti/wrapper.cpp",
            "fft_r2c",
            "torch.ops.aten._fft_r2c.default(given_0, [1], 0, False)",
        ),
        (
            "decompositions/aoti/wrapper.cpp",
            "_embedding_bag_forward_only",
            "(given_0, given_1, given_2, False, 0, False, None, False, -1)",
        ),
        (
            "decompositions/aoti/wrapper.cpp",
            "_linalg_svd",
            "torch.ops.aten._linalg_svd.default(given_0, True, True)",
        ),
        ("random/aoti/wrapper.cpp", "randint_low", "torch.ops.aten.randint.low("),
        (
            "mixed_arguments/aoti/wrapper.cpp",
            "mixed",
            "called(torch.ops.rewriter_demo.mixed.default, given_0, None, [given_1, given_2], "
            "[2, 8], True, 'first')",
        ),
        (
            "mixed_arguments/cpp_wrapper/output_code.py",
            "mixed",
            "called(torch.ops.rewriter_demo.mixed.default, given_0, None, [given_1, given_2], "
            "[2, 8], True, 'first')",
        ),
        (
            "customop/cpp_wrapper/output_code.py",
            "scale",
            "called(torch.ops.rewriter_demo.scale.default, given_0, 2.5, 3)",
        ),
        (
            "customop/cpp_wrapper/output_code.py",
            "split",
            "called(torch.ops.rewriter_demo.split.default, given_0)",
        ),
        ("mlp/aoti/wrapper.cpp", "cpp_fused", "cpp_fused_gelu_0(given_0)"),
    ],
    ids=lambda value: value if "/" in value or value.isidentifier() else "",
)  # fmt: skip
def test_a_launch_calls_the_operator_that_it_is(
    artifact: str, kernel: str, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Custom operators are those of a program: other tests of this process may have registered them.
    of_name = schemas.of_name
    monkeypatch.setattr(
        schemas, "of_name", lambda name: None if "rewriter_demo" in name else of_name(name)
    )
    wrapper = opened(artifact)
    wanted = kernel.startswith("cpp_fused")
    launch = next(
        x for x in wrapper.located.launches if kernel in x.kernel and (x.kind == "cpp") == wanted
    )
    found = cut_out(recorded(wrapper, launch))
    assert statement in found.source
    ast.parse(found.source)


def refused(folder: Path) -> dict[str, str]:
    """Of the launches of all C++ wrappers in a folder, those that are not cut out, and why."""
    found: dict[str, str] = {}
    count = 0
    for path in sorted(folder.glob("*/*/*")):
        if path.name != "wrapper.cpp" and not path.match("cpp_wrapper/*.py"):
            continue
        wrapper = open_artifact(path).only
        for launch in wrapper.located.launches:
            count += 1
            try:
                ast.parse(cut_out(recorded(wrapper, launch)).source)
            except RewriterError as error:
                found[f"{path.relative_to(folder)} {launch.kernel}"] = error.message
    assert count > 150
    return found


@pytest.mark.properties
def test_every_launch_of_the_artifacts_is_cut_out() -> None:
    """Of those compiled by torch 2.13, each stands alone, or says why not."""
    assert refused(ARTIFACTS) == {}


@pytest.mark.properties
def test_every_triton_kernel_that_is_quoted_is_cut_out() -> None:
    found = refused(CUDA)
    assert {name.partition(" ")[2] for name in found} <= {"multi_kernel_0", "multi_kernel_1"}
    assert all("no dump says which of them ran" in why for why in found.values())


def test_a_triton_kernel_is_launched_as_in_python() -> None:
    text = cut_out(launched(CUDA / "mlp/aoti/wrapper.cpp", "triton_")).source
    assert "triton_poi_fused_addmm_gelu_0.run(given_0, given_1, 512, stream=stream)" in text
    assert "async_compile.triton('triton_poi_fused_addmm_gelu_0', " in text
    assert "from torch._C import _cuda_getCurrentRawStream as get_raw_stream" in text


@pytest.mark.parametrize("form", ["cpp_wrapper/output_code.py", "aoti/wrapper.cpp"])
def test_helpers_of_a_triton_kernel_are_not_what_is_launched(form: str) -> None:
    found = launched(CUDA / "scatter" / form, "cumsum")
    text, name = cut_out(found).source, found.launch.kernel
    assert text.index("def _triton_helper_fn_add0(") < text.index(f"def {name}(")
    assert f"async_compile.triton('{name}', " in text


@pytest.mark.parametrize("line", [r"\"\"\"Adds two vectors.\"\"\"", "a = 1 + \\\\\n    2"])
def test_a_source_that_inductor_escaped_is_read(line: str, tmp_path: Path) -> None:
    """A docstring, or a line that goes on, of a kernel that a user wrote."""
    path = tmp_path / "output_code.py"
    text = (CUDA / "usertriton/cpp_wrapper/output_code.py").read_text()
    head = "def add_k(x,y,o,n,s,B: tl.constexpr):\n"
    assert text.count(head) == 1
    path.write_text(text.replace(head, f"{head}    {line}\n"))
    found = launched(path, "add_k_0")
    assert [argument.role for argument in found.launch.args[:3]] == ["in", "in", "out"]
    assert "async_compile.triton('add_k', " in cut_out(found).source


@pytest.mark.parametrize(
    ("name", "kernel", "names"),
    [
        ("mutate/cpp_wrapper/output_code.py", "cpp_fused_add_copy__mul_sum_0", ""),
        (
            "transformer/cpp_wrapper/output_code1.py",
            "cpp_fused_cat_gelu_gelu_backward_sum_transpose_view_3",
            "buf23, buf20, buf21, buf22",
        ),
    ],
)
def test_arguments_that_share_memory_are_named(name: str, kernel: str, names: str) -> None:
    """Not a tensor that is passed twice: it is one in the script, too."""
    sharing = launched(ARTIFACTS / name, kernel).sharing
    assert f"in the script: {names}. If" in sharing if names else sharing == ""


def test_a_compiled_kernel_without_its_source_is_refused() -> None:
    path = CUDA.with_name("cuda-torch2.6") / "mlp/cpp_wrapper/output_code.py"
    with pytest.raises(RewriterError, match="has the compiled kernel"):
        cut_out(launched(path, "triton_"))


def test_a_view_is_made_where_only_its_buffer_was_recorded() -> None:
    text = cut_out(launched(ARTIFACTS / "mlp/aoti/wrapper.cpp", "addmm_out", carried=True)).source
    assert "reinterpret_tensor(given_3, (32, 64,), (1, 32,), 0)" in text
    assert "reinterpret_tensor = torch.ops.inductor._reinterpret_tensor" in text


def test_random_numbers_are_not_held_to_recorded_ones() -> None:
    assert cut_out(launched(ARTIFACTS / "random/aoti/wrapper.cpp", "randperm")).is_random


def test_an_operator_of_a_package_without_its_file_is_refused() -> None:
    wrapper = replace(opened("customop/aoti/wrapper.cpp"), operators=())
    launch = next(x for x in wrapper.located.launches if x.kind == "custom_op")
    with pytest.raises(RewriterError, match="of its package, is not in the dump"):
        cut_out(recorded(wrapper, launch))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x + 1", None),
        ("__import__", None),
        ("f(2L)", None),
        ("1L << 3", None),
        ("s77 / 0L", None),
        ("3L", "3"),
        ("-0.5f", "-0.5"),
        ("1e-05", "1e-05"),
        ("true", "True"),
        ("std::numeric_limits<double>::infinity()", 'float("inf")'),
        ("-std::numeric_limits<float>::infinity()", 'float("-inf")'),
        ("static_cast<int64_t>(8L*s77)", "32"),
        ("c10::div_floor_integer(static_cast<int64_t>(s77 + 1L), static_cast<int64_t>(2L))", "2"),
        ("s99", "7"),
        ("c10::complex<double>{ 1.0, -2.0 }", "complex(1.0, -2.0)"),
    ],
)
def test_numbers(text: str, value: str | None) -> None:
    names = CppNames("    int64_t s99 = arg0_1_size[1];\n", SIZES, lambda *where: (4, 7)[where[2]])
    if value is None:
        with pytest.raises(UnreadError):
            names.number(text)
    else:
        assert names.number(text) == value


def test_lists() -> None:
    assert split('a, f(b, c), std::array<int, 2>{1, 2}.cbegin(), "x, y"') == [
        "a", "f(b, c)", "std::array<int, 2>{1, 2}.cbegin()", '"x, y"',
    ]  # fmt: skip
    assert elements("std::array<int64_t, 2>{1L, s77}.cbegin()") == ["1L", "s77"]
    assert elements("int_array_0") is None
    assert unwrapped("&temporary_reference(buf2.get())") == "buf2"
