"""Programs that keep their caches where they like: found, probed and restored.

The programs here load wrappers as Inductor does, and compile nothing; one that compiles is in
`test_engine.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artifacts import get
from caches import CUDA, MLP, ROOT, bytes_of, cache, command, content, heed_interrupts, make
from rewriter import cli
from rewriter.cache import journal, startup
from rewriter.cache.slots import scan

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive
PYTHON = sys.executable  # of the programs, which need no torch; commands start warm
# `load(cache, name)` writes a wrapper unless it is there, reads and compiles it, as
# `PyCodeCache` does, and prints whether it has probes.
LOADER = """
import os, pathlib, sys, tempfile
def load(cache, name):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    path = pathlib.Path(cache, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(pathlib.Path(sys.argv[1], path.name).read_bytes())
    with open(path) as file:
        text = file.read()
    compile(text, str(path), "exec")
    # In one write: lines of several processes do not mix.
    os.write(1, f"{os.path.basename(cache)} {'Instrumented by' in text}\\n".encode())
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """What the programs compile."""
    for fixture, name in (("cpu-torch2.13/mlp", MLP), ("cuda-torch2.11/mlp", CUDA)):
        path = tmp_path / "sources" / Path(name).name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(get(fixture).data)
    return tmp_path / "sources"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def words(tmp_path: Path, sources: Path) -> Callable[[str], list[str]]:
    """`words(text)` are those of a command that runs a program."""

    def write(text: str) -> list[str]:
        (tmp_path / "program.py").write_text(LOADER + text)
        options = ["run", "-d", str(tmp_path / "dump"), "--overwrite"]
        return [*options, "--", PYTHON, str(tmp_path / "program.py"), str(sources)]

    return write


@pytest.fixture
def run(words: Callable[[str], list[str]], tmp_path: Path) -> Run:
    """`run(text)` is `rewriter cache run` of a program, which finds an empty cache at first."""

    def start(text: str, *options: object, **added: str) -> subprocess.CompletedProcess[str]:
        first, *rest = words(text)
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "given"), **added}
        return cache(first, *options, *rest, env=environment)

    return start


def test_a_cache_of_its_own(run: Run, tmp_path: Path, sources: Path) -> None:
    done = run(f"load({str(tmp_path / 'own')!r}, {MLP!r})", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["runs"], found["others"]) == (2, [str(tmp_path / "own")])
    lines = [line for line in done.stderr.splitlines() if line.startswith("own ")]
    assert lines == ["own False", "own True"]
    assert bytes_of(tmp_path / "own")[MLP][0] == bytes_of(sources)[Path(MLP).name][0]
    assert not (tmp_path / "given").exists()
    assert [path.name for path in (tmp_path / "own").rglob("*.*")] == [Path(MLP).name]
    # Warm, by the directory that a verdict would name: it runs once.
    done = run(f"load({str(tmp_path / 'own')!r}, {MLP!r})", "--dir", tmp_path / "own")
    assert done.stdout == "own True\n"


def test_several_caches_one_after_another(run: Run, tmp_path: Path) -> None:
    """The first was warm, so that the run had probes: those of the others get some for another."""
    text = "".join(
        f"load({str(tmp_path / name)!r}, {wrapper!r})\n"
        for name, wrapper in (("given", MLP), ("second", CUDA), ("third", MLP))
    )
    (tmp_path / "given" / MLP).parent.mkdir(parents=True)
    (tmp_path / "given" / MLP).write_bytes(get("cpu-torch2.13/mlp").data)
    before = content(tmp_path / "given")
    done = run(text)
    assert done.returncode == 0, done.stderr
    # A text that has probes already is given them wherever the program writes it.
    assert done.stdout.split() == [
        *("given", "True", "second", "False", "third", "True"),
        *("given", "True", "second", "True", "third", "True"),
    ]
    assert "used 1 wrapper of other caches, which had no probes: it runs once more" in done.stderr
    assert content(tmp_path / "given") == before
    for name in ("second", "third"):
        assert {slot.state for slot in scan(tmp_path / name).slots} == {"plain"}
        assert not list((tmp_path / name).glob("**/.*"))


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=exhaustive)])
def test_a_cache_that_is_another_one_each_time(run: Run, tmp_path: Path, kept: bool) -> None:
    """In the second run, the wrappers get their probes when they are loaded."""
    (tmp_path / "new").mkdir()
    text = f"""
folder = tempfile.mkdtemp(dir={str(tmp_path / "new")!r})
load(folder, {MLP!r})
{"" if kept else "import shutil; shutil.rmtree(folder)"}
"""
    done = run(text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1::2] == ["False", "True"]
    assert "not probed" not in done.stderr
    folders = list((tmp_path / "new").iterdir())
    assert len(folders) == 2 * kept
    for folder in folders:
        assert [path.name for path in folder.rglob("*") if path.is_file()] == [Path(MLP).name]
        assert (folder / MLP).read_bytes() == get("cpu-torch2.13/mlp").data
    if not kept:
        assert "1 in caches that are gone by now" in done.stderr


ENGINES = """
import multiprocessing
def engine(number):
    load({folder!r} + f"/rank_{{number}}", {name!r})
    {then}
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    engines = [context.Process(target=engine, args=(n,), name=f"Engine-{{n}}") for n in range(2)]
    for one in engines:
        one.start()
    for one in engines:
        one.join()
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("fork", marks=exhaustive)])
def test_processes_with_caches_of_their_own(method: str, run: Run, tmp_path: Path) -> None:
    done = run(ENGINES.format(folder=str(tmp_path), name=MLP, method=method, then=""), "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["others"]) == [
        str(tmp_path / "rank_0"),
        str(tmp_path / "rank_1"),
    ]
    # One wrapper, by its text.
    assert [row["wrapper"] for row in json.loads(done.stdout)["wrappers"]] == [MLP]
    lines = [line for line in done.stderr.splitlines() if line.startswith("rank_")]
    assert sorted(lines[:2]) == ["rank_0 False", "rank_1 False"]
    assert sorted(lines[2:]) == ["rank_0 True", "rank_1 True"]


def test_killed_and_restored_by_the_next_command(
    words: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All caches, by the one that was asked for."""
    # The engines end with the program, which is killed with the command.
    then = "'REWRITER_DUMP' in os.environ and multiprocessing.parent_process().join(60)"
    text = ENGINES.format(folder=str(tmp_path), name=MLP, method="fork", then=then)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "given")}
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", PYTHON)  # who is killed is to be the command itself
        process: Any = subprocess.Popen(
            command(*words(text)),
            env=environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=heed_interrupts,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    lines = [process.stdout.readline().split() for _ in range(4)]
    assert [line[1] for line in lines] == ["False", "False", "True", "True"]
    engines = [tmp_path / "rank_0", tmp_path / "rank_1"]
    found = json.loads(cache("status", "--json", env=environment).stdout)
    assert found["running"]["others"] == list(map(str, engines))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for folder in engines:
        assert {slot.state for slot in scan(folder).slots} == {"instrumented"}
    done = cache("status", env=environment)
    assert done.returncode == 0, done.stderr
    for folder in engines:
        assert f"restored 1 wrapper that an interrupted `cache run` left in {folder}" in done.stderr
        assert {slot.state for slot in scan(folder).slots} == {"plain"}
        assert not (folder / journal.NAME).exists()


def test_a_cache_that_was_not_asked_for(run: Run, tmp_path: Path) -> None:
    """The user said which one; the error names the other."""
    text = f"load({str(tmp_path / 'own')!r}, {MLP!r})"
    done = run(text, "--dir", tmp_path / "empty")
    assert done.returncode == 2
    assert "error[nothing-compiled]" in done.stderr
    assert f"but some in {tmp_path / 'own'}" in done.stderr


def test_a_process_that_does_not_import_ours(run: Run, tmp_path: Path) -> None:
    """Torch's own trace names the wrappers."""
    row = {"inductor_output_code": {"filename": str(tmp_path / "own" / MLP)}}
    entry = f"V1122 10:00:00.000000 1 torch/_inductor/graph.py:1] {json.dumps(row)}\n"
    text = f"""
if sys.flags.isolated:
    load({str(tmp_path / "own")!r}, {MLP!r})
    log = pathlib.Path(os.environ["TORCH_TRACE"], "dedicated_log_torch_trace_x.log")
    log.write_text({entry!r})
else:
    os.execv(sys.executable, [sys.executable, "-I", *sys.argv])
"""
    environment = {"TORCH_TRACE": ""}
    done = run(text, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["own", "False", "own", "True"]


def test_the_program_sees_what_it_always_sees(run: Run, tmp_path: Path) -> None:
    """Its own `sitecustomize` runs, and the modules and paths are the same."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.mine = __file__\n")
    text = f"""
print(sys.path, getattr(sys, "mine", None), sorted(sys.modules), file=sys.stderr)
load({str(tmp_path / "own")!r}, {MLP!r})
"""
    for added in ({}, {"PYTHONPATH": str(tmp_path / "site")}):
        program = [PYTHON, str(tmp_path / "program.py"), str(tmp_path / "sources")]
        done = run(text, **added)
        plain = subprocess.run(
            program, env={**os.environ, **added}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
        assert lines == [*plain.stderr.splitlines()] * 2
        assert (str(tmp_path / "site" / "sitecustomize.py") in lines[0]) == bool(added)


def test_the_hook_needs_the_backup_of_the_other_rooms() -> None:
    from rewriter.core.files import BACKUP

    assert startup._BACKUP == BACKUP


# Leaves what a wrapper records that is called once, and dies.
DIES = f"""
sys.path.insert(0, {str(ROOT / "tests/support")!r})
if "REWRITER_DUMP" in os.environ:
    import dumps
    launch = dumps.launch(0, "cpp_fused_add_0", [dumps.value("x")], [dumps.value("buf0", "out")])
    dumps.write(pathlib.Path(os.environ["REWRITER_DUMP"]), [launch], artifact={Path(MLP).name!r})
os.abort()
"""


def test_triage_of_a_program_that_moves_its_cache(
    words: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """What it uses is known from the run as it is: it runs once with probes, and not once more."""
    program = words(f"load({str(tmp_path / 'own')!r}, {MLP!r})\n{DIES}")[3:]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "given")}
    command = [sys.executable, "-m", "rewriter", "triage", "--json", "-d", str(tmp_path / "dump")]
    done = subprocess.run(
        [*command, *program[1:]], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["run"]
    assert (found["runs"], found["others"]) == (1, [str(tmp_path / "own")])
    assert [verdict["artifact"] for verdict in found["verdicts"]] == [Path(MLP).name]
    assert found["ended"]["signal"] == "SIGABRT"
    assert {slot.state for slot in scan(tmp_path / "own").slots} == {"plain"}


def test_list_of_a_program(words: Callable[[str], list[str]], tmp_path: Path) -> None:
    """The wrappers that it used, and not the others in the same cache."""
    make(tmp_path / "own", [MLP, CUDA])
    program = words(f"load({str(tmp_path / 'own')!r}, {MLP!r})")[4:]
    done = cache("list", "--json", *program)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["path"] for row in found["wrappers"]] == [str(tmp_path / "own" / MLP)]
    assert found["others"] == [{"directory": str(tmp_path / "own"), "engine": "", "wrappers": 1}]
    done = cache("list", *program)
    assert "cabmlp0000  " in done.stdout
    assert f"1 wrapper used in {tmp_path / 'own'}" in done.stderr
    assert "error[nothing-compiled]" in cache("list", "--", "true").stderr
    assert cache("list", "--", "false").returncode == 1


@pytest.mark.parametrize(
    ("engine", "variable", "folder"),
    [
        ("vLLM", "VLLM_CACHE_ROOT", "torch_compile_cache/torch_aot_compile/ab12/inductor_cache"),
        ("vLLM", "VLLM_CACHE_ROOT", "torch_compile_cache/ab12/rank_0_0/inductor_cache"),
        ("SGLang", "SGLANG_CACHE_DIR", "torch_compile_cache/ab/rank_0_0/backbone/inductor_cache"),
        ("SGLang", "XDG_CACHE_HOME", "sglang/inductor"),
    ],
    ids=["vllm-aot", "vllm-rank", "sglang-piecewise", "sglang"],
)
def test_caches_of_engines_are_listed(
    engine: str,
    variable: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("VLLM_CACHE_ROOT", "SGLANG_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "given"))
    monkeypatch.setenv(variable, str(tmp_path))
    make(tmp_path / folder, [MLP])
    assert cli.main(["cache", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrappers"] == []
    path = str(tmp_path / folder)
    assert found["others"] == [{"directory": path, "engine": engine, "wrappers": 1}]
    assert cli.main(["cache", "list"]) == 0
    assert f"{engine}: 1 wrapper in {path}, " in capsys.readouterr().err
    assert cli.main(["cache", "list", "--dir", path]) == 0
    assert "cabmlp0000" in capsys.readouterr().out
