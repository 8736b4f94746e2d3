"""The recorder by itself, in C++: its tests (`cpp/`), by doctest, and under sanitizers.

Debian and Ubuntu have doctest as `doctest-dev`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rewriter.runtime import build, bundle

HERE = Path(__file__).parent / "cpp"
pytestmark = [pytest.mark.exhaustive, pytest.mark.programs]  # a minute of the compiler for each
SANITIZERS = ("thread", "address,undefined")
ENVIRONMENT = {
    # Ends at the first thing that is found, which no test can pass over.
    "TSAN_OPTIONS": "halt_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1",
    # A recorder that was exchanged is never freed: a thread may be in a call.
    "ASAN_OPTIONS": "detect_leaks=0",
}


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_recorder_under(sanitizers: str, tmp_path: Path) -> None:
    for file in HERE.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "recorder.cpp").write_text(bundle.recorder(), encoding="utf-8")
    flags = f"-std=c++17 -g1 -O0 -rdynamic -fsanitize={sanitizers} -Wno-tsan -o tests".split()
    command = [build.compiler(), *flags, "test_recorder.cpp", "-ldl", "-lpthread"]
    compiled = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "doctest.h: No such file" in compiled.stderr:
        pytest.skip("no doctest: install doctest-dev")
    assert compiled.returncode == 0, compiled.stderr
    environment = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", **ENVIRONMENT}
    ran = subprocess.run(
        [tmp_path / "tests"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Status: SUCCESS" in ran.stdout
