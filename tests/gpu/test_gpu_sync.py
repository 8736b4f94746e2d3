"""Probes around faults, times and CUDA graphs, on a GPU.

    pytest -m gpu tests/gpu/test_gpu_sync.py

What may leave the device unusable runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from capture import compile_case, package_case
from cpp_driver import options_of, row_of
from harness import events, lend_kernels, load
from models import MODELS
from rewriter.core.errors import RewriterError
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict_text import describe
from rewriter.runtime import attach

pytestmark = pytest.mark.gpu

HERE = Path(__file__).parents[1]
MODELS_FILE = str(HERE.parent / "fixtures/gpu_models.py")
RECORDED = HERE.parent / "fixtures/artifacts/cuda-torch2.11"
FAR = 1 << 40  # elements: no process has so much memory


# --- Faults -------------------------------------------------------------------------------------


def run_and_examine(artifact: Path, dump: Path, **more: Any) -> tuple[Any, tuple[Any, ...]]:
    ran = rewriter.run(artifact, rewriter.select("names,sync"), dump=dump, quiet=True, **more)
    return ran, examine(dump, ran.ended)


def check_fault(ran: Any, verdicts: tuple[Any, ...], dump: Path, index: int, kernel: str) -> None:
    """The launch is named, and nothing after it was read."""
    assert ran.code == 1
    assert verdicts, ran.ended.message
    verdict = verdicts[0]
    assert (verdict.launch, verdict.kernel) == (index, kernel)
    assert kernel in describe(verdict, next_command="rewriter run")
    rows = events(dump)
    assert max(row["launch"] for row in rows if "launch" in row) == index
    read = [row for row in rows if row.get("launch") == index and row["phase"] == "before"]
    assert read
    assert all("shape" in row for row in read if "dtype" in row)
    for error in (row for row in rows if "error" in row):
        assert error["phase"] == "after"
        assert "illegal memory access" in error["error"]
        assert rows[-1] == error


_STORE = re.compile(r"tl\.store\((\w+) \+ \((\w+)\)")


@pytest.mark.skipif(
    not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, which runs them"
)
@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        ("mlp", "triton_poi_fused_addmm_gelu_0"),
        ("usertriton", "triton_poi_fused_add_1"),
        ("usertriton", "triton_poi_fused_relu_0"),
    ],
)
def test_a_store_out_of_bounds_in_a_recorded_wrapper(
    model: str, kernel: str, tmp_path: Path
) -> None:
    source = (RECORDED / model / "python/output_code.py").read_text()
    head, tail = source.split(f"def {kernel}(", 1)
    wrong, count = _STORE.subn(rf"tl.store(\1 + {FAR} + (\2)", tail, count=1)
    assert count == 1
    path = tmp_path / "output_code.py"
    path.write_text(f"{head}def {kernel}({wrong}")
    (launch,) = (x for x in rewriter.open(path).launches if x.kernel == kernel)
    ran, verdicts = run_and_examine(path, tmp_path / "dump")
    check_fault(ran, verdicts, tmp_path / "dump", launch.index, kernel)


@pytest.fixture(scope="module")
def scattering(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`scattering("cpp")` is the model with the user's kernel as such a wrapper or package."""
    from gpu_models import user_scatter

    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            if kind == "package":
                made[kind] = folder / "model.pt2"
                inputs = package_case(user_scatter("cuda"), made[kind]).inputs["model"]
            else:
                compiled = compile_case(user_scatter("cuda"), cpp_wrapper=kind == "cpp")
                made[kind] = folder / "output_code.py"
                made[kind].write_text(compiled.graphs[0].source)
                inputs = tuple(compiled.graphs[0].args)
            # What an index leads to, and nothing else, makes the difference.
            wrong = [x + FAR if x.dtype == torch.int64 else x for x in inputs]
            torch.save(list(inputs), folder / "right.pt")
            torch.save(wrong, folder / "wrong.pt")
        return made[kind]

    return get


@pytest.mark.parametrize("kind", ["python", "cpp", "package"])
def test_an_index_out_of_bounds_in_a_kernel_of_the_user(
    kind: str, scattering: Callable[[str], Path], tmp_path: Path
) -> None:
    artifact = scattering(kind)
    launches = rewriter.open(artifact).launches
    (culprit,) = (launch for launch in launches if "scatter_kernel" in launch.kernel)
    assert culprit.index < launches[-1].index

    right, verdicts = run_and_examine(
        artifact, tmp_path / "right", args=artifact.parent / "right.pt", imports=[MODELS_FILE]
    )
    assert right.code == 0, right.message
    assert "error" not in str(right.events)

    dump = tmp_path / "wrong"
    wrong, verdicts = run_and_examine(
        artifact, dump, args=artifact.parent / "wrong.pt", imports=[MODELS_FILE]
    )
    check_fault(wrong, verdicts, dump, culprit.index, culprit.kernel)
    indices = [
        row
        for row in wrong.events
        if row.get("launch") == culprit.index and row.get("dtype") == "int64"
    ]
    assert [row["max"] for row in indices if row["phase"] == "before"] == [FAR + 2047]
    (error,) = (row for row in wrong.events if "error" in row)
    assert error["launch"] == culprit.index


EARLIER = """
import sys
sys.path[:0] = sys.argv[1:4]
import torch
import gpu_models
from rewriter.runtime import attach
from cpp_driver import options_of, row_of
recorder = attach(options_of("names", "sync"), [row_of()])
x, index = torch.ones(64, device="cuda"), torch.arange(64, device="cuda")
recorder.begin()
recorder.before(12, x)
recorder.after(12, x)
gpu_models.scatter(x, index + (1 << 40))
recorder.before(12, x)
recorder.after(12, x)
"""


def test_a_fault_of_something_before_the_launch(tmp_path: Path) -> None:
    folders = [str(HERE / "support"), str(HERE / "real"), str(HERE.parent / "fixtures")]
    ran = subprocess.run(
        [sys.executable, "-c", EARLIER, *folders],
        env={**os.environ, "REWRITER_DUMP": str(tmp_path)},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    last = events(tmp_path)[-1]
    assert (last["launch"], last["phase"]) == (12, "before"), ran.stderr
    assert "illegal memory access" in last["error"]
    assert "#12.1 triton_poi_fused_0: CUDA error: an illegal memory access" in ran.stderr
    assert "(of something before this launch)" in ran.stderr


# --- Streams and times --------------------------------------------------------------------------

_CYCLES = 20_000_000  # about a hundredth of a second


def test_sync_waits_for_all_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder = attach(options_of("sync"), [row_of()])
    recorder.begin()
    x = torch.ones(4, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_CYCLES)
    with torch.cuda.stream(streams[0]):
        recorder.before(12, x)
    assert all(stream.query() for stream in streams)
    with torch.cuda.stream(streams[1]):
        torch.cuda._sleep(_CYCLES)
        recorder.after(12, x)
    assert all(stream.query() for stream in streams)
    assert [(row["phase"], row["max"]) for row in events(tmp_path)] == [
        ("before", 1.0),
        ("after", 1.0),
    ]


def test_times_are_those_of_the_stream_and_wait_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    for _ in range(2):  # what takes long is only done once
        warm = attach(options_of("time"), [row_of(before=[], after=[])])
        warm.begin()
        warm.before(12)
        torch.cuda._sleep(_CYCLES)
        warm.after(12)
        warm.close()
    capfd.readouterr()
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder = attach(options_of("time"), [row_of(before=[], after=[])])
    own = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    stream = torch.cuda.Stream()  # to make the first one may wait for what runs
    recorder.begin()
    began = time.perf_counter()
    torch.cuda._sleep(20 * _CYCLES)  # on another stream than the launch
    with torch.cuda.stream(stream):
        own[0].record()
        for _ in range(3):
            recorder.before(12)
            torch.cuda._sleep(_CYCLES)
            recorder.after(12)
        own[1].record()
    issued = time.perf_counter() - began
    own[1].synchronize()
    whole = own[0].elapsed_time(own[1]) * 1000
    assert issued < whole / 1e6
    assert "time" not in str(events(tmp_path))
    recorder.begin()
    times = [row["time"] for row in events(tmp_path) if "time" in row]
    assert [found["clock"] for found in times] == ["cuda"] * 3
    assert sum(found["duration_us"] for found in times) == pytest.approx(whole, rel=0.1)
    starts = [found["start_us"] for found in times]
    assert starts == sorted(starts)
    assert starts[1] >= starts[0] + times[0]["duration_us"] * 0.99
    assert (
        len(
            re.findall(
                r"^\[rewriter 0\] #12\S* triton_poi_fused_0  \d+\.\d us$",
                capfd.readouterr().out,
                re.MULTILINE,
            )
        )
        == 3
    )


@pytest.mark.parametrize("cpp", [False, True], ids=["python", "cpp"])
def test_every_launch_of_a_wrapper_is_timed(
    cpp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = compile_case(MODELS["mlp"]("cuda"), cpp_wrapper=cpp).graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    module = load(rewriter.instrument(path, rewriter.select("time")).source, tmp_path)
    with torch.no_grad():
        for _ in range(2):
            module.call(list(graph.args))
        torch.cuda.synchronize()
        module.call(list(graph.args))
    for run in ("run0", "run1"):
        rows = (tmp_path / "dump/rank0" / run / "events.jsonl").read_text().splitlines()
        found = [row for row in map(json.loads, rows) if "time" in row]
        assert [row["launch"] for row in found] == [
            launch.index for launch in rewriter.open(path).launches
        ]
        assert {row["time"]["clock"] for row in found} == {"cuda"}
        starts = [row["time"]["start_us"] for row in found]
        assert starts == sorted(starts)
        assert all(0 < row["time"]["duration_us"] < 1e6 for row in found if run == "run1")


# --- CUDA graphs --------------------------------------------------------------------------------

ALL = "names,print,save,hash,sync,time"

PROGRAM = """
import sys
import torch
torch.manual_seed(0)
linear = torch.nn.Linear
model = torch.nn.Sequential(linear(64, 128), torch.nn.GELU(), linear(128, 16)).cuda()
training = sys.argv[2] == "training"

def loss(x):
    return torch.softmax(model(x), -1).square().sum(-1)

step = torch.compile(loss, mode="reduce-overhead")
inputs = [torch.randn(32, 64, device="cuda") * (i + 1) for i in range(6)]
results = []
for x in inputs:
    with torch.set_grad_enabled(training):
        out = step(x)
    if training:
        model.zero_grad()
        out.sum().backward()
        results += [parameter.grad.cpu() for parameter in model.parameters()]
    results.append(out.detach().cpu())
torch.save(results, sys.argv[1])
"""


def run_program(
    folder: Path, name: str, training: bool, **environment: str
) -> tuple[list[torch.Tensor], subprocess.CompletedProcess[str]]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    out = folder / f"{name}.pt"
    ran = subprocess.run(
        [sys.executable, str(program), str(out), "training" if training else "inference"],
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": str(HERE.parent),
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return torch.load(out, weights_only=True), ran


def instrument_cache(cache: Path, probes: str) -> dict[Path, bytes]:
    """Instrument every wrapper in place; what they held before."""
    plain = {}
    for path in sorted(cache.glob("??/*.py")):
        source = path.read_bytes()
        if b"\ndef call(args)" not in source and b"def call(self, args)" not in source:
            continue
        try:
            result = rewriter.instrument(path, rewriter.select(probes))
        except RewriterError:
            continue
        plain[path] = source
        path.write_bytes(result.source)
    return plain


@pytest.mark.parametrize("partition", ["0", "1"], ids=["whole", "partitions"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_reduce_overhead_is_bit_equal(training: bool, partition: str, tmp_path: Path) -> None:
    """Six calls: one warms up, one is captured, the others are replays."""
    settings = {"TORCHINDUCTOR_GRAPH_PARTITION": partition}
    run_program(tmp_path, "cold", training, **settings)
    plain, _ = run_program(tmp_path, "warm", training, **settings)
    for probes in ("print", "save,hash", ALL):
        dump = tmp_path / f"dump-{probes}"
        sources = instrument_cache(tmp_path / "cache", probes)
        assert len(sources) >= 1 + training
        found, ran = run_program(tmp_path, "probed", training, REWRITER_DUMP=str(dump), **settings)
        for path, source in sources.items():
            path.write_bytes(source)
        assert len(found) == len(plain)
        assert all(map(torch.equal, found, plain)), probes
        rows = events(dump)
        captured = [row for row in rows if row.get("captured")]
        assert any("fingerprint" in row for row in rows) == ("hash" in probes)
        assert not any("fingerprint" in row or "file" in row for row in captured)
        assert captured, ran.stderr
        assert all("nan" in row for row in captured if row.get("dtype") == "float32")
        # The loss of the last call is among what its replay wrote.
        last = plain[-1]
        assert any(
            row["shape"] == list(last.shape)
            and row["role"] != "in"
            and row["max"] == float(last.max())
            for row in captured
            if "numel" in row
        )
        said = ran.stderr
        assert ("hash cannot copy to the host" in said) == ("hash" in probes)
        assert ("its replays run no host code" in said) == ("names" in probes)
        assert ("cannot be timed while a CUDA graph" in said) == ("time" in probes)
        assert "Traceback" not in said


@pytest.mark.parametrize("cpp", [False, True], ids=["python", "cpp"])
def test_capturing_a_wrapper_by_hand(
    cpp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    graph = compile_case(MODELS["mlp"]("cuda"), cpp_wrapper=cpp).graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    plain = load(graph.source.encode(), tmp_path)
    dump = tmp_path / "dump"
    monkeypatch.setenv("REWRITER_DUMP", str(dump))
    probed = load(rewriter.instrument(path, rewriter.select(ALL)).source, tmp_path)
    if not cpp:
        lend_kernels(plain, probed)  # else each is tuned by itself, and may round differently
    args = [value.detach() for value in graph.args]
    batch = next(value for value in args if value.shape == (8, 32))
    recording = torch.cuda.CUDAGraph()
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for module in (plain, probed):
                module.call(list(args))
        torch.cuda.synchronize()
        with torch.cuda.graph(recording):
            outputs = probed.call(list(args))
        for factor in (0.5, 2.0, 3.0):
            batch.mul_(factor)
            recording.replay()
            torch.cuda.synchronize()
            assert all(map(torch.equal, outputs, plain.call(list(args))))
        largest = float(outputs[1].max())
        probed.call(list(args))  # reads what the replays left
    assert "warning: values" not in capfd.readouterr().err
    captured = [row for row in events(dump) if row.get("captured")]
    last = rewriter.open(path).launches[-1].index
    written = [
        row
        for row in captured
        if (row.get("launch"), row["phase"], row.get("shape")) == (last, "after", [8, 3])
        and row["dtype"] == "float32"
    ]
    assert written
    assert all(row["max"] == largest for row in written)


def test_a_graph_that_is_never_replayed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder = attach(options_of("print"), [row_of()])
    x = torch.ones(8, device="cuda")
    before = torch.cuda.memory_allocated()
    recorder.begin()
    recorder.before(12, x)
    recorder.begin()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        recorder.before(12, x)
    recorder.close()
    rows = events(tmp_path)
    assert [(row.get("captured"), "max" in row) for row in rows] == [(None, True), (True, False)]
    assert "captured and never replayed" in capfd.readouterr().err
    # The rows that a graph writes are 56 KiB, and stay.
    assert torch.cuda.memory_allocated() - before < 1 << 20
