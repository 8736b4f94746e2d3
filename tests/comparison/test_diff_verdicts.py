"""`rewriter diff` calls nothing a matter of names, or of writing, that computes something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rewriter
from artifacts import get
from rewriter.comparison.artifacts.types import WrapperDifference

LAYER = "cpu-torch2.13/transformer"
AOTI = "cpu-torch2.13/mlp aoti"
CUDA = "cuda-torch2.11/mlp"
CUDA_AOTI = f"{CUDA} aoti"
# Two kernels whose names differ in their numbers alone.
GELU, ADD = "cpp_fused_gelu_view_2", "cpp_fused_gelu_view_3"


def compare(a: str, b: str, folder: Path, suffix: str = ".py") -> WrapperDifference:
    paths = []
    for side, text in (("a", a), ("b", b)):
        paths.append(folder / f"{side}{suffix}")
        paths[-1].write_text(text)
    found = rewriter.diff(*paths)
    assert found.verdict == "different"
    return found.wrappers[0]


@pytest.fixture
def text() -> str:
    return get(LAYER).data.decode().replace("cpp_fused_add_view_3", ADD)


def test_another_kernel_of_a_like_name_is_not_renamed(text: str, tmp_path: Path) -> None:
    changed = text.replace(f" {ADD}(buf18, primals_1, buf9)", f" {GELU}(buf18, primals_1, buf9)")
    wrapper = compare(text, changed, tmp_path)
    (change,) = wrapper.launches
    assert (change.changes, change.details) == (("kernel",), (f"kernel {ADD} -> {GELU}",))
    assert (wrapper.renamed, wrapper.kernels, wrapper.names) == ((), (), ())


def test_two_kernels_do_not_become_one(text: str, tmp_path: Path) -> None:
    """Of equal sources, too: a renaming has one name for each."""
    start = text.index(f"{GELU} = async_compile")
    end = text.index("''')", start) + len("''')\n")
    twice = text[:end] + text[start:end].replace(GELU, "cpp_fused_gelu_view_9") + text[end:]
    twice += "\n"
    call = f"        {GELU}(buf15, buf16)\n"
    assert call in twice
    twice = twice.replace(call, call + call.replace(GELU, "cpp_fused_gelu_view_9"))
    changed = twice.replace("cpp_fused_gelu_view_9(buf15", f"{GELU}(buf15")
    (change,) = compare(twice, changed, tmp_path).launches
    assert change.changes == ("kernel",)


def test_a_kernel_without_a_known_source_is_not_renamed(tmp_path: Path) -> None:
    data = get(AOTI).data.decode()
    renumbered = re.sub(r"(cpp_fused_\w+_)(?=\d)", r"\g<1>1", data)
    wrapper = compare(data, renumbered, tmp_path, ".cpp")
    assert wrapper.renamed == ()
    assert {change.changes for change in wrapper.launches} == {("kernel",)}, wrapper.launches


def test_exchanged_sources_are_said_of_each_kernel(text: str, tmp_path: Path) -> None:
    definition = " = async_compile"
    changed = text.replace(GELU + definition, "@").replace(ADD + definition, GELU + definition)
    wrapper = compare(text, changed.replace("@", ADD + definition), tmp_path)
    assert sorted((kernel.a, kernel.b) for kernel in wrapper.kernels) == [(GELU, GELU), (ADD, ADD)]
    assert wrapper.renamed == ()


def test_a_result_into_another_buffer(text: str, tmp_path: Path) -> None:
    old = "buf9, primals_8, primals_9, buf14)"
    assert text.count(old) == 1
    wrapper = compare(text, text.replace(old, old.replace("buf14", "buf11")), tmp_path)
    change = wrapper.launches[0]
    assert (change.changes, change.details) == (("arguments",), ("argument 7: buf14 -> buf11",))
    assert wrapper.names == ()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(LAYER, "_0(buf1, buf3,", "_0(buf3, buf1,", id="Python"),
        pytest.param(AOTI, "&buf8_handle, &buf9_handle", "&buf9_handle, &buf8_handle", id="C++"),
        pytest.param(AOTI, "buf8(buf8_handle)", "buf8(buf9_handle)", id="taken over"),
        pytest.param(CUDA, "512, stream=stream0", "512, stream=stream1", id="stream"),
        pytest.param(
            CUDA_AOTI, "device_idx_, stream, k", "device_idx_, stream7, k", id="stream in C++"
        ),
    ],
)
def test_exchanged_variables_are_arguments(name: str, old: str, new: str, tmp_path: Path) -> None:
    fixture = get(name)
    data = fixture.data.decode()
    assert old in data
    wrapper = compare(data, data.replace(old, new, 1), tmp_path, fixture.path.suffix)
    assert wrapper.launches
    assert {change.changes for change in wrapper.launches} == {("arguments",)}
    assert wrapper.names == ()


def test_exchanged_inputs_are_told_by_their_positions(tmp_path: Path) -> None:
    data = get(CUDA).data.decode()
    start = data.index("        arg")
    line = data[start : data.index("\n", start)]
    names = [name.strip() for name in line.split("=")[0].split(",")]
    swapped = line.replace(names[0], "@").replace(names[5], names[0]).replace("@", names[5])
    wrapper = compare(data, data.replace(line, swapped), tmp_path)
    details = [detail for change in wrapper.launches for detail in change.details]
    assert "input 0 -> input 5" in " ".join(details)
