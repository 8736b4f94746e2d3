"""Wrappers compiled by this torch, here and now: probed runs equal plain ones bit for bit."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
import rewriter
from capture import Compiled, compile_case
from comparisons import trained
from harness import call, copy, events, load
from models import MODELS
from sampling import sampled

Compile = Callable[[str], Compiled]

PROBES = [
    *("names", "print", "save", "hash"),
    "hash,names,print,save,sync,time",
    "bounds,hash,poison,stale",
]
# Frozen weights are opaque to everything but the operator that reads them, and are not inputs.
RUNNABLE = sorted({*MODELS, "trained"} - {"frozen"})
# Compiled in an exhaustive run alone: their forms of launches are those of others, or are compiled
# by other tests. What was recorded of all models is probed in `test_strip_property.py`.
RARE = {"complex_numbers", "cond", "scatter", "transformer", "unbacked"}


@pytest.fixture(scope="session")
def compiled(compiled: Compile) -> Compile:
    """With one that is trained and has few kernels: the block of a transformer has many."""
    small = cache(lambda: compile_case(trained()))
    return lambda model: small() if model == "trained" else compiled(model)


def rare(model: str, *more: str) -> Any:
    """A model, with what else a test is given, as `pytest.mark.parametrize` takes them."""
    marks = [pytest.mark.exhaustive] if model in RARE else []
    return pytest.param(model, *more, marks=marks, id="-".join([model, *more]))


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], bytes]:
    """Instrument a source; what it dumps goes to `tmp_path / "dump"`."""
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))

    def instrument(source: str, probes: str, **options: object) -> bytes:
        path = tmp_path / "output_code.py"
        path.write_text(source)
        result = rewriter.instrument(path, rewriter.select(probes, **options))
        assert not result.plan.skipped
        assert not result.plan.unrecognised
        assert len(result.plan.probed) == len(rewriter.open(path).launches)
        return result.source

    return instrument


@pytest.mark.parametrize(
    ("model", "probes"),
    [pair if pair.marks else rare(*pair.values) for pair in sampled(RUNNABLE, PROBES)],
)
def test_outputs_are_bit_equal(
    model: str,
    probes: str,
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for graph in compiled(model).graphs:
        plain = call(graph.source.encode(), graph.args, tmp_path)
        capsys.readouterr()
        assert call(probed(graph.source, probes), graph.args, tmp_path) == plain
        output = capsys.readouterr()
        assert "warning" not in output.err
        assert ("[rewriter 0] #" in output.out) == (probes != "save")


@pytest.mark.parametrize("model", [rare(model) for model in RUNNABLE])
def test_every_launch_that_ran_left_its_outputs(
    model: str, compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    for number, graph in enumerate(compiled(model).graphs):
        call(probed(graph.source, "save"), graph.args, tmp_path)
        run = tmp_path / f"dump/rank0/run{number}"
        rows = events(run)
        for launch in rewriter.open(tmp_path / "output_code.py").launches:
            if launch.scope == "false_graph_0":
                continue  # the branch of `cond` that these inputs do not take
            after = [r for r in rows if (r.get("launch"), r["phase"]) == (launch.index, "after")]
            written = {a.name for a in launch.args if a.type == "tensor" and a.role != "in"}
            assert written <= {row["arg"] for row in after}
        for row in rows:
            assert (row["phase"], row.get("role")) != ("before", "out")
            if "file" in row:
                saved = torch.load(run / row["file"], weights_only=True)
                assert list(saved.shape) == row["shape"]
                assert str(saved.dtype) == f"torch.{row['dtype']}"


def _saved(dump: Path, launch: str, part: str) -> torch.Tensor:
    (path,) = (dump / "rank0/run0" / launch).glob(f"*{part}*")
    tensor: torch.Tensor = torch.load(path, weights_only=True)
    return tensor


def test_saved_values_are_those_of_eager_and_by_hand(
    compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    """Three known launches: a mutating custom operator, a functional one, a multi-output one."""
    graph = compiled("customop").graphs[0]
    call(probed(graph.source, "save", args="all"), graph.args, tmp_path)
    (x,) = graph.args
    launches = rewriter.open(tmp_path / "output_code.py").launches
    by_kernel = {launch.kernel: launch for launch in launches}

    def saved(operator: str, part: str, output: int = 0) -> torch.Tensor:
        launch = by_kernel[f"torch.ops.rewriter_demo.{operator}.default"]
        name = [a.name for a in launch.args if a.type == "tensor" and a.role != "in"][output]
        return _saved(tmp_path / "dump", f"{launch.index:06d}", f"{part}_launch*_{name}_")

    assert torch.equal(saved("bump", "before"), x * 2)
    assert torch.equal(saved("bump", "after"), x * 2 + 1)
    by_hand = (torch.relu(x * 2 + 1) * 2.5) ** 3
    assert torch.equal(saved("scale", "after"), by_hand)
    assert torch.equal(saved("split", "after", 0), by_hand[:2])
    assert torch.equal(saved("split", "after", 1), by_hand[2:])


def test_saved_values_of_library_and_generated_kernels(
    compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    """The first layer of the MLP against eager, and what topk returned against the output."""
    graph = compiled("mlp").graphs[0]
    call(probed(graph.source, "save"), graph.args, tmp_path)
    case = MODELS["mlp"]("cpu")
    with torch.no_grad():
        hidden = case.fn.up(case.inputs[0])
        best = torch.topk(case.fn.norm(case.fn.down(torch.nn.functional.gelu(hidden))), 3).values
    dump = tmp_path / "dump"
    launches = rewriter.open(tmp_path / "output_code.py").launches
    first = next(launch for launch in launches if launch.kind == "extern_out")
    (out,) = (argument.name for argument in first.args if argument.role == "out")
    torch.testing.assert_close(_saved(dump, f"{first.index:06d}", f"after_launch*_{out}_"), hidden)
    topk = next(launch for launch in launches if "topk" in launch.kernel)
    (out,) = (argument.name for argument in topk.args if argument.role == "out")
    torch.testing.assert_close(_saved(dump, f"{topk.index:06d}", f"after_launch*_{out}_"), best)


def test_iterations_do_not_overwrite_one_another(
    compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    graph = compiled("subgraph").graphs[0]
    call(probed(graph.source, "save"), graph.args, tmp_path)
    folders = sorted(
        path.name for path in (tmp_path / "dump/rank0/run0").iterdir() if path.is_dir()
    )
    assert folders == ["000000", "000000.1", "000000.2", "000001", "000001.1", "000001.2", "inputs"]
    rows = [row for row in events(tmp_path / "dump") if row["phase"] == "after"]
    assert {row["iteration"] for row in rows} == {0, 1, 2}
    x, weight = graph.args
    for iteration, folder in enumerate(["000001", "000001.1", "000001.2"]):
        x = torch.relu(torch.mm(x, weight) + 1)
        saved = _saved(tmp_path / "dump", folder, "after_launch")
        torch.testing.assert_close(saved, x, msg=lambda text, i=iteration: f"iteration {i}: {text}")


def test_each_call_is_a_run_of_its_own(
    compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    """Calls of one wrapper, and of several wrappers that share a dump."""
    for model in ("mlp", "mlp", "conv"):
        graph = compiled(model).graphs[0]
        call(probed(graph.source, "names"), graph.args, tmp_path)
    runs = sorted((tmp_path / "dump/rank0").iterdir())
    assert [run.name for run in runs] == ["run0", "run1", "run2"]
    assert (tmp_path / "dump/manifest.json").is_file()


def test_probe_off_is_silent(
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REWRITER_PROBE", "off")
    graph = compiled("mlp").graphs[0]
    plain = call(graph.source.encode(), graph.args, tmp_path)
    assert call(probed(graph.source, "names,print,save"), graph.args, tmp_path) == plain
    assert "rewriter" not in capsys.readouterr().out
    assert not (tmp_path / "dump").exists()


def test_a_failing_probe_warns_once_and_the_model_goes_on(
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocked = tmp_path / "dump"
    blocked.write_text("a file where the dump should be a directory")
    graph = compiled("mlp").graphs[0]
    plain = call(graph.source.encode(), graph.args, tmp_path)
    assert call(probed(graph.source, "save"), graph.args, tmp_path) == plain
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert 1 <= len(warnings) <= len(rewriter.open(tmp_path / "output_code.py").launches) + 1


@pytest.mark.parametrize(
    "model", [rare(name) for name in ("dtypes", "complex_numbers", "empty", "mlp")]
)
def test_values_follow_on_a_line_of_their_own(
    model: str,
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = compiled(model).graphs[0]
    call(probed(graph.source, "print", values=True), graph.args, tmp_path)
    output = capsys.readouterr()
    assert "warning" not in output.err
    lines = output.out.splitlines()
    heads = [line for line in lines if line.startswith("    [")]
    assert len(heads) == sum(
        "f32[" in x or "nan " in x or "empty" in x for x in lines if x[0] == "["
    )
    assert all(len(head.split(", ")) <= 64 for head in heads)


def test_upstream_format_is_what_upstream_prints(
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same argument through both printers; upstream's own `Dtype` line shows the mean."""
    from torch._inductor.codegen.debug_utils import _print_debugging_tensor_value_info

    graph = compiled("mlp").graphs[0]
    x = next(value for value in graph.args if tuple(value.shape) == (8, 32))
    call(probed(graph.source, "print", format="upstream", when="before"), graph.args, tmp_path)
    ours = capsys.readouterr().out
    _print_debugging_tensor_value_info("inductor: before_launch - K - x", x)
    theirs = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    start = ours.index("Size:  torch.Size([8, 32])")
    block = dict(line.split(": ", 1) for line in ours[start:].splitlines()[:6])
    inputs, start, rest = ours.partition("inductor: before_launch - ")
    assert inputs.count("inductor: aoti_model_inputs - ") == len(graph.args)
    ours = start + rest
    assert block.pop("Dtype") == " torch.float32"
    for key, value in block.items():
        if key != "Size":
            assert float(value) == pytest.approx(float(theirs[key]), rel=1e-5), key


@pytest.mark.usefixtures("warm_python")
def test_a_standalone_wrapper_needs_no_installation(
    compiled: Compile, tmp_path: Path, mlp_wrapper: Path
) -> None:
    """It runs in a Python that cannot import rewriter, and prints the same."""
    (tmp_path / "rewriter.py").write_text("raise ImportError('not installed')\n")
    printed = {}
    for standalone in (True, False):
        result = rewriter.instrument(
            mlp_wrapper,
            rewriter.select("names,print"),
            standalone=standalone,
        )
        path = tmp_path / f"probed_{standalone}.py"
        path.write_bytes(result.source)
        program = (
            f"import sys, torch; sys.path.insert(0, {str(tmp_path)!r})\n"
            if standalone
            else "import sys, torch\n"
        ) + (
            f"import runpy; m = runpy.run_path({str(path)!r})\n"
            "torch.set_grad_enabled(False)\n"
            f"m['call'](torch.load({str(mlp_wrapper.parent / 'inputs.pt')!r}))\n"
        )
        done = programs.run(sys.executable, "-c", program)
        assert "rewriter" not in done.stderr
        printed[standalone] = done.stdout
    assert printed[True] == printed[False]
    assert "[rewriter 0] #0 before" in printed[True]


def test_what_is_saved_alone_goes_to_the_default_dump(
    compiled: Compile,
    probed: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = compiled("mlp").graphs[0]
    sources = {probes: probed(graph.source, probes) for probes in ("names,print", "save")}
    monkeypatch.delenv("REWRITER_DUMP")
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    call(sources["names,print"], graph.args, tmp_path)
    assert {path.suffix for path in set(tmp_path.iterdir()) - before} <= {".py", ""}
    assert not (tmp_path / "rewriter_dump").exists()
    call(sources["save"], graph.args, tmp_path)
    assert (tmp_path / "rewriter_dump/rank0/run0/events.jsonl").is_file()


def test_a_probe_keeps_no_buffer_alive(
    compiled: Compile, probed: Callable[..., bytes], tmp_path: Path
) -> None:
    """Everything that a call allocated, less what it returned, is free when it returns."""
    graph = compiled("mlp").graphs[0]
    module = load(probed(graph.source, "names,print,save"), tmp_path)
    inputs = [copy(value) for value in graph.args]
    watched = [weakref.ref(value) for value in inputs]
    with torch.no_grad():
        outputs = module.call(inputs)
    assert len(outputs) == 2
    assert inputs == []
    assert not any(reference() is not None for reference in watched)
