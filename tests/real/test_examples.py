"""The examples of the documents do what the documents show."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import programs
import transcripts
from artifacts import get
from pages import PAGES, ROOT, Block, page

pytestmark = pytest.mark.usefixtures("warm_python")

NOTHING: Mapping[str, str] = {}
# Runs a program whose own processes start warm, too.
START_ALIKE = """
import runpy, sys
_, sys.executable, program = sys.argv
runpy.run_path(program, run_name="__main__")
"""


def compiled(demo: Path) -> dict[str, str]:
    """The environment of a program that finds what the demo compiled."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(demo / ".cache"),
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, warm_module: None) -> Path:
    """What the demo leaves, and with it a wrapper and inputs for the examples."""
    folder = tmp_path_factory.mktemp("demo")
    done = programs.rewriter("demo", "file", "-d", folder, cwd=ROOT, **compiled(folder))
    assert "restored.py and output_code.py are identical." in done.stderr
    (folder / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return folder


def under(name: str, *headings: str) -> list[Block]:
    """The blocks of a page, or of its chapters with these headings."""
    whole = page(name)
    assert set(headings) <= set(whole.headings)
    return [block for block in whole.blocks if not headings or block.heading in headings]


def check(blocks: Sequence[Block], folder: Path, environment: Mapping[str, str] = NOTHING) -> None:
    kept = folder / ".kept"  # nothing is built before; the recorder is that of all tests
    if not kept.exists():
        kept.mkdir()
        (kept / "engine").symlink_to(Path(os.environ["REWRITER_CACHE_DIR"], "engine"))
    own = {
        "REWRITER_CACHE_DIR": str(kept),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / ".cache"),
        # Otherwise a test program is built for each instruction set, in every new cache.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        # What a command prints and what it says stand in their order.
        "PYTHONUNBUFFERED": "1",
    }
    differs = transcripts.play(blocks, folder, {**own, **environment})
    assert not differs, "".join(differs)


def test_the_demo_takes_the_steps_that_its_page_shows(demo: Path) -> None:
    shown = "".join(page("guides/by-hand.md").code("console"))
    run = (demo / "stdout.txt").read_text(encoding="utf-8").replace(f"{demo}{os.sep}", "")
    commands = r"^\$ (rewriter .*)$"
    assert re.findall(commands, run, re.M) == re.findall(commands, shown, re.M)


def test_the_example_of_the_python_api_runs(demo: Path, tmp_path: Path) -> None:
    for name in ("output_code.py", "inputs.pt"):
        shutil.copy(demo / name, tmp_path)
    (example,) = page("reference/api.md").code("python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    # Its lines, and those of the process that it starts, in their order.
    about = {**compiled(demo), "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": 1}
    line = [sys.executable, "-c", START_ALIKE, sys.executable, "example.py"]
    done = programs.run(*line, cwd=tmp_path, **about)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("0 extern_kernels.addmm extern_out [")
    assert lines[-1] == "0 None"
    assert list((tmp_path / "dump").glob("rank0/run0/000001/*.pt"))


def test_the_examples_of_extending_work(demo: Path, tmp_path: Path) -> None:
    """A launch shape is one new file, a probe two, and no other is touched."""
    for package in ("rewriter", "grammars"):
        shutil.copytree(ROOT / package, tmp_path / package)
    extending = page("project/extending.md")
    (probe,) = extending.code("python", "A new probe")
    (tmp_path / "rewriter/runtime/probes/count.py").write_text(probe, encoding="utf-8")
    (header,) = extending.code("cpp")
    (tmp_path / "rewriter/runtime/cpp/probes/count.h").write_text(header, encoding="utf-8")
    shape, _ = extending.code("toml")  # and a new backend: tests/locate/test_grammar.py
    (tmp_path / "grammars/python/fancy.toml").write_text(shape, encoding="utf-8")
    wrapper = (demo / "output_code.py").read_text(encoding="utf-8")
    (tmp_path / "wrapper.py").write_text(wrapper, encoding="utf-8")
    fancy = wrapper.replace("    cpp_fused_gelu_0(", "    torch.ops.fancy.mul_.default(")
    (tmp_path / "fancy.py").write_text(fancy, encoding="utf-8")

    def rewriter(*words: str) -> str:
        about = {**compiled(demo), "PYTHONPATH": tmp_path}
        return programs.rewriter(*words, cwd=tmp_path, **about).stdout

    assert "fallback    torch.ops.fancy.mul_.default" in rewriter("list", "fancy.py", "--strict")
    assert "cpp_fused_gelu_0: 256\n" in rewriter("run", "wrapper.py", "--probe", "count")


# Pages and chapters by what their commands need. What compiles models of its own is exhaustive: by
# default other tests do what these commands do.
BY_HAND = [
    under("guides/by-hand.md"),
    under("README.md", "One file", "Instrumented against plain"),
]
DIRECTORY = under("topics/directories.md", "Directories and logs")
LINES = under("topics/directories.md", "Lines of the model")
PAIRS = under("topics/pairs.md")
ARTIFACTS = under("topics/diff.md")
RUNS = under("topics/compare.md")
PROGRAMS = {
    "NaN": [*under("guides/nan.md"), *under("topics/report.md")],
    "crash": under("guides/crash.md", "On the CPU"),
    "change": under("guides/inductor-change.md"),
    "package": under("guides/package.md"),
    "repro": under("topics/repro.md", "A launch by itself"),
    "recorder": under("topics/recorder.md", "Try it"),
    "live": under("topics/live.md", "In a notebook or a test"),
    "trends": under("topics/long-runs.md", "Trends"),
}
FIRST = under("README.md", "A program")
CPP = under("topics/cpp.md", "Just in time")
AHEAD = under("topics/cpp.md", "Ahead of time")
PACKAGES = under("topics/packages.md", "Packages")
PACKAGE = under("README.md", "A package, patched in CI")

# The others, and what they lack.
NOT_PLAYED = {
    ("README.md", "Install"): "installs",
    ("README.md", "Try it"): "CI runs both: .ci/run",
    ("docs/index.md", "Begin"): "a program of the reader",
    ("docs/install.md", "Install"): "installs",
    ("docs/guides/crash.md", "A crash or a hang"): "a program of the reader",
    ("docs/guides/crash.md", "On a GPU"): "a GPU",
    ("docs/guides/crash.md", "Without triage"): "a program of the reader",
    ("docs/guides/serving.md", "A serving engine: vLLM, SGLang"): "an engine: test_engine.py",
    ("docs/project/extending.md", "A new launch shape"): "writes into the repository",
    ("docs/topics/containers.md", "Calling one"): "an artifact of the reader",
    ("docs/topics/containers.md", "Or leave the file alone"): "vLLM",
    ("docs/topics/containers.md", "Files in which torch keeps compiled models"): "vLLM",
    ("docs/topics/control.md", "A service, while it serves"): "a service: test_service.py",
    ("docs/topics/control.md", "Dormant probes"): "a service of the reader",
    ("docs/topics/directories.md", "Directories that are loaded as a whole"): "vLLM",
    ("docs/topics/directories.md", "Guards"): "an artifact of the reader",
    ("docs/topics/packages.md", "A library without its source"): "a library of the reader",
    ("docs/topics/posted.md", "By the text"): "a text of the reader: test_posted.py",
    ("docs/topics/posted.md", "On the CPU, in Triton's interpreter"): "Triton: test_interpret.py",
    ("docs/topics/posted.md", "Logs"): "a log of the reader: test_posted.py",
    ("docs/topics/programs.md", "A program that another command starts"): "a scheduler: "
    "test_program_run.py",
    ("docs/topics/ranks.md", "Several processes"): "a program of the reader",
    ("docs/topics/recorder.md", "A flight recorder"): "a service of the reader",
    ("docs/topics/recorder.md", "Reading it"): "a process that runs: test_record.py",
    ("docs/topics/recorder.md", "Triggers"): "a package of the reader",
    ("docs/topics/repro.md", "Under a tool"): "a wrapper with a fault: test_repro_forms.py",
    ("docs/topics/repro.md", "The smallest values"): "a wrapper with a fault: test_repro_forms.py",
    ("docs/topics/sanitize.md", "Memory faults"): "a program of the reader",
    ("docs/topics/sanitize.md", "The probes by themselves"): "a wrapper with a fault",
    ("docs/topics/verify.md", "What a launch is checked against"): "a kernel of the reader",
    ("docs/topics/verify.md", "Wrong numbers without a reference"): "a program of the reader",
}


def test_every_command_of_a_page_runs_or_lacks_something() -> None:
    alone = (DIRECTORY, LINES, PAIRS, ARTIFACTS, RUNS, FIRST, CPP, AHEAD, PACKAGES, PACKAGE)
    played = [*BY_HAND, *alone, *PROGRAMS.values()]
    plays = {(block.heading, block.text) for blocks in played for block in blocks}
    left = {
        (page.name, block.heading)
        for page in PAGES
        for block in page.blocks
        if block.language == "console" and (block.heading, block.text) not in plays
    }
    assert left == set(NOT_PLAYED)


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(BY_HAND[0], id="guide", marks=pytest.mark.exhaustive),
        pytest.param(BY_HAND[1], id="readme"),
    ],
)
def test_a_file_by_hand(blocks: list[Block], demo: Path, tmp_path: Path) -> None:
    for file in ("output_code.py", "inputs.pt"):
        shutil.copy(demo / file, tmp_path)
    check(blocks, tmp_path, compiled(demo))


def test_a_directory(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fixtures" / "traces" / "debug", tmp_path / "torch_compile_debug")
    check(DIRECTORY, tmp_path)


def test_a_cache_with_entries(tmp_path: Path) -> None:
    (archive,) = (ROOT / "fixtures" / "entries").glob("*-python.tar.xz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "cache", filter="data")
    check(LINES, tmp_path)


def test_a_pair(tmp_path: Path) -> None:
    for file in (ROOT / "fixtures" / "precompile").glob("*/m.*"):
        shutil.copy(file, tmp_path)
    check(PAIRS, tmp_path)


def transformer(folder: Path) -> Path:
    shutil.copy(get("cpu-torch2.13/transformer").path, folder / "old.py")
    return folder


def test_differences_of_artifacts(tmp_path: Path) -> None:
    check(ARTIFACTS, transformer(tmp_path))


@pytest.mark.exhaustive
@pytest.mark.skipif(
    "avx512f" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"),
    reason="the kernels of the recorded wrapper are for AVX-512",
)
def test_differences_of_runs(tmp_path: Path) -> None:
    check(RUNS, transformer(tmp_path))


def test_the_first_program(tmp_path: Path) -> None:
    check(FIRST, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, tmp_path: Path) -> None:
    check(PROGRAMS[name], tmp_path)


@pytest.mark.exhaustive
def test_a_wrapper_in_cpp(tmp_path: Path) -> None:
    check([*(block for block in FIRST if block.file), *CPP], tmp_path)


@pytest.mark.exhaustive
def test_a_package(tmp_path: Path) -> None:
    """The pages of a package, which the program on one of them makes."""
    check([*(block for block in PACKAGES if block.file), *AHEAD], tmp_path)
    check(PACKAGES, tmp_path)
    (tmp_path / "model.instrumented.pt2").unlink()
    (tmp_path / "restored.pt2").unlink()
    shutil.rmtree(tmp_path / ".kept")  # what was built before is not built again
    check(PACKAGE, tmp_path)
