"""The fingerprint of a tensor's elements, and the probe that prints and records it."""

from __future__ import annotations

import hashlib
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from capture import Compiled
from cpp_driver import DTYPES, options_of, row_of, shapes_of, tensor_of
from fingerprints import fingerprint as expected
from harness import call
from measurements import measure
from rewriter.cli import main
from rewriter.runtime import attach
from rewriter.runtime.host.measured import digest as sha256_of
from rewriter.runtime.tensors import fingerprint as digest
from test_cpp_compiled import dumped

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]

by_dtype = pytest.mark.parametrize(
    "dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch.")
)


def expected_sha256(tensor: torch.Tensor) -> str:
    """What `run` says of outputs, by NumPy."""
    resolved = tensor.resolve_conj().resolve_neg().cpu()
    flat = resolved.clone(memory_format=torch.contiguous_format).reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


# --- The fingerprint ----------------------------------------------------------------------------

SOME = torch.tensor([[1.0, -2.0, 0.0], [math.nan, 5.0, 6.0]])


def test_an_empty_tensor_has_the_digest_of_nothing() -> None:
    for tensor in (torch.zeros(0), torch.zeros(3, 0, 2), torch.zeros(0, dtype=torch.complex64)):
        assert digest(tensor) == expected(torch.zeros(0))


@by_dtype
def test_strides_do_not_matter(dtype: torch.dtype) -> None:
    for tensor in shapes_of(tensor_of(dtype, 6000)):
        assert digest(tensor) == expected(tensor)
        assert sha256_of(tensor) == expected_sha256(tensor)


def test_marks_of_conjugate_and_negative_are_resolved() -> None:
    whole = torch.view_as_complex(torch.arange(12.0).view(2, 3, 2))
    for tensor in (whole.conj(), whole.conj().imag, whole.t().conj(), whole.conj().imag[:1, :1]):
        assert tensor.is_conj() or tensor.is_neg()
        assert digest(tensor) == expected(tensor)
        assert sha256_of(tensor) == expected_sha256(tensor)


def test_a_tensor_without_strides_has_the_sum_of_the_dense_one() -> None:
    """And no fingerprint: `run` reads outputs by torch's operators."""
    dense = torch.eye(3)
    for tensor in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_mkldnn()):
        assert digest(tensor) == ""
        assert sha256_of(tensor) == expected_sha256(dense)


def test_nothing_to_read_has_no_digest() -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for tensor in (freed, nested, torch.empty(2, device="meta")):
        assert digest(tensor) == sha256_of(tensor) == ""


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_a_quantized_tensor_has_the_fingerprint_of_its_integers(dtype: torch.dtype) -> None:
    """`run` says nothing of such an output."""
    quantized = torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.1, 0, dtype)
    for tensor in (quantized, quantized.t(), quantized[:, 1:]):
        assert measure([tensor]) == [{"fingerprint": expected(tensor.int_repr())}]
        assert sha256_of(tensor) == ""


def test_the_tensor_and_the_program_stay_as_they_are() -> None:
    tensor = torch.randn(4, 5, requires_grad=True)
    state = torch.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert digest(tensor.t()) == expected(tensor.detach().t())
    assert tensor._version == 0
    assert tensor.grad_fn is None
    assert torch.equal(torch.get_rng_state(), state)


# --- The probe ----------------------------------------------------------------------------------


def instrumented(compiled: Compiled, probes: str, folder: Path, **options: Any) -> bytes:
    path = folder / "output_code.py"
    path.write_text(compiled.graphs[0].source)
    result = rewriter.instrument(path, rewriter.select(probes, **options))
    assert not result.plan.skipped
    return result.source


@pytest.mark.parametrize("model", ["mlp", "complex_numbers", "dtypes", "empty"])
def test_digests_are_those_of_the_files_saved_beside_them(
    model: str,
    compiled: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    source = instrumented(compiled(model), "hash,save", tmp_path)
    call(source, compiled(model).graphs[0].args, tmp_path)
    rows = [row for row in dumped(tmp_path / "dump") if "dtype" in row]
    assert {row["phase"] for row in rows} >= {"inputs", "after"}
    for row in rows:
        assert row["fingerprint"] == expected(torch.load(row["path"], weights_only=True))
        assert list(row).index("inf") < list(row).index("fingerprint") < list(row).index("file")


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The recorder of a wrapper with one launch, without a dump unless one is named."""
    monkeypatch.delenv("REWRITER_DUMP", raising=False)

    def make(*names: str, **changes: Any) -> Any:
        recorder = attach(options_of(*names, **changes), [row_of()], ["x"])
        recorder.begin()
        return recorder

    return make


def test_a_line_for_each_tensor(
    attached: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = attached("hash")
    meta = torch.empty(2, device="meta")
    for act, value in (("inputs", SOME), ("before", meta), ("after", 5), ("after", SOME)):
        getattr(recorder, act)(*([value] if act == "inputs" else [12, value]))
    start = "[rewriter 0] #12 "
    assert capsys.readouterr().out.splitlines() == [
        f"[rewriter 0] inputs  in x  f32[2, 3]  cpu  fingerprint={expected(SOME)}",
        f"{start}before triton_poi_fused_0  in x0  f32[2]  meta  not hashed",
        # The second run of the launch; the first wrote no tensor.
        f"[rewriter 0] #12.1 after  triton_poi_fused_0  out buf1  f32[2, 3]  cpu  "
        f"fingerprint={expected(SOME)}",
    ]
    assert not list(tmp_path.iterdir())


def test_beside_print_it_is_at_the_end_of_the_line(
    attached: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for names in (("print",), ("hash", "print")):
        attached(*names, values=True).after(12, SOME)
        printed.append(capsys.readouterr().out.splitlines())
    line, values = printed[0]
    assert printed[1] == [f"{line}  fingerprint={expected(SOME)}", values]


def test_in_upstream_s_format_it_is_a_line_of_the_block(
    attached: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    attached("hash", format="upstream").after(12, SOME)
    title = "inductor: after_launch - triton_poi_fused_0 - buf1\n"
    assert capsys.readouterr().out == f"{title}Fingerprint:  {expected(SOME)}\n"
    attached("hash", "print", format="upstream").after(12, SOME)
    out = capsys.readouterr().out
    assert out.startswith(f"{title}[1.0, ")
    assert out.endswith(f"\nFingerprint:  {expected(SOME)}\n")


@pytest.mark.usefixtures("warm_python")
def test_run_records_statistics_and_prints_lines(
    mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrapper = shutil.copy(mlp_wrapper, tmp_path)
    dump = tmp_path / "D"
    options = ["--args", str(mlp_wrapper.parent / "inputs.pt"), "-d", str(dump)]
    assert main(["run", str(wrapper), "--probe", "hash", *options]) == 0
    out = capfd.readouterr().out
    rows = [row for row in dumped(dump) if "dtype" in row]
    assert all(set(row) >= {"fingerprint", "numel", "nan"} and "file" not in row for row in rows)
    printed = re.findall(r"\[rewriter 0\] .*  fingerprint=([0-9a-f]{32})$", out, re.MULTILINE)
    # What a launch only reads is printed before it, and not again.
    shown = [row for row in rows if (row["phase"], row["role"]) != ("after", "in")]
    assert printed == [row["fingerprint"] for row in shown]
