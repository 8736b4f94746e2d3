"""What probes cost a C++ wrapper of 1,000 launches when it is compiled: ratios against plain.

Of the processor's time, which another program on the machine does not stretch.

    pytest -m benchmark benchmarks/tests/test_cpp_benchmark.py -s
"""

from __future__ import annotations

import re
import resource
import subprocess
from pathlib import Path

import pytest

import rewriter
from capture import Exported, export_case
from models import Case
from rewriter.runtime import bundle

pytestmark = pytest.mark.benchmark

LAYERS = 500  # two launches each: a library call and a kernel


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(LAYERS)]
    chain = torch.nn.Sequential(*(part for one in layers for part in (one, torch.nn.GELU())))
    return export_case(Case(chain, (torch.randn(4, 16),)), tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize(("probe", "limit"), [("names", 1.5), ("print", 2.0)])
def test_compile_time(exported: Exported, probe: str, limit: float, tmp_path: Path) -> None:
    result = rewriter.instrument(exported.wrapper, rewriter.select(probe))
    assert len(result.plan.probed) == 2 * LAYERS
    plain = _seconds(exported, exported.source, tmp_path / "plain")
    probed = _seconds(exported, result.source, tmp_path / "probed")
    print(f"\n{probe}: {probed:.1f} s against {plain:.1f} s plain, {probed / plain:.2f} times")
    assert probed / plain <= limit


def test_compile_time_of_the_wrapper_and_of_the_recorder(
    exported: Exported, tmp_path: Path
) -> None:
    result = rewriter.instrument(exported.wrapper, rewriter.select("print,save"))
    recorder = bundle.recorder("hidden").encode()
    plain = _seconds(exported, exported.source, tmp_path / "plain")
    probed = _seconds(exported, result.source, tmp_path / "probed")
    beside = _seconds(exported, recorder, tmp_path / "recorder")
    print(f"\napart: {probed:.1f} s and {beside:.1f} s against {plain:.1f} s plain")
    assert probed / plain <= 1.5
    assert beside / plain <= 0.5


def _seconds(exported: Exported, source: bytes, folder: Path) -> float:
    """Processor time of a compile with the file's own command line; nothing is linked."""
    folder.mkdir()
    file = folder / "wrapper.cpp"
    file.write_bytes(source)
    stem = str(exported.wrapper.with_suffix(""))
    command = [part.replace(stem, str(file.with_suffix(""))) for part in exported.compile_command]
    assert any(re.search(r"/wrapper\.cpp$", part) for part in command)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
