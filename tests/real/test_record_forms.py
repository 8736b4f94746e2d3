"""Real wrappers and packages that die with the probe `record`: the launch is named each time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rewriter
from capture import Compiled, Packaged
from rewriter.dump.reading import open_dump

pytestmark = pytest.mark.usefixtures("warm_python")

_KERNEL = re.compile(r'extern "C"\s+void\s+(?:cpp_fused\w*|kernel)\([^)]*\)\s*\{')
# The first letter of DEATH says how the last kernel ends.
_DEATHS = (
    'if (const char* death = std::getenv("DEATH")) switch (*death) {'
    " case 't': kill(getpid(), SIGTERM); break; case 's': *(volatile int*)0 = 1; break;"
    " case 'a': std::abort(); case 'k': kill(getpid(), SIGKILL); break; case 'e': _exit(3);"
    " case 'm': throw std::bad_alloc(); }"
)
_HEADERS = "#include <csignal>\n#include <cstdlib>\n#include <new>\n#include <unistd.h>\n"
ENDS = {
    "exit": "",
    "memory": "",  # an exception, in words of C++ or of Python
    "terminated": "signal SIGTERM",
    "segfault": "signal SIGSEGV",
    "abort": "signal SIGABRT",
    "kill": "signal SIGKILL",
}


def planted(source: str) -> str:
    last = list(_KERNEL.finditer(source))[-1]
    start = source.rindex("\n", 0, last.start()) + 1
    return source[:start] + _HEADERS + source[start : last.end()] + _DEATHS + source[last.end() :]


def ways(file: Path, args: list[object]) -> None:
    """Run it with each way to end, and ask both commands what its record says."""
    torch.save(args, file.with_suffix(".pt"))
    culprit = next(x for x in rewriter.open(file).launches if "softmax" in x.kernel)
    for how, end in ENDS.items():
        dump = str(file.parent / how)
        words = [str(file), "--args", str(file.with_suffix(".pt")), "--probe", "record", "-d", dump]
        ran = command("run", *words, death=how)
        # A code of its own is for `run` that the process could not start; the record is there.
        has_report = how != "exit"
        assert ran.returncode == (1 if has_report else 3), (how, ran.stdout, ran.stderr)
        triaged = command("triage", dump, "--json")
        assert triaged.returncode == 1, (how, triaged.stderr)
        verdict = json.loads(triaged.stdout)["verdict"]
        assert (verdict["launch"], verdict["kernel"]) == (culprit.index, culprit.kernel), how
        assert verdict["state"] == "running"
        if has_report:
            assert f"in launch #{culprit.index} {culprit.kernel}" in ran.stdout + ran.stderr, how
            assert end in ran.stdout + ran.stderr
        read = [x for x in verdict["arguments"] if x["role"] != "out"]
        assert read
        assert all("producer" in x for x in read)


def command(*words: str, death: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rewriter", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "REWRITER_RECORD_BYTES": "256Ki", **({"DEATH": death} if death else {})},
    )


@pytest.mark.exhaustive
def test_a_python_wrapper(compiled: Callable[[str], Compiled], tmp_path: Path) -> None:
    graph = compiled("mlp").graphs[0]
    (tmp_path / "output_code.py").write_text(planted(graph.source))
    ways(tmp_path / "output_code.py", graph.args)


PACKAGE = """
import os, sys
import torch

run = torch._inductor.aoti_load_package(sys.argv[1])
inputs = torch.load(sys.argv[2])
for _ in range(3):
    run(*inputs)
os.kill(os.getpid(), 9)
"""


@pytest.mark.exhaustive
def test_a_package(packaged: Callable[..., Packaged], tmp_path: Path) -> None:
    package = packaged("mlp")
    probed, inputs, dump = tmp_path / "probed.pt2", tmp_path / "inputs.pt", tmp_path / "dump"
    (given,) = package.inputs.values()
    torch.save(list(given), inputs)
    made = command("instrument", str(package.path), "--probe", "record", "-o", str(probed))
    assert made.returncode == 0, made.stderr
    ran = subprocess.run(
        [sys.executable, "-c", PACKAGE, str(probed), str(inputs)],
        check=False,
        env={**os.environ, "REWRITER_DUMP": str(dump), "REWRITER_RECORD_BYTES": "256Ki"},
    )
    assert ran.returncode == -signal.SIGKILL
    runs = open_dump(dump).runs
    assert [run.facts.call for run in runs] == [0, 1, 2]
    launches = [x.index for x in rewriter.open(package.path).launches]
    assert {step.launch for step in runs[2].steps} == {None, *launches}
    assert (
        "the program ended outside of launches, after launch #"
        in command("triage", str(dump)).stdout
    )
