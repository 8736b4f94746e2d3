"""`rewriter run -- COMMAND`: a program runs once, is probed from its first call, and its cache
stays as it is, whatever becomes of the program and of the command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import programs
from caches import ROOT, content, heed_interrupts
from harness import events
from loads import LOAD, LOADED, WRAPPER
from rewriter.dump import reading

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive
PYTHON = sys.executable  # starts cold: its options and `sitecustomize` count
Run = Callable[..., programs.Done]


def cache(folder: Path, name: str = "cache") -> dict[str, object]:
    """The variable of a program that has its cache in a folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": folder / name}


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., list[str]]:
    """`words(text, *options)` are those of a command that runs a program of this text, which notes
    each of its starts."""

    def write(text: str, *options: object, python: str = "") -> list[str]:
        note = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        is_main = "if __name__ == '__main__':\n    "
        (tmp_path / "program.py").write_text(f"{LOAD}{is_main}{note}    {text}")
        place = ["-d", tmp_path / "dump", "--overwrite"]
        program = [python or sys.executable, tmp_path / "program.py"]
        command = [sys.executable, "-m", "rewriter", "run", *place, *options, "--", *program]
        return list(map(str, command))

    return write


@pytest.fixture
def run(words: Callable[..., list[str]], tmp_path: Path) -> Run:
    """`run(text, *options)` runs a program, which finds an empty cache; it started once, and the
    command ends with this code."""

    def start(
        text: str, *options: object, code: int = 0, python: str = "", **added: object
    ) -> programs.Done:
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "starts").unlink(missing_ok=True)
        line = words(text, *options, python=python)
        done = programs.run(*line, code=code, cwd=tmp_path, **{**cache(tmp_path), **added})
        assert (tmp_path / "starts").read_text() == "x", done.stderr
        return done

    return start


def launches(dump: Path) -> int:
    """How many launches of matrix products were recorded."""
    rows = (row for row in events(dump) if row.get("kernel", "").startswith("extern_kernels."))
    return sum(row["phase"] == "after" for row in rows)


def test_once_cold_and_warm(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        done = run("load()")
        assert done.stdout.split("\n")[:1] == [LOADED]
        assert "cabwrapper  inference  1         1" in done.stderr
        assert launches(tmp_path / "dump") == 1
        files = [x for x in (tmp_path / "cache").rglob("*") if x.is_file()]
        assert [x.name for x in files] == ["cabwrapper.py"]
        assert files[0].read_text() == WRAPPER
        before = content(tmp_path / "cache")
    assert content(tmp_path / "cache") == before


def test_the_wrapper_with_its_probes_is_in_the_dump(run: Run, tmp_path: Path) -> None:
    run("load()", "--probe", "save")
    text = (tmp_path / "dump" / "cabwrapper.py").read_text()
    assert "Instrumented by inductor-rewriter" in text
    assert len(text) < 10 * len(WRAPPER)  # to be read: the runtime is not in it
    (call,) = reading.open_dump(tmp_path / "dump").runs
    assert call.saves


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("raise SystemExit(7)", 1),
        pytest.param("raise ValueError('no')", 1, marks=exhaustive),
        pytest.param("os.abort()", 1, marks=exhaustive),
        pytest.param("import signal; os.kill(os.getpid(), signal.SIGKILL)", 1, marks=exhaustive),
    ],
    ids=["code", "exception", "abort", "killed"],
)
def test_however_it_ends(text: str, code: int, run: Run, tmp_path: Path) -> None:
    run(f"load()\n    {text}", code=code)
    assert launches(tmp_path / "dump") == 1
    assert (tmp_path / "cache/ab/cabwrapper.py").read_text() == WRAPPER


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
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=exhaustive),
        pytest.param(signal.SIGKILL, marks=exhaustive),
    ],
    ids=str,
)
def test_stopped_in_the_middle(
    number: int, words: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Nothing is to be restored; what was recorded is there."""
    text = "load()\n    print(os.getpid(), flush=True)\n    import time; time.sleep(60)"
    command = [PYTHON, *words(text)[1:]]
    process: Any = subprocess.Popen(
        command,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == f"{LOADED}\n"
    program = int(process.stdout.readline())
    process.send_signal(number)
    if number == signal.SIGKILL:
        process.wait()
        os.kill(program, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number != signal.SIGKILL else -9)
    assert ends(program)
    assert (tmp_path / "cache/ab/cabwrapper.py").read_text() == WRAPPER
    assert launches(tmp_path / "dump") == 1


def test_time_limit(run: Run, tmp_path: Path) -> None:
    """The program and what it started."""
    text = (
        "import subprocess, time\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(60)"
    )
    done = run(text, "--timeout", 3, code=1, python=PYTHON)
    assert "time limit of 3 s" in done.stderr
    assert ends(int(done.stdout))


def test_a_cache_of_its_own_that_is_removed(run: Run, tmp_path: Path) -> None:
    then = "import shutil; shutil.rmtree(folder)"
    run(f"import tempfile; folder = tempfile.mkdtemp(); load(folder)\n    {then}")
    assert launches(tmp_path / "dump") == 1


PROCESSES = """
import multiprocessing
def engine(number):
    load({folder!r} + f"/rank_{{number}}")
if __name__ == "__main__":
    multiprocessing.set_executable({python!r})
    context = multiprocessing.get_context({method!r})
    engines = [context.Process(target=engine, args=(n,), name=f"Engine-{{n}}") for n in range(2)]
    for one in engines:
        one.start()
    for one in engines:
        one.join()
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_it_starts(method: str, run: Run, tmp_path: Path) -> None:
    text = "pass\n" + PROCESSES.format(folder=str(tmp_path), method=method, python=sys.executable)
    done = run(text, "--json")
    # One wrapper, by its text, though each process has one.
    assert [row["calls"] for row in json.loads(done.stdout)["wrappers"]] == [2]
    assert launches(tmp_path / "dump") == 2


def test_pytest(run: Run, tmp_path: Path) -> None:
    """Its tests are probed, also in a worker process, and the verdict has the line of the test."""
    place = "os.environ['TORCHINDUCTOR_CACHE_DIR'] + os.environ['PYTEST_XDIST_WORKER']"
    (tmp_path / "test_model.py").write_text(
        f"{LOAD}def test_right(): assert load({place}) == [[2.0, 2.0], [2.0, 2.0]]\n"
        f"def test_wrong(): assert load({place}) == [[3.0, 3.0], [3.0, 3.0]]\n"
    )
    line = len((tmp_path / "test_model.py").read_text().splitlines())
    words = [PYTHON, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "test_model.py"]
    done = run(f"import subprocess; sys.exit(subprocess.call({words}))", code=1)
    assert "1 failed, 1 passed" in done.stdout
    assert "assert [[2.0, 2.0], [2.0, 2.0]] == [[3.0, 3.0], " in done.stdout
    assert f"test_model.py:{line} in test_wrong" in done.stdout.splitlines()[-1]
    assert launches(tmp_path / "dump") == 2


def test_a_shell_script_and_another_program_below_it(run: Run, tmp_path: Path) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text(f"{LOAD}\nload()")
    run(f"import subprocess; subprocess.run(['sh', '-c', '{sys.executable} {inner}'])")
    assert launches(tmp_path / "dump") == 1


def test_a_process_that_does_not_import_ours_is_named(run: Run, tmp_path: Path) -> None:
    """An isolated one, which may load what is probed elsewhere. Torch's own trace names the
    wrappers and their processes."""
    wrappers = ("ab/cabwrapper.py", "zz/czzother.py")
    rows = [{"inductor_output_code": {"filename": str(tmp_path / "cache" / x)}} for x in wrappers]
    start = "V1122 10:00:00.000000 1 torch/_inductor/graph.py:1]"
    entries = "".join(f"{start} {json.dumps(row)}\n" for row in rows)
    text = (
        "load()\n"
        "    log = pathlib.Path(os.environ['TORCH_TRACE'], 'dedicated_log_torch_trace_x.log')\n"
        f"    log.write_text({entries!r})"
    )
    done = run(text, "--json")
    unprobed = json.loads(done.stdout)["unprobed"]
    assert sorted(Path(one["wrapper"]).name for one in unprobed) == [x[3:] for x in wrappers]
    assert all("-I, -E or -S" in one["reason"] for one in unprobed)
    (warning,) = (x for x in done.stderr.splitlines() if "warning: not probed: " in x)
    assert all(Path(x).stem in warning for x in wrappers)


def test_an_isolated_program_is_said_to_be(run: Run, tmp_path: Path) -> None:
    text = f"import subprocess; sys.exit(subprocess.call([{PYTHON!r}, '-I', '-c', 'print(1)']))"
    done = run(text, code=2)
    assert "error[nothing-compiled]: the program ran, and loaded no wrapper" in done.stderr
    assert "-I, -E or -S" in done.stderr
    assert not (tmp_path / "dump").exists()


def test_the_program_sees_what_it_always_sees(run: Run, tmp_path: Path) -> None:
    """Its own `sitecustomize` runs, and modules and paths are the same before torch is imported."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.mine = __file__\n")
    shown = "print(sys.path, getattr(sys, 'mine', None), sorted(sys.modules), file=sys.stderr)"
    added = {"PYTHONPATH": tmp_path / "site", **cache(tmp_path)}
    done = run(f"{shown}\n    len(sys.argv) > 1 or load()", python=PYTHON, **added)
    program = [PYTHON, tmp_path / "program.py"]
    plain = programs.run(*program, "without torch", cwd=tmp_path, **added)
    assert done.stderr.splitlines()[0] == plain.stderr.splitlines()[0]
    assert "/site/sitecustomize.py" in plain.stderr
    assert launches(tmp_path / "dump") == 1


def test_lines_of_tracebacks_are_those_of_the_file(run: Run, tmp_path: Path) -> None:
    text = (
        "import torch, traceback, linecache\n"
        "    module = load(call=False)\n"
        "    try:\n"
        "        module.call([torch.ones(2, 3)])\n"
        "    except RuntimeError as error:\n"
        "        frame = traceback.extract_tb(error.__traceback__)[-1]\n"
        "        print(frame.lineno, frame.line, linecache.getline(frame.filename, 15).strip())"
    )
    done = run(text)
    line = "extern_kernels.mm(arg0_1, arg0_1, out=buf0)"
    assert done.stdout == f"15 {line} {line}\n", done.stderr


def test_only_what_was_asked_for(run: Run, tmp_path: Path) -> None:
    text = "load()\n    load(name='cd/ccdother.py', text=OTHER)"
    for option in (["--wrapper", "cabwra*"], ["--wrapper", "ab/*"], ["--kernels", "*.mm"]):
        done = run(text, "--json", *option)
        wrappers = [Path(row["wrapper"]).name for row in json.loads(done.stdout)["wrappers"]]
        assert wrappers == ["cabwrapper.py"]
    done = run(text, "--kernels", "*sofmax*", code=2)
    assert "error[no-wrapper-matches]" in done.stderr
    assert "There are extern_kernels.mm, extern_kernels.addmm." in done.stderr
    done = run(text, "--wrapper", "nosuch*", code=2)
    assert "There are cabwrapper, ccdother." in done.stderr


def test_a_program_that_compiles_nothing(run: Run, tmp_path: Path) -> None:
    done = run("print('ran')", code=2)
    assert done.stdout == "ran\n"
    assert "error[nothing-compiled]" in done.stderr
    assert not (tmp_path / "dump").exists()


def test_a_program_that_fails_before_it_compiles(run: Run, tmp_path: Path) -> None:
    assert "exit code 3" in run("raise SystemExit(3)", code=1).stderr


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo ran")
    (tmp_path / "script").chmod(0o755)
    place = ["-d", tmp_path / "dump", "--"]
    done = programs.rewriter("run", *place, tmp_path / "script", code=2, cwd=ROOT)
    assert done.stdout == ""
    assert "error[no-program]" in done.stderr
    assert not (tmp_path / "dump").exists()


def test_what_it_was_told(run: Run, tmp_path: Path) -> None:
    """The program finds its own environment, but for what the probes and the hook read."""
    names = ["REWRITER_DUMP", "REWRITER_QUIET", "MINE", "REWRITER_PROBE"]
    shown = f"load()\n    print(*[os.environ.get(x) for x in {names}], flush=True)\n    "
    shown += "print(sorted(os.environ))"
    done = run(shown, MINE="1", REWRITER_PROBE="off")
    told, variables = done.stdout.splitlines()[1:]
    assert told == f"{tmp_path / 'dump'} 1 1 None"
    added = set(eval(variables)) - set(os.environ) - {"MINE", "TORCHINDUCTOR_CACHE_DIR"}
    assert added - {"PYTHONPATH", "LC_CTYPE"} == {
        *("REWRITER_COMMAND", "REWRITER_DUMP", "REWRITER_HOOK", "REWRITER_QUIET", "TORCH_TRACE"),
    } - set(os.environ)


def test_a_program_from_standard_input(words: Callable[..., list[str]], tmp_path: Path) -> None:
    done = programs.run(*words("")[:-1], "-", given=f"{LOAD}\nload()", **cache(tmp_path))
    assert done.stdout == f"{LOADED}\n", done.stderr


def test_a_wrapper_that_has_probes_already(run: Run, tmp_path: Path) -> None:
    """Those are replaced for this run; the file keeps them."""
    import rewriter

    path = tmp_path / "cache/ab/cabwrapper.py"
    path.parent.mkdir(parents=True)
    path.write_text(WRAPPER)
    selection = rewriter.select(["names"])
    path.write_bytes(rewriter.instrument(path, selection, standalone=True).source)
    before = path.read_bytes()
    run("load(call=False).call([__import__('torch').ones(2, 2)])", "--probe", "save")
    assert path.read_bytes() == before
    (call,) = reading.open_dump(tmp_path / "dump").runs
    assert call.saves


TRAIN = """
import torch, sys
    for option in sys.argv[1:]:
        exec(option)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(model)
    for number, batch in enumerate([8, 8, 12, 16]):
        loss = step(torch.randn(batch, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(number, loss.item().hex(), flush=True)
"""


def wrappers_of(cache: Path) -> dict[str, tuple[object, ...]]:
    return {name: facts for name, facts in content(cache).items() if name.endswith(".py")}


@pytest.mark.parametrize("cpp", [False, pytest.param(True, marks=exhaustive)])
def test_training(cpp: bool, run: Run, words: Callable[..., list[str]], tmp_path: Path) -> None:
    """Forward and backward, and the same again with dynamic shapes: cold, and from a warm cache,
    which stays as it is; the losses are those of the plain program."""
    text = TRAIN.strip().replace(
        "torch.manual_seed(0)\n",
        "torch.manual_seed(0)\n    import torch._inductor.config as c; c.cpp_wrapper = True\n" * cpp
        or "torch.manual_seed(0)\n",
    )
    # The settings of C++ wrappers are read when torch is imported: not by a Python that has it.
    python = PYTHON if cpp else sys.executable
    cold = run(text, "--json", python=python)
    found = json.loads(cold.stdout)
    graphs = sorted((row["graph"], row["calls"]) for row in found["wrappers"])
    assert graphs == [("backward", 2), ("backward", 2), ("forward", 2), ("forward", 2)]
    assert found["unprobed"] == []
    before = content(tmp_path / "cache")
    warm = run(text, "--json", python=python)
    assert content(tmp_path / "cache") == before
    if not cpp:  # kernels, by the hash of their text and command: any other is built
        for made in [x for x in (tmp_path / "cache").glob("??/*") if x.suffix in (".so", ".o")]:
            (tmp_path / "plain" / made.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(made, tmp_path / "plain" / made.parent.name)
    plain = programs.run(*words(text, python=python)[-2:], **cache(tmp_path, "plain"))
    losses = plain.stdout.splitlines()
    for done in (cold, warm):
        assert [x for x in done.stderr.splitlines() if "0x" in x] == losses
    # The same names and bytes of wrappers as a plain run makes.
    names = {name: facts[0] for name, facts in wrappers_of(tmp_path / "cache").items()}
    assert names == {name: facts[0] for name, facts in wrappers_of(tmp_path / "plain").items()}
    built = {x.name for x in (tmp_path / "cache").rglob("*.so")}
    others = {x.name for x in (tmp_path / "plain").rglob("*.so")}
    assert (built < others) if cpp else (built == others)
    if not cpp:
        opened = reading.open_dump(tmp_path / "dump")
        assert len(opened.runs) == 8
        assert not any(row.get("nan") or row.get("inf") for row in events(tmp_path / "dump"))


# How a program keeps what was compiled, and how another one loads it.
_F = "import torch\ndef f(x): return ((x.sin() @ x.cos()).relu(),)\nx = torch.ones(8, 8)\n"
_STORED = {
    "mega-cache": (
        "print(torch.compile(f)(x)[0].sum())\n"
        "data, _ = torch.compiler.save_cache_artifacts()\nopen('stored', 'wb').write(data)",
        "torch.compiler.load_cache_artifacts(open('stored', 'rb').read())\n"
        "print(torch.compile(f)(x)[0].sum())",
    ),
    "aot_compile": (
        "made = torch.compile(f, fullgraph=True).aot_compile(((x,), {}))\n"
        "print(made(x)[0].sum())\nmade.save_compiled_function('stored')",
        "print(torch.compiler.load_compiled_function(open('stored', 'rb'))(x)[0].sum())",
    ),
    "standalone_compile": (
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "made = torch._inductor.standalone_compile(make_fx(f)(x), [x])\n"
        "print(made(x)[0].sum())\nmade.save(path='stored', format='binary')",
        "made = torch._inductor.CompiledArtifact.load(path='stored', format='binary')\n"
        "print(made(x)[0].sum())",
    ),
}


@exhaustive
@pytest.mark.parametrize("form", _STORED)
def test_what_a_program_keeps_and_another_one_loads(form: str, tmp_path: Path) -> None:
    printed = []
    for number, text in enumerate(_STORED[form]):
        program, dump = tmp_path / f"{number}.py", tmp_path / f"{number}.dump"
        program.write_text(_F + text)
        line = [PYTHON, "-m", "rewriter", "run", "--probe", "print", "--quiet", "-d", dump, "--"]
        kept = cache(tmp_path, f"cache{number}")
        done = programs.run(*line, PYTHON, program, cwd=tmp_path, **kept)
        assert launches(dump) == 1
        printed.append(next(x for x in done.stdout.splitlines() if x.startswith("tensor")))
    assert printed[0] == printed[1]


@exhaustive
def test_torchrun_and_workers(run: Run, tmp_path: Path) -> None:
    """Two ranks, each with a loader of data in two worker processes."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        f"{LOAD}\n"
        "import torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, at): return at\n"
        "if __name__ == '__main__':\n"
        "    list(torch.utils.data.DataLoader(Data(), num_workers=2))\n"
        "    load(os.path.join(os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['RANK']))\n"
    )
    start = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29571"]
    words = [PYTHON, *start, str(inner)]
    run(f"import subprocess; sys.exit(subprocess.call({words}))", "--json")
    opened = reading.open_dump(tmp_path / "dump")
    assert sorted(one.rank for one in opened.runs) == [0, 1]


def test_triage_starts_it_as_often_as_it_says(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    program = words("load()\n    os.abort()")[-2:]
    line = ["triage", "-d", tmp_path / "dump", "--json", "--", *program]
    found = json.loads(programs.rewriter(*line, code=1, **cache(tmp_path)).stdout)
    assert found["run"]["ended"]["signal"] == "SIGABRT"
    assert len((tmp_path / "starts").read_text()) == len(found["steps"]) + 1


def test_after_a_check_of_an_index_failed_diagnose_starts_it_once(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    said = "  what():  kernel, /c/ab.main.cpp:50, index out of bounds: 0 <= tmp2 < 100L"
    program = words(f"load()\n    print({said!r}, file=sys.stderr)\n    os.abort()")[-2:]
    line = ["diagnose", "-d", tmp_path / "dump", "--json", "--", *program]
    found = json.loads(programs.rewriter(*line, code=1, **cache(tmp_path)).stdout)
    assert (found["finding"]["kind"], len(found["runs"])) == ("crash", 1)
    assert "index out of bounds: 0 <= tmp2 < 100L" in found["finding"]["text"]
    assert (tmp_path / "starts").read_text() == "x"


SWITCH = """\
load()
    import subprocess, time
    control = [sys.executable, '-m', 'rewriter', 'control', os.environ['REWRITER_CONTROL']]
    subprocess.run([*control, *os.environ['ASKED'].split()], check=True)
    time.sleep(0.1)
    for _ in range(64): load()"""


@pytest.mark.parametrize("asked", ["set print --calls 2", "show"])
def test_probes_that_are_switched_on_later(asked: str, run: Run, tmp_path: Path) -> None:
    """The first call is not recorded; of those that follow, what was asked for, which is printed as
    where a wrapper was instrumented by hand."""
    recorded = 0 if asked == "show" else 2
    done = run(SWITCH, "--dormant", ASKED=asked)
    assert done.stdout.count(LOADED) == 65, done.stderr
    assert f"probes are off; to switch some on: rewriter control {tempfile.gettempdir()}" in (
        done.stderr
    )
    assert f"{recorded} launches recorded\n" in done.stderr
    assert launches(tmp_path / "dump") == recorded
    assert len(re.findall("#0 after .* min 2 ", done.stdout)) == recorded
    assert (tmp_path / "dump").exists() == bool(recorded)


def command_lines() -> Iterator[tuple[int, str]]:
    """The processes of this machine, with their command lines."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended
            yield int(path.name), (path / "cmdline").read_text("utf-8", "replace")


def test_variables_for_a_program_that_others_start(tmp_path: Path) -> None:
    """Two processes at once, which one server answers; the dump is completed meanwhile, also with a
    wrapper that is called later. Modules of the program are not those of the server."""
    later = 'load(name="ab/cablater.py", text=OTHER, call=False)'
    (tmp_path / "program.py").write_text(f"{LOAD}\n{later}\nload()")
    (tmp_path / "libcst.py").write_text("raise ImportError('of the program')")
    words = ["run", "--print-env", "--probe", "save", "--quiet", "-d", "x.dump"]
    printed = programs.rewriter(*words, cwd=tmp_path)
    (tmp_path / "env.sh").write_text(printed.stdout)
    program = f"{sys.executable} program.py"
    both = f". ./env.sh; {program} & {program}; wait"
    done = programs.run("sh", "-c", both, code=None, cwd=tmp_path, **cache(tmp_path))
    assert done.stdout.splitlines() == [LOADED, LOADED], done.stderr
    dump = tmp_path / "x.dump"
    deadline = time.monotonic() + 30
    names = ("cablater.py", "cabwrapper.py")
    while not all((dump / name).exists() for name in names) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert all("Instrumented by" in (dump / name).read_text() for name in names)
    assert launches(dump) == 2
    assert len(reading.open_dump(dump).runs) == 2
    folder = re.search(r"REWRITER_HOOK=(\S+)/socket", printed.stdout)
    assert folder is not None
    servers = [number for number, line in command_lines() if folder[1] in line]
    for server in servers:
        os.kill(server, signal.SIGKILL)
    assert len(servers) == 1
