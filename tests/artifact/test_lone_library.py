"""What the symbols of a library without its source tell."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from artifacts import ARTIFACTS
from rewriter.artifact.lone_library import ShimCall, open_library
from rewriter.artifact.recognise import is_library
from rewriter.cli import main
from rewriter.core.errors import RewriterError
from rewriter.locate.cpp.shim_calls import kind_of

PACKAGE = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a package which was compiled for CUDA."""
    path = tmp_path_factory.mktemp("library") / "model.so"
    with zipfile.ZipFile(PACKAGE) as package:
        name = next(one for one in package.namelist() if one.endswith(".so"))
        path.write_bytes(package.read(name))
    return path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aoti_torch_get_data_ptr", ""),
        ("aoti_torch_empty_strided", ""),
        ("aoti_torch_cpu_view_dtype", ""),
        ("aoti_torch_device_type_cpu", ""),
        ("malloc", ""),
        ("aoti_torch_cpu_addmm_out", "extern_out"),
        ("aoti_torch_cpu_scatter_reduce_two_out", "fallback"),
        ("aoti_torch_cuda_convolution", "extern_alloc"),
        ("aoti_torch_cpu__c10d_functional_all_reduce_", "collective"),
        ("aoti_torch_cpu_topk", "fallback"),
        ("aoti_torch_proxy_executor_call_function", "custom_op"),
    ],
)
def test_what_launches(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_library_for_cuda(library: Path) -> None:
    read = open_library(library)
    assert (read.device, read.models, read.constants) == ("cuda", ("AOTInductorModel",), 12736)
    assert read.gpu_kernels == (
        "triton_per_fused__softmax_exp_native_layer_norm_prepare_softmax_online_sub_1",
        "triton_poi_fused_addmm_gelu_0",
    )
    assert read.calls == (
        ShimCall("aoti_torch_cuda_addmm_out", "extern_out"),
        ShimCall("aoti_torch_cuda_mm_out", "extern_out"),
        ShimCall("aoti_torch_cuda_topk", "fallback"),
    )
    assert "aoti_torch_empty_strided" in read.others
    assert "AOTInductorModelContainerRun" in read.entries
    assert not read.is_stripped


def test_list_is_text_and_json(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(library)]) == 0
    out = capsys.readouterr().out
    assert "AOTInductor for cuda" in out
    assert "aoti_torch_cuda_mm_out" in out
    assert main(["list", str(library), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["format"], listed["device"]) == ("rewriter.library", "cuda")
    assert len(listed["gpu_kernels"]) == 2


@pytest.mark.parametrize("command", ["instrument", "strip", "doctor", "run"])
def test_what_needs_a_source_says_so(
    command: str, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = library.read_bytes()
    assert main([command, str(library)]) == 2
    err = capsys.readouterr().err
    assert "unsupported-artifact" in err
    assert "`rewriter list` shows the symbols" in " ".join(err.split())
    assert library.read_bytes() == before
    assert list(library.parent.iterdir()) == [library]


def test_another_shared_object_is_refused(tmp_path: Path, library: Path) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(library.read_bytes().replace(b"AOTInductorModelContainerRun\0", b"x" * 29))
    assert is_library(path)
    with pytest.raises(RewriterError, match="no library of AOTInductor"):
        open_library(path)


@pytest.mark.parametrize("end", [20, 64, 400, 5000, 60_000])
def test_a_cut_library_is_refused(end: int, tmp_path: Path, library: Path) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(library.read_bytes()[:end])
    with pytest.raises(RewriterError) as caught:
        open_library(path)
    assert caught.value.slug == "bad-library"
