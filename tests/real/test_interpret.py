"""Wrappers for a GPU in Triton's interpreter: they compute what their models do.

Skipped where Triton is not installed; a GPU is not needed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import programs
from caches import ROOT
from rewriter.cli import main

GPU = ROOT / "fixtures/artifacts/cuda-torch2.11"
HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
CALL = """
import sys
from collections.abc import Callable
from pathlib import Path
import torch
from rewriter.runtime.host import on_cpu, wrapper
path, values = map(Path, sys.argv[1:])
on_cpu.enter(values.parent)
module = wrapper.load(path)
given = wrapper.own_inputs(module)
before = [x.clone() for x in given]
torch.save((before, module.call(given)), values)
"""


def perceptron(w: Tensor, b: Tensor, x: Tensor, w2: Tensor, b2: Tensor) -> tuple[Tensor, ...]:
    """Two templates of a product."""
    return (F.linear(F.linear(x, w, b).relu(), w2, b2),)


def softmax(x: Tensor) -> tuple[Tensor, ...]:
    """A launch that chooses between two kernels."""
    return (x.softmax(-1).sum(0),)


def updated(v: Tensor, x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """Inputs that are written."""
    return x * 2 + v + x.sum(0), n + 1


def by_the_user(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Kernels of the program's own, one of them with two configurations."""
    total = x * 2.5 + y.relu()
    return ((total + 1) * 3).sum(-1), total


COMPUTED: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "autotune": perceptron,
    "multikernel": softmax,
    "mutate": updated,
    "usertriton": by_the_user,
}


def wrapper_of(name: str) -> Path:
    return GPU / name / "python/output_code.py"


def interpreted(*words: object, code: int = 0) -> programs.Done:
    return programs.rewriter("run", *words, "--interpret", code=code, cwd=ROOT)


@needs_triton
@pytest.mark.parametrize("name", COMPUTED)
def test_it_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    values = tmp_path / "values.pt"
    about = {"PYTHONPATH": ROOT, "TRITON_INTERPRET": 1}
    programs.run(sys.executable, "-c", CALL, wrapper_of(name), values, **about)
    given, found = torch.load(values)
    expected = COMPUTED[name](*given)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)


@needs_triton
@pytest.mark.parametrize("name", ["combo", "flex_training", "partition"])
def test_other_kinds_of_kernels_run(name: str) -> None:
    assert "output 0: " in interpreted(wrapper_of(name)).stdout


@needs_triton
def test_probes_show_what_launches_write(tmp_path: Path) -> None:
    done = interpreted(wrapper_of("mlp"), "--probe", "print", "-d", tmp_path / "dump")
    assert "#1 after  triton_poi_fused_addmm_gelu_0  inout buf1  f32[8, 64]  cpu" in done.stdout


@needs_triton
def test_an_address_outside_of_all_tensors_is_named(tmp_path: Path) -> None:
    text = wrapper_of("mlp").read_text()
    store = "tl.store(in_out_ptr0 + (x2), tmp10, xmask)"
    assert text.count(store) == 1
    wrong = tmp_path / "output_code.py"
    wrong.write_text(text.replace(store, store.replace("(x2)", "(x2 + 8)")))
    done = interpreted(wrong, code=1)
    assert "triton_poi_fused_addmm_gelu_0 writes 4 bytes outside of in_out_ptr0" in done.stderr
    assert "element 512 of 512" in done.stderr


@needs_triton
def test_one_launch_of_it_is_interpreted_alone(tmp_path: Path) -> None:
    dump, folder = tmp_path / "dump", tmp_path / "repro"
    interpreted(wrapper_of("mlp"), "--probe", "save", "-d", dump)
    words = ["repro", dump, "--launch", "1", "-o", folder, "--under", "interpret"]
    done = programs.rewriter(*words, cwd=ROOT)
    assert "interpret: nothing found" in done.stdout


@needs_triton
def test_an_operator_of_gpus_alone_is_named() -> None:
    done = interpreted(wrapper_of("gpt"), code=2)
    assert "error[not-interpreted]" in done.stderr
    assert "_scaled_dot_product_efficient_attention.default for the CPU" in done.stderr


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        pytest.param(
            wrapper_of("mlp"),
            "Triton is not installed",
            marks=pytest.mark.skipif(HAS_TRITON, reason="Triton is installed"),
        ),
        (GPU / "mlp/package/model.pt2", "not-interpreted"),
    ],
    ids=["without Triton", "a package"],
)
def test_what_is_refused(path: Path, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(path), "--interpret"]) == 2
    assert says in capfd.readouterr().err
