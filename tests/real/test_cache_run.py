"""`rewriter cache run`: whatever becomes of the program and of the command, nothing is left.

The programs here only do to the cache what one does that compiles; those that do compile are in
`test_cache_programs.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import imports
from artifacts import get
from caches import CPP, CUDA, MLP, ROOT, cache, command, content, heed_interrupts, make
from rewriter.cache import journal
from rewriter.cache.slots import scan
from rewriter.core import edit

pytestmark = pytest.mark.usefixtures("warm_python")

exhaustive = pytest.mark.exhaustive
PYTHON = sys.executable
NAMES = (MLP, CPP, CUDA)
FROZEN = get("cpu-torch2.13/frozen").data
FROZEN_CPP = get("cpu-torch2.13/frozen cpp_wrapper").data
# Writes the texts of the given files as a program does that compiles: unless they are there.
COMPILE = """
import os, pathlib, sys
cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
for source, name in zip(sys.argv[1::2], sys.argv[2::2]):
    path = cache / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(pathlib.Path(source).read_bytes())
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make(tmp_path / "cache", NAMES)


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., list[object]]:
    """`python(text)` are the words that run a program of this text."""

    def write(text: str, *arguments: object) -> list[object]:
        file = tmp_path / "program.py"
        file.write_text(text)
        return ["--", sys.executable, file, *arguments]

    return write


Python = Callable[..., list[object]]


def run(directory: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return cache("run", "--dir", directory, "-d", directory.parent / "dump", *arguments, **options)


@pytest.fixture
def started(directory: Path, python: Python) -> Iterator[Callable[..., tuple[Any, int]]]:
    """`started()` is a `cache run` whose program is in the middle, and the program's id."""
    processes: list[subprocess.Popen[str]] = []

    def start(text: str = "", *options: object) -> tuple[subprocess.Popen[str], int]:
        program = f"import os, sys, time\n{text}\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
        process = subprocess.Popen(
            command("run", "--dir", directory, *options, *python(program)),
            cwd=directory.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            preexec_fn=heed_interrupts,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lives(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(process: int) -> bool:
    """Whether a process ends soon."""
    deadline = time.monotonic() + 20
    while lives(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not lives(process)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("pass", 0, marks=exhaustive),
        ("raise SystemExit(7)", 1),
        pytest.param("raise ValueError('no')", 1, marks=exhaustive),
        pytest.param("import os; os.abort()", 1, marks=exhaustive),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 1),
    ],
    ids=["end", "code", "exception", "abort", "killed"],
)
def test_restored_however_it_ends(text: str, code: int, directory: Path, python: Python) -> None:
    before = content(directory)
    seen = "import os, pathlib, sys\n" + (
        f"for name in {NAMES!r}:\n"
        "    text = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], name).read_bytes()\n"
        "    print(text.count(b'Instrumented by inductor-rewriter'), flush=True)\n"
    )
    done = run(directory, *python(seen + text))
    assert done.returncode == code, done.stderr
    assert done.stdout.split() == ["1"] * len(NAMES)
    assert content(directory) == before
    assert not (directory.parent / "dump").exists()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=exhaustive),
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=exhaustive),
    ],
    ids=str,
)
def test_restored_when_it_is_stopped(
    number: int, started: Callable[..., tuple[Any, int]], directory: Path
) -> None:
    before = content(directory)
    process, program = started()
    assert {slot.state for slot in scan(directory).slots} == {"instrumented"}
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert not lives(program)
    assert content(directory) == before


def test_a_program_that_handles_the_signal_may_finish(
    started: Callable[..., tuple[Any, int]], directory: Path
) -> None:
    before = content(directory)
    handler = "import signal\nsignal.signal(15, lambda *_: sys.exit(print('saved', flush=True)))"
    process, program = started(handler)
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "saved\n")
    assert not lives(program)
    assert content(directory) == before


def test_a_program_that_ignores_signals_is_killed_at_the_second(
    started: Callable[..., tuple[Any, int]], directory: Path
) -> None:
    before = content(directory)
    process, program = started("import signal\nsignal.signal(2, signal.SIG_IGN)")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert lives(program)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not lives(program)
    assert content(directory) == before


@pytest.mark.parametrize("action", ["status", pytest.param("instrument", marks=exhaustive), "run"])
def test_killed_and_restored_by_the_next_command(
    action: str,
    started: Callable[..., tuple[Any, int]],
    directory: Path,
    python: Python,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = content(directory)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", PYTHON)  # who asks is not who runs where it starts warm
        process, program = started()
    found = json.loads(cache("status", "--json", "--dir", directory).stdout)
    assert found["running"]["pid"] == process.pid
    assert sorted(found["running"]["wrappers"]) == sorted(NAMES)
    for refused in (["restore"], ["instrument"]):
        assert "error[cache-busy]" in cache(*refused, "--dir", directory).stderr
    process.kill()
    process.communicate()
    # Nobody would wait for the program any more.
    assert ends(program)
    assert {slot.state for slot in scan(directory).slots} == {"instrumented"}
    words = python("pass") if action == "run" else []
    done = cache(action, "--dir", directory, *words)
    assert done.returncode == 0, done.stderr
    assert "restored 3 wrappers that an interrupted `cache run` left" in done.stderr
    if action == "instrument":
        cache("restore", "--dir", directory)
    assert content(directory) == before


def test_time_limit(directory: Path, python: Python) -> None:
    """The program and what it started."""
    before = content(directory)
    text = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)"
    )
    dashes, _, file = python(text)
    # A process of its own: what is killed takes with it what it started.
    done = run(directory, "--timeout", 3, dashes, imports.PYTHON, file, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "time limit of 3 s" in done.stderr
    assert ends(int(done.stdout))
    assert content(directory) == before


def test_a_cold_cache(tmp_path: Path, python: Python) -> None:
    """The program runs without probes first, to compile."""
    source = tmp_path / "source.py"
    source.write_bytes(get("cpu-torch2.13/mlp").data)
    text = COMPILE + "print(b'Instrumented by' in path.read_bytes(), flush=True)\n"
    text += "print(os.environ['TORCH_TRACE'], flush=True)"
    environment = {name: x for name, x in os.environ.items() if name != "TORCH_TRACE"}
    done = run(tmp_path / "new", *python(text, source, MLP), env=environment)
    assert done.returncode == 0, done.stderr
    first, traces, second, again = done.stdout.split()
    assert (first, second) == ("False", "True")
    # For the names of the model: traced into a directory that is gone afterwards.
    assert traces == again
    assert not Path(traces).exists()
    assert "runs once without probes" in done.stderr
    assert (tmp_path / "new" / MLP).read_bytes() == source.read_bytes()
    assert [path.name for path in (tmp_path / "new").rglob("*.py*")] == [Path(MLP).name]


def test_a_program_that_compiles_nothing_leaves_nothing(tmp_path: Path, python: Python) -> None:
    done = run(tmp_path / "new", *python("print('ran')"))
    assert done.returncode == 2
    assert "error[nothing-compiled]" in done.stderr
    assert done.stdout == "ran\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_a_program_that_fails_before_it_compiles(tmp_path: Path, python: Python) -> None:
    done = run(tmp_path / "new", *python("raise SystemExit(3)"))
    assert done.returncode == 1
    assert "exit code 3" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_cold_for_this_program(directory: Path, tmp_path: Path, python: Python) -> None:
    """Others have filled the cache: what is new gets probes for a second run."""
    before = content(directory)
    source = tmp_path / "source.py"
    source.write_bytes(get("cpu-torch2.15/mlp").data)
    text = COMPILE + "print(b'Instrumented by' in path.read_bytes(), flush=True)"
    done = run(directory, *python(text, source, "zz/czznew.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True"]
    assert "1 wrapper that had no probes: it runs once more" in done.stderr
    after = content(directory)
    assert after.pop("zz/czznew.py")[0]
    assert after == before
    assert (directory / "zz" / "czznew.py").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    "frozen", [pytest.param(FROZEN, marks=exhaustive), FROZEN_CPP], ids=["python", "cpp"]
)
def test_frozen_weights_are_named(
    frozen: bytes, directory: Path, tmp_path: Path, python: Python
) -> None:
    """A new wrapper in each process: a second run would not help, and is not made."""
    assert frozen.count(b"7f5abd97e210") + frozen.count(b"7f82ae127c00") == 1
    (directory / "fr").mkdir()
    (directory / "fr" / "cfrfirst.py").write_bytes(frozen)
    source = tmp_path / "source.py"
    moved = frozen.replace(b"7f5abd97e210", b"7f0011223344").replace(b"7f82ae127c00", b"7e0")
    source.write_bytes(moved)
    before = content(directory)
    text = COMPILE + "print('ran', flush=True)"
    done = run(directory, "--json", *python(text, source, "zz/czznew.py"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["runs"], found["unprobed"]) == (1, [{"wrapper": "zz/czznew.py", "frozen": True}])
    assert "warning: not probed: czznew: the weights are frozen" in done.stderr
    after = content(directory)
    assert after.pop("zz/czznew.py")[0]
    assert after == before


def test_a_wrapper_that_is_new_every_time_is_named(
    directory: Path, tmp_path: Path, python: Python
) -> None:
    source = tmp_path / "source.py"
    source.write_bytes(get("cpu-torch2.15/mlp").data)
    text = COMPILE.replace("cache / name", "cache / f'{name}{os.getpid()}.py'")
    done = run(directory, "--json", *python(text, source, "zz/czz"))
    found = json.loads(done.stdout)
    assert found["runs"] == 2
    assert [one["frozen"] for one in found["unprobed"]] == [False]
    assert "compiled only in the last run of the program" in done.stderr


def test_what_it_was_told(directory: Path, python: Python, tmp_path: Path) -> None:
    """The program finds its own environment, and what the probes read."""
    text = (
        "import json, os, sys\n"
        "names = ('REWRITER_DUMP', 'REWRITER_QUIET', 'REWRITER_COMMAND', 'CUDA_LAUNCH_BLOCKING',"
        " 'PYTORCH_NO_CUDA_MEMORY_CACHING', 'MINE', 'REWRITER_PROBE', 'REWRITER_CACHE_DIR')\n"
        "print(json.dumps([[os.environ.get(name) for name in names], sys.argv[1:]]))"
    )
    environment = {**os.environ, "MINE": "1", "REWRITER_PROBE": "off"}
    given = ["--lr", "1", "--", "-x"]
    done = run(directory, *python(text, *given), env=environment)
    variables, arguments = json.loads(done.stdout)
    assert arguments == given
    assert variables[:2] == [str(tmp_path / "dump"), "1"]
    assert variables[2].startswith("rewriter cache run")
    assert variables[3:] == [None, None, "1", None, os.environ["REWRITER_CACHE_DIR"]]
    done = run(directory, "--blocking", "--probe", "print", *python(text), env=environment)
    assert json.loads(done.stdout)[0][1:6:2] == [None, "1", "1"]


def test_only_some_wrappers(directory: Path, python: Python) -> None:
    text = (
        "import os, pathlib\n"
        "cache = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
        "print(*sorted(path.parent.name for path in cache.glob('*/*.orig')))\n"
    )
    assert run(directory, "--wrappers", "cab*,gh/*", *python(text)).stdout.split() == ["ab", "gh"]
    two = ["--wrapper", "cab*", "--wrapper", "gh/*"]
    assert run(directory, *two, *python(text)).stdout.split() == ["ab", "gh"]
    assert run(directory, "--kernels", "triton_*", *python(text)).stdout.split() == ["gh"]
    assert run(directory, "--newest", "2", *python(text)).stdout.split() == ["ef", "gh"]


def test_what_is_instrumented_already_is_not_run(directory: Path, python: Python) -> None:
    cache("instrument", "--dir", directory, "cabmlp*")
    before = content(directory)
    done = run(directory, *python("print('ran')"))
    assert done.returncode == 2
    assert "error[cache-instrumented]" in done.stderr
    assert done.stdout == ""
    assert content(directory) == before


def test_a_wrapper_that_the_program_removes(directory: Path, python: Python) -> None:
    """It is put back: its backup cannot be told from one that was forgotten."""
    before = content(directory)
    text = f"import os; os.unlink(os.environ['TORCHINDUCTOR_CACHE_DIR'] + '/{CUDA}')"
    assert run(directory, *python(text)).returncode == 0
    assert content(directory) == before


def test_a_program_that_removes_its_cache(directory: Path, python: Python) -> None:
    text = "import os, shutil; shutil.rmtree(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    done = run(directory, *python(text))
    assert done.returncode == 0, done.stderr
    assert not directory.exists()


def test_an_edit_of_an_instrumented_wrapper_is_left(directory: Path, python: Python) -> None:
    text = f"import os; open(os.environ['TORCHINDUCTOR_CACHE_DIR'] + '/{MLP}', 'a').write('# x\\n')"
    done = run(directory, *python(text))
    assert "edited since the probes went in" in done.stderr
    path = directory / MLP
    assert edit.strip(path.read_bytes()).source.endswith(b"# x\n")
    assert not (directory / journal.NAME).exists()


def test_a_program_that_cannot_be_started(directory: Path, tmp_path: Path) -> None:
    """Nor is one run whose options could be meant for this command."""
    (tmp_path / "script").write_text("echo ran")
    (tmp_path / "script").chmod(0o755)
    before = content(directory)
    for words in (["--", tmp_path / "script"], [sys.executable, "--json"], ["echo"]):
        done = run(directory, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "error[no-program]" in done.stderr
        assert not (tmp_path / "dump").exists()
        assert content(directory) == before


# Leaves what a wrapper records that is called twice.
RECORD = f"""
import os, pathlib, sys
sys.path.insert(0, {str(ROOT / "tests/support")!r})
import dumps
dump = pathlib.Path(os.environ["REWRITER_DUMP"])
launches = [dumps.launch(0, "cpp_fused_add_0", [dumps.value("x")], [dumps.value("buf0", "out")]),
            dumps.launch(1, "extern_kernels.mm", [dumps.value("buf0")])]
for run in range(2):
    time = {{"start_us": 2.5, "duration_us": 30.0}}
    launches[1][1][-1:] = [{{"launch": 1, "kernel": "extern_kernels.mm", "phase": "after",
                             "time": {{**time, "clock": "host"}}}}]
    dumps.write(dump, launches, run=run, artifact={Path(MLP).name!r})
"""


def test_times_are_shown_and_traced(directory: Path, python: Python) -> None:
    done = run(directory, "--probe", "time,names", *python(RECORD))
    assert done.returncode == 0, done.stderr
    assert "1  extern_kernels.mm  2     60.0      30.0     100.0%  host" in done.stderr
    trace = directory.parent / "dump" / "trace.json"
    assert f"trace for Perfetto or chrome://tracing: {trace}" in done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    assert [event["dur"] for event in events if event["ph"] == "X"] == [30.0, 30.0]
    done = run(directory, "--json", "--overwrite", "--probe", "time", *python(RECORD))
    found = json.loads(done.stdout)
    assert [(x["launch"], x["runs"], x["total_us"]) for x in found["times"]] == [(1, 2, 60.0)]
    assert found["trace"] == str(trace)


def test_no_times_where_nobody_asked(directory: Path, python: Python) -> None:
    found = json.loads(run(directory, "--json", *python("pass")).stdout)
    assert (found["times"], found["trace"], found["next"]) == ([], None, "")


def test_a_dump_that_cannot_be_read(directory: Path, python: Python) -> None:
    """It is said, and the rest of the report is there."""
    row = {"phase": "before", "launch": 0, "kernel": "k"}
    damage = (
        f"(dump / 'rank0/run0/events.jsonl').write_text({json.dumps(row) + chr(10)!r} "
        "+ '\"time\"\\n')\n"
    )
    before = content(directory)
    done = run(directory, "--json", "--probe", "time", *python(RECORD + damage + "os.abort()"))
    assert done.returncode == 1, done.stderr
    assert "line 2 is no JSON object" in done.stderr
    found = json.loads(done.stdout)
    assert (found["ended"]["signal"], found["verdicts"], found["times"]) == ("SIGABRT", [], [])
    assert content(directory) == before


def test_a_dump_that_cannot_be_written(directory: Path, python: Python) -> None:
    """The program ran, and what it recorded is reported."""
    before = content(directory)
    done = run(directory, "--json", *python(RECORD + f"(dump / {Path(MLP).name!r}).mkdir()"))
    assert done.returncode == 0, done.stderr
    assert "warning: cannot copy the wrappers to " in done.stderr
    assert json.loads(done.stdout)["launches"] == 4
    assert content(directory) == before


def test_inputs_that_do_not_fit_are_a_finding(directory: Path, python: Python) -> None:
    row = {"phase": "inputs", "arg": "x", "role": "in", "unexpected": "size [9], expected [8]"}
    add = f"(dump / 'rank0/run0/events.jsonl').open('a').write({json.dumps(row) + chr(10)!r})"
    done = run(directory, "--json", "--probe", "inputs", *python(RECORD + add))
    assert done.returncode == 1
    assert "unexpected input x: size [9], expected [8], rank0/run0, " in done.stderr
    assert [one["kind"] for one in json.loads(done.stdout)["findings"]] == ["unexpected"]
