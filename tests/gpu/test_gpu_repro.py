"""Each launch on a GPU by itself, with torch alone, and under the tools that are there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capture import compile_case, package_case
from models import MODELS
from rewriter.cli import main
from rewriter.diagnosis.verification.verify import verify
from rewriter.dump.reading import open_dump
from rewriter.reproduction.independent.checks import check_independently
from rewriter.reproduction.reproduce import reproduce

pytestmark = pytest.mark.gpu
FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = ("--probe", "save", "--args", "all", "--when", "both", "--quiet", "--overwrite")


def recorded(folder: Path, form: str, model: str) -> Path:
    """A dump of one call, with all values."""
    case = MODELS[model]("cuda")
    if form == "package":
        file = package_case(case, folder / "model.pt2").path
        args = list(case.inputs)
    else:
        graph = compile_case(case, cpp_wrapper=form == "cpp").graphs[0]
        file, args = folder / "output_code.py", graph.args
        file.write_text(graph.source)
    torch.save(args, folder / "args.pt")
    words = ["run", str(file), "--args", str(folder / "args.pt"), *RECORDED]
    main([*words, "--import", str(FIXTURES / "models.py"), "-d", str(folder / "D")])
    return folder / "D"


@pytest.mark.parametrize("form", ["python", "cpp", "package"])
@pytest.mark.parametrize("model", ["mlp", "conv", "customop", "scatter"])
def test_each_launch_runs_alone(form: str, model: str, tmp_path: Path) -> None:
    dump = recorded(tmp_path, form, model)
    failed: dict[str, str] = {}
    kinds: set[str] = set()
    run = open_dump(dump).runs[-1]
    for step in run.steps:
        if step.launch is None:
            continue
        made = reproduce(
            dump, step.launch, tmp_path / f"r{step.launch}", run=run.name, imports=["models"]
        )
        kinds.add(made.recorded.launch.kind)
        ran = subprocess.run(
            [sys.executable, "-c", "import runpy, sys; sys.modules['rewriter'] = None; "
             f"sys.path.insert(0, {str(FIXTURES)!r}); "
             f"runpy.run_path({str(made.directory / 'repro.py')!r}, run_name='__main__')"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode:
            failed[str(step)] = ran.stdout + ran.stderr[-2000:]
    assert failed == {}
    assert "triton" in kinds


@pytest.mark.parametrize("tool", ["interpret", "compute-sanitizer"])
def test_a_clean_kernel_is_clean_under_tools(
    tool: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if tool == "compute-sanitizer" and shutil.which(tool) is None:
        pytest.skip("compute-sanitizer is not installed")
    dump = recorded(tmp_path, "python", "mlp")
    run = open_dump(dump).runs[0]
    launch = next(x.launch for x in run.steps if run.launch_row(x.launch).kind == "triton")
    capfd.readouterr()
    words = ["repro", str(dump), "--launch", str(launch), "-o", str(tmp_path / "r"), "--json"]
    assert main([*words, "--under", tool]) == 0
    assert json.loads(capfd.readouterr().out)["under"]["findings"] == []


def test_triton_kernels_write_the_same_with_other_blocks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump = recorded(tmp_path, "python", "mlp")
    verification = check_independently(dump, verify(dump))
    triton = [one for one in verification.checks if one.kind == "triton"]
    assert triton
    texts = {one.kernel: one.independent for one in triton}
    assert all("other blocks agree" in text for text in texts.values()), texts
