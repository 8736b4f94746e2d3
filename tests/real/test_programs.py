"""`rewriter run -- COMMAND`: the front door to programs, their input, and interrupts.

What a program does with its wrappers is in `test_program_run.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caches import MLP, ROOT, heed_interrupts
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")

# Not warm: who is interrupted is to be the command itself.
REWRITER = [sys.executable, "-m", "rewriter"]
# The same; what it starts with its own Python is warm.
START_WARM = [sys.executable, "-c", "import runpy, sys\nsys.executable = sys.argv.pop(1)\n"
              "runpy.run_module('rewriter', run_name='__main__', alter_sys=True)"]  # fmt: skip
# A record that ends within its second launch, and a program that hangs there.
HANGS = f"""
import os, pathlib, signal, sys, time
sys.path.insert(0, {str(ROOT / "tests/support")!r})
import dumps
signal.signal(signal.SIGINT, signal.SIG_IGN)
dump = pathlib.Path(os.environ["REWRITER_DUMP"])
given = dumps.value("buf0", "inout")
after = {{"after": [["inout", "buf0"]]}}
launches = [dumps.launch(0, "cpp_fused_add_0", [dumps.value("x")], [dumps.value("buf0", "out")]),
            dumps.launch(1, "cpp_fused_spin_1", [given], when="before", **after)]
dumps.write(dump, launches, artifact={Path(MLP).name!r})
print("hangs", flush=True)
time.sleep(60)
"""
# An operator that never ends, in a wrapper that needs no compiler.
SPINS = """import time
import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
extern_kernels.mm = lambda *_, **__: print("spins", flush=True) or time.sleep(60)


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    return (buf0, )


def get_args():
    return [torch.zeros(2, 2)]
"""


@pytest.mark.parametrize(
    ("words", "slug", "says"),
    [
        (["run"], "no-program", "-- python train.py"),
        (["run", "python", "half.py"], "no-program", "rewriter run -- python half.py"),
        (["run", "half.py"], "not-a-wrapper", "rewriter run -- python half.py"),
        (["triage", "half.py"], "not-a-wrapper", "rewriter triage -- python half.py"),
        (["run", "--args", "x.pt", "--seed", "1", "--", "true"], "idle-options", "--args, --seed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_requests_that_are_refused(
    words: list[str],
    slug: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("half.py").write_text("import torch\n\n\n@torch.compile\ndef f(x):\n    return x.half()\n")
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"error[{slug}]" in output.err
    assert says in output.err


def interrupted(words: list[object], until: str, number: int, times: int) -> tuple[int, str, str]:
    """Start a command, interrupt it once it has printed a line, and again; what it said."""
    with subprocess.Popen(
        list(map(str, words)),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdout is not None
        out = ""
        for line in process.stdout:
            out += line
            if until in line:
                break
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.5)
        rest, err = process.communicate(timeout=60)
    return process.returncode, out + rest, err


def test_a_hang_that_is_interrupted(tmp_path: Path) -> None:
    """It ends by a kill of our own, which is no sign of memory that ran out."""
    (tmp_path / "hangs.py").write_text(HANGS)
    place = ["-d", tmp_path / "dump"]
    words = [*REWRITER, "run", *place, "--", sys.executable, tmp_path / "hangs.py"]
    code, out, err = interrupted(words, "hangs", signal.SIGINT, 2)
    assert code == 130
    assert "interrupted: the program has 10 s to end" in err
    assert "verdict: interrupted in launch #1 cpp_fused_spin_1 (line 101)\n" in out
    assert "SIGKILL" not in out + err
    assert "dmesg" not in out + err


@pytest.mark.parametrize(
    ("number", "how"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "interrupted by SIGTERM")],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_wrapper_that_is_interrupted(number: int, how: str, tmp_path: Path) -> None:
    (tmp_path / "spins.py").write_text(SPINS)
    words = [
        *START_WARM,
        sys.executable,
        "run",
        tmp_path / "spins.py",
        "--probe",
        "names",
        "-d",
        tmp_path / "dump",
    ]
    # The name of the launch is printed before it is in the dump.
    code, out, err = interrupted(words, "spins", number, 1)
    assert code == 130
    assert "#0 before extern_kernels.mm\n" in out
    assert f"verdict: {how} in or after launch #0 extern_kernels.mm (line 12)\n" in out
    assert f"the wrapper was stopped: {how}\n" in err
    assert "dmesg" not in out


def test_a_triage_that_is_interrupted(tmp_path: Path) -> None:
    """In its first run nobody knows a launch: it says what would name one."""
    words = [*REWRITER, "triage", "--", "sh", "-c", "echo $$ >&2; sleep 60"]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=-1, stderr=-1, text=True, preexec_fn=heed_interrupts
    ) as process:
        assert process.stderr is not None
        program = int(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)
    assert out.startswith("1. without changes: interrupted (")
    assert "--timeout SECONDS" in err


def test_triage_says_what_was_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In both runs without probes; on a machine without a GPU there is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rewriter.commands._triage._GPUS", [Path("/")])
    Path("raises.py").write_text("raise ValueError('no')")
    raises = [sys.executable, "raises.py"]
    assert main(["triage", "--", *raises]) == 1
    first, second, *_ = capfd.readouterr().out.splitlines()
    assert first.startswith(
        "1. without changes: crashed: ValueError: no at raises.py:1, outside of compiled code ("
    )
    assert second.startswith(
        "2. waiting for each launch, without cached GPU memory: crashed: ValueError: no"
    )
    monkeypatch.setattr("rewriter.commands._triage._GPUS", [])
    assert main(["triage", "--", *raises]) == 1
    _, second, third, *_ = capfd.readouterr().out.splitlines()
    assert second.strip().startswith("left out: waiting for each launch, without")
    assert third.startswith("2. rewriter run --probe names,sync,inputs --quiet -- ")
