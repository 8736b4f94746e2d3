"""On a GPU: recorded CUDA wrappers, and wrappers compiled there, probed and plain.

    pytest -m gpu

The recorded ones need the torch release that wrote them: `doctor` tells which run here.
"""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import rewriter
from capture import compile_case
from harness import call, call_module, events, lend_kernels, load
from models import MODELS
from rewriter.cli import main
from rewriter.runtime.host import wrapper as host

pytestmark = pytest.mark.gpu

RECORDED = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11"
WRAPPERS = sorted(RECORDED.glob("*/python/output_code*.py"))
OPERATORS = "recorded_operators"  # which the recorded wrappers call
PROBES = ["names", "print", "save", "hash", "hash,names,print,save,sync,time"]


@pytest.fixture(scope="module", autouse=True)
def _operators() -> None:
    importlib.import_module(OPERATORS)


@pytest.mark.skipif(
    not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, which runs them"
)
@pytest.mark.parametrize("path", WRAPPERS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_recorded_wrappers_are_bit_equal(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = path.read_bytes()
    plain = load(source, tmp_path)
    probed = _load_probed(path, plain, tmp_path, monkeypatch)
    torch.manual_seed(0)
    args = host.own_inputs(plain)
    _check_bit_equal(plain, probed, args, capsys)
    _check_events(path, events(tmp_path / "dump-print"))


def _load_probed(
    path: Path, plain: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, ModuleType]:
    """The wrapper with each of `PROBES`, on the kernels of the plain one; each has its dump."""
    modules = {}
    for probes in PROBES:
        monkeypatch.setenv("REWRITER_DUMP", str(folder / f"dump-{probes}"))
        result = rewriter.instrument(path, rewriter.select(probes))
        assert not result.plan.skipped
        modules[probes] = load(result.source, folder)
    for module in modules.values():
        lend_kernels(plain, module)
    return modules


def _check_bit_equal(
    plain: ModuleType,
    probed: dict[str, ModuleType],
    args: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Compare every output that the plain wrapper itself repeats bit for bit."""
    call_module(plain, args)  # picks tile sizes
    runs = [call_module(plain, args) for _ in range(5)]
    stable = [
        index
        for index, output in enumerate(runs[0].outputs)
        if all(run.outputs[index] == output for run in runs)
    ]
    assert stable
    if len(stable) < len(runs[0].outputs):
        # Atomics add in any order, and without dropout attention returns a seed never written.
        source = Path(str(plain.__file__)).read_text()
        assert "tl.atomic_add" in source or "_scaled_dot_product_efficient_attention" in source
    for probes, module in probed.items():
        capsys.readouterr()
        outcome = call_module(module, args)
        assert "warning" not in capsys.readouterr().err
        assert [outcome.outputs[i] for i in stable] == [runs[0].outputs[i] for i in stable], probes
        assert outcome.inputs == runs[0].inputs, probes
        assert outcome.random_state == runs[0].random_state, probes


def _check_events(path: Path, rows: list[dict[str, Any]]) -> None:
    """Every launch that ran says what it wrote; other launches are in the branch not taken."""
    rows = [row for row in rows if row["phase"] != "inputs"]
    ran = {row["launch"] for row in rows}
    for launch in rewriter.open(path).launches:
        if launch.index in ran:
            after = [r for r in rows if (r["launch"], r["phase"]) == (launch.index, "after")]
            written = {a.name for a in launch.args if a.type == "tensor" and a.role != "in"}
            assert written <= {row.get("arg") for row in after}
            assert all("nan" in row for row in after if "dtype" in row)
        else:
            assert "graph" in launch.scope
    assert not any(row["phase"] == "before" and row.get("role") == "out" for row in rows)


@pytest.mark.parametrize("model", sorted(MODELS.keys() - {"frozen"}))
def test_compiled_here_are_bit_equal(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number, graph in enumerate(compile_case(MODELS[model]("cuda")).graphs):
        path = tmp_path / f"output_code{number}.py"
        path.write_text(graph.source)
        assert rewriter.open(path).unrecognised == ()
        plain = load(graph.source.encode(), tmp_path)
        probed = _load_probed(path, plain, tmp_path, monkeypatch)
        _check_bit_equal(plain, probed, graph.args, capsys)


# What torch 2.11 cannot compile with cpp_wrapper=True for a GPU.
CANNOT = {
    "while_loop": "declares stream0 twice",
    "subgraph": "codegen_invoke_subgraph is not implemented",
}


@pytest.mark.parametrize("model", sorted(MODELS.keys() - {"frozen"}))
def test_cpp_wrappers_compiled_here_are_bit_equal(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Their kernels are cubins, whose tile sizes were chosen when they were compiled."""
    if model in CANNOT and torch.__version__.startswith("2.11"):
        pytest.skip(f"torch itself: {CANNOT[model]}")
    for number, graph in enumerate(compile_case(MODELS[model]("cuda"), cpp_wrapper=True).graphs):
        path = tmp_path / f"output_code{number}.py"
        path.write_text(graph.source)
        assert rewriter.open(path).unrecognised == ()
        plain = load(graph.source.encode(), tmp_path)
        runs = [call_module(plain, graph.args) for _ in range(3)]
        stable = [i for i, o in enumerate(runs[0].outputs) if all(r.outputs[i] == o for r in runs)]
        assert stable
        for probes in PROBES:
            dump = tmp_path / f"dump{number}-{probes}"
            result = rewriter.instrument(path, rewriter.select(probes))
            assert not result.plan.skipped
            probed = load(result.source, tmp_path)
            # The C++ reads it when it is first called.
            monkeypatch.setenv("REWRITER_DUMP", str(dump))
            capfd.readouterr()
            outcome = call_module(probed, graph.args)
            monkeypatch.delenv("REWRITER_DUMP")
            assert "warning" not in capfd.readouterr().err
            assert [outcome.outputs[i] for i in stable] == [runs[0].outputs[i] for i in stable]
            assert outcome.inputs == runs[0].inputs
            assert outcome.random_state == runs[0].random_state
            if probes != "names":
                _check_events(path, events(dump))


AOTI = sorted(RECORDED.glob("*/aoti/wrapper.cpp"))
HEADERS = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


@pytest.mark.skipif(
    not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, whose headers fit"
)
@pytest.mark.skipif(not (HEADERS / "cuda.h").is_file(), reason=f"no CUDA headers in {HEADERS}")
@pytest.mark.parametrize("path", AOTI, ids=lambda path: path.parts[-3])
def test_recorded_aoti_sources_are_sound_cpp(path: Path, tmp_path: Path) -> None:
    """Types and names, not only syntax: what `g++ -fsyntax-only` checks."""
    from torch.utils.cpp_extension import include_paths

    probed = tmp_path / "wrapper.cpp"
    probed.write_bytes(rewriter.instrument(path, rewriter.select("names,print,save")).source)
    flags = ["-std=c++20", "-fsyntax-only", "-DTORCH_INDUCTOR_CPP_WRAPPER", "-DUSE_CUDA"]
    flags += ["-DSTANDALONE_TORCH_HEADER", "-DC10_USING_CUSTOM_GENERATED_MACROS"]
    flags += [f"-I{folder}" for folder in (*include_paths(), HEADERS)]
    done = subprocess.run(["g++", *flags, str(probed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_no_copies_from_the_device(tmp_path: Path) -> None:
    """The kernel writes what it measured into the host's memory by itself."""
    graph = compile_case(MODELS["mlp"]("cuda")).graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    probed = rewriter.instrument(path, rewriter.select("print", args="all")).source
    counts = {}
    for name, source in {"plain": graph.source.encode(), "probed": probed}.items():
        call(source, graph.args, tmp_path)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call(source, graph.args, tmp_path)
        counts[name] = sum(event.count for event in profile.key_averages() if "DtoH" in event.key)
    assert counts["probed"] == counts["plain"]


def test_run_and_doctor_on_a_gpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    graph = compile_case(MODELS["mlp"]("cuda")).graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    assert main(["doctor", str(path)]) == 0
    assert main(["run", str(path), "--probe", "print,save", "-d", str(tmp_path / "D")]) == 0
    assert "cuda:0" in capfd.readouterr().out
    saved = sorted((tmp_path / "D").rglob("*.pt"))
    assert all(name.name.endswith("_cuda:0.pt") for name in saved)
    assert torch.load(saved[0], weights_only=True).device.type == "cpu"
