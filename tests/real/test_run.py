"""`rewriter run` as people type it: in a subprocess, with its dump, table and exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
import rewriter
from capture import Compiled
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")

exhaustive = pytest.mark.exhaustive


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_plain_and_probed_runs_have_equal_outputs(mlp_wrapper: Path, tmp_path: Path) -> None:
    command = ["run", mlp_wrapper, "--args", mlp_wrapper.parent / "inputs.pt"]
    plain = programs.document(*command)
    assert plain["dump"] is None
    digests = [output["sha256"] for output in plain["outputs"]]
    assert len(digests) == 2
    probed = programs.document(*command, "--probe", "names,print,save", "-d", "D")
    assert [output["sha256"] for output in probed["outputs"]] == digests
    assert [launch["index"] for launch in probed["launches"]] == [0, 1, 2, 3, 4]
    manifest = json.loads((tmp_path / "D/manifest.json").read_text())
    assert manifest["format"] == "rewriter.dump"
    assert manifest["artifact"] == "output_code.py"
    assert manifest["torch"] == torch.__version__
    assert manifest["device"] == "cpu"
    assert manifest["command"].startswith("rewriter run ")
    assert sorted(path.name for path in (tmp_path / "D/rank0/run0").iterdir() if path.is_dir()) == [
        *(f"{index:06d}" for index in range(5)),
        "inputs",
    ]


def test_own_inputs_are_seeded(mlp_wrapper: Path) -> None:
    runs = [programs.document("run", mlp_wrapper, "--seed", seed) for seed in (0, 0, 1)]
    digests = [ran["outputs"][0]["sha256"] for ran in runs]
    assert digests[0] == digests[1] != digests[2]


def test_the_table_and_the_command_are_shown(
    mlp_wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(mlp_wrapper), "--probe", "save"]) == 0
    output = capfd.readouterr()
    head, *rows = output.out.splitlines()
    assert head.split()[:4] == ["#", "kernel", "runs", "writes"]
    assert any("topk" in row for row in rows)
    assert f"to repeat: rewriter run {mlp_wrapper} --probe save" in output.err
    assert "output_code.dump" in output.err
    assert main(["run", str(mlp_wrapper), "--probe", "save"]) == 0
    assert "output_code.dump-2" in capfd.readouterr().err


def test_a_dump_is_not_overwritten_unasked(
    mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(mlp_wrapper), "--probe", "save", "-d", "D"]) == 0
    before = sorted((tmp_path / "D").rglob("*"))
    assert main(["run", str(mlp_wrapper), "--probe", "names", "-d", "D"]) == 2
    assert sorted((tmp_path / "D").rglob("*")) == before
    assert main(["run", str(mlp_wrapper), "--probe", "names", "-d", "D", "--overwrite"]) == 0
    assert not list((tmp_path / "D").rglob("*.pt"))
    (tmp_path / "dear").mkdir()
    (tmp_path / "dear/file").write_text("x")
    assert main(["run", str(mlp_wrapper), "--probe", "names", "-d", "dear", "--overwrite"]) == 2
    assert (tmp_path / "dear/file").read_text() == "x"


def test_an_instrumented_wrapper_runs_as_it_is(
    mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["instrument", str(mlp_wrapper), "-o", "probed.py", "--launches", "1"]) == 0
    assert main(["run", "probed.py", "-d", "D"]) == 0
    printed = [line for line in capfd.readouterr().out.splitlines() if line.startswith("[rew")]
    assert {line.split()[2] for line in printed} == {"#1"}
    assert (tmp_path / "D/rank0/run0/events.jsonl").is_file()
    assert main(["run", "probed.py", "--probe", "names"]) == 2


def test_bad_args_files(
    mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch owned",)

    (tmp_path / "text.pt").write_text("hello\n")
    torch.save({"a": 1}, "dict.pt")
    torch.save([torch.zeros(1)], "few.pt")
    torch.save([Evil()], "evil.pt")
    for name, says in {
        "text.pt": "torch.load cannot read it: it is no file of torch.save",
        "dict.pt": "expected a list of inputs, found dict",
        "few.pt": "takes 7 inputs, weights among them, the file holds 1",
        "evil.pt": "torch.load cannot read it",
    }.items():
        capfd.readouterr()
        assert main(["run", str(mlp_wrapper), "--args", name, "--probe", "save", "-d", "D"]) == 2
        error = capfd.readouterr().err
        assert "error[bad-args-file]" in error
        assert says in error
        assert not (tmp_path / "D").exists()
    assert not (tmp_path / "owned").exists()


def test_loader_globals_are_named(
    compiled: Callable[[str], Compiled], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Frozen weights are set by Inductor's loader, and by nobody else."""
    graph = compiled("frozen").graphs[0]
    wrapper = tmp_path / "frozen.py"
    wrapper.write_text(graph.source)
    (name,) = rewriter.open(wrapper).wrappers[0].located.loader_globals
    assert name.startswith("_frozen_param")
    torch.save(graph.args, "inputs.pt")
    assert main(["run", str(wrapper), "--args", "inputs.pt"]) == 2
    error = capfd.readouterr().err
    assert "error[loader-globals]" in error
    assert name in error
    assert "--constants" in error


def test_constants_are_set(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wrapper = tmp_path / "constant.py"
    wrapper.write_text(
        "import torch\nfrom torch._inductor.select_algorithm import extern_kernels\n"
        "_frozen_param0 = None  # device(type='cpu') torch.float32 (2, 2) (2, 1) 7f\n"
        "empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu\n\n\n"
        "def call(args):\n    arg0_1, = args\n    args.clear()\n"
        "    buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)\n"
        "    extern_kernels.mm(arg0_1, _frozen_param0, out=buf0)\n"
        "    return (buf0, )\n\n\n"
        "def get_args():\n    global _frozen_param0\n"
        "    _frozen_param0 = torch.zeros(2, 2)\n    return [torch.eye(2)]\n"
    )
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    torch.save({"_frozen_param0": weight}, "constants.pt")
    torch.save([torch.eye(2)], "inputs.pt")
    for args in ([], ["--args", "inputs.pt"]):
        command = ["run", str(wrapper), "--constants", "constants.pt", "--probe", "save", "-d", "D"]
        assert main([*command, *args, "--overwrite"]) == 0
        (saved,) = (tmp_path / "D").rglob("after_launch_extern_kernels.mm_buf0_cpu.pt")
        assert torch.equal(torch.load(saved, weights_only=True), weight)
        said = capfd.readouterr().err
        assert "held random values" not in said
        assert ("the inputs were random" in said) == (not args)
    assert main(["run", str(wrapper)]) == 0
    assert "_frozen_param0 held random values" in capfd.readouterr().err


def test_custom_operators_are_imported(
    compiled: Callable[[str], Compiled], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrapper = tmp_path / "customop.py"
    wrapper.write_text(compiled("customop").graphs[0].source)
    assert main(["run", str(wrapper), "--probe", "names"]) == 1
    output = capfd.readouterr()
    assert "in or after launch #1 torch.ops.rewriter_demo.bump.default" in output.out
    assert "--import" in output.err
    models = Path(__file__).parents[2] / "fixtures/models.py"
    assert main(["run", str(wrapper), "--probe", "names", "--import", str(models)]) == 0


@pytest.mark.parametrize(
    ("how", "says"),
    [
        pytest.param(
            "raise ValueError('broken model')", "ValueError: broken model", id="exception"
        ),
        pytest.param("import os; os.abort()", "SIGABRT", id="abort", marks=exhaustive),
        pytest.param("import os; os.kill(os.getpid(), 9)", "SIGKILL", id="kill"),
        pytest.param("import ctypes; ctypes.string_at(0)", "SIGSEGV", id="segfault"),
        pytest.param(
            "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 34,) * 2); torch.empty(1 << 40)",
            "can't allocate memory",
            id="out of memory",
            marks=exhaustive,
        ),
    ],
)
def test_a_crash_names_the_launch_that_was_running(
    how: str, says: str, mlp_wrapper: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Promise 5: names are flushed before the launch, to a pipe as well."""
    launches = rewriter.open(mlp_wrapper).launches
    line = next(launch.line for launch in launches if "topk" in launch.kernel)
    lines = mlp_wrapper.read_text().splitlines(keepends=True)
    call = lines[line - 1]
    name = call.split("=")[0].strip()
    start = call[: len(call) - len(call.lstrip())]
    lines[line - 1] = (
        f"{start}def crash(*_):\n{start}    {how}\n"
        f"{start}torch.ops.aten.topk.default = crash\n{call}"
    )
    wrapper = tmp_path / "crash.py"
    wrapper.write_text("".join(lines))
    assert name.startswith("buf")
    assert main(["run", str(wrapper), "--probe", "names", "-d", "D"]) == 1
    output = capfd.readouterr()
    printed = [text for text in output.out.splitlines() if text.startswith("[rewriter")]
    assert printed[-1].endswith("before torch.ops.aten.topk.default")
    assert says in output.err
    (headline,) = (text for text in output.out.splitlines() if text.startswith("verdict: "))
    assert "in or after launch #4 torch.ops.aten.topk.default" in headline
    assert "in    buf6  not recorded" in output.out
    assert "written by #3 cpp_fused__softmax_native_layer_norm_1" in output.out
    assert "next: rewriter run crash.py" not in output.out
    assert f"next: rewriter run {wrapper} --probe names,print" in output.out


@pytest.mark.parametrize(
    ("variables", "phases", "kernels"),
    [
        ({"AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "3"}, {"before"}, 5),
        ({"AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2"}, {"after"}, 5),
        (
            {
                "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2",
                "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT": "TORCH.OPS.ATEN.TOPK.DEFAULT, other",
            },
            {"after"},
            1,
        ),
    ],
    ids=["names", "print", "filtered"],
)
def test_upstreams_variables_are_the_defaults(
    variables: dict[str, str],
    phases: set[str],
    kernels: int,
    mlp_wrapper: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["run", str(mlp_wrapper)]) == 0
    lines = [x.split() for x in capfd.readouterr().out.splitlines() if x.startswith("[rewriter")]
    lines = [line for line in lines if line[2] != "inputs"]
    assert {line[3] for line in lines} == phases
    assert len({line[2] for line in lines}) == kernels


def test_level_and_probe_on_the_command_line_come_first(
    mlp_wrapper: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER", "2")
    for option in (["--level", "3"], ["--probe", "names"]):
        assert main(["run", str(mlp_wrapper), *option]) == 0
        printed = [x for x in capfd.readouterr().out.splitlines() if x.startswith("[rewriter")]
        assert all(" before " in line for line in printed)
        assert len(printed) == 5
    assert main(["run", str(mlp_wrapper), "--level", "0"]) == 0
    assert "[rewriter" not in capfd.readouterr().out


LONG = """import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)
LAUNCHES    return (buf0, )


def benchmark_compiled_module(times=10, repeat=10):
    from torch._dynamo.testing import rand_strided
    from torch._inductor.utils import print_performance
    arg0_1 = rand_strided((2, 2), (2, 1), device='cpu', dtype=torch.float32)
    fn = lambda: call([arg0_1])
    return print_performance(fn, times=times, repeat=repeat)
""".replace("LAUNCHES", "    extern_kernels.mm(arg0_1, arg0_1, out=buf0)\n" * 25)


def test_wrappers_of_earlier_releases_make_their_own_inputs(tmp_path: Path) -> None:
    """Before `get_args()`, the inputs were made inside the benchmark function."""
    (tmp_path / "long.py").write_text(LONG)
    first, second = (rewriter.run(tmp_path / "long.py") for _ in range(2))
    assert first.code == 0
    assert first.outputs == second.outputs


def test_launches_are_counted_on_a_terminal(tmp_path: Path) -> None:
    """A terminal sees a line that goes by; a pipe gets no control characters."""
    (tmp_path / "long.py").write_text(LONG)
    command = [sys.executable, "-m", "rewriter", "run", "long.py", "--probe", "save"]
    done = programs.run(*command)
    assert "\x1b" not in done.stderr + done.stdout
    controller, terminal = pty.openpty()
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        while part := _read(controller):
            shown += part
    assert process.returncode == 0
    assert b"25 of 25 launches\x1b[K\r" in shown
    assert b"to repeat" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the terminal's other side was closed
        return b""


@exhaustive
def test_demo_tells_the_whole_tour(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    output = capfd.readouterr()
    assert "$ rewriter list" in output.out
    assert "[rewriter 0] #0 after" in output.out
    assert "identical" in output.err


def test_doctor_says_what_runs_here(mlp_wrapper: Path) -> None:
    said = programs.document("doctor", mlp_wrapper)
    checks = {check["name"]: check for check in said["checks"]}
    assert checks["torch interface"]["ok"] is True
    assert checks["device"]["found"] == "cpu"
    assert Path(checks["recorder"]["found"]).is_file()
    assert Path(checks["recorder in Python"]["found"]).is_file()
    cuda = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/mlp/python"
    if not torch.cuda.is_available():
        said = programs.document("doctor", cuda / "output_code.py", code=1)
        failed = {check["name"] for check in said["checks"] if check["ok"] is False}
        assert "device" in failed
        assert "torch interface" not in failed
