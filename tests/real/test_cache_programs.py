"""`rewriter cache run` on programs that compile, as they are."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caches import bytes_of, cache, command, content, heed_interrupts
from harness import events
from rewriter.cache.slots import scan
from rewriter.dump import reading

pytestmark = pytest.mark.usefixtures("warm_python")

# Forward and backward, and the same again with dynamic shapes.
TRAIN = """
import os, sys
import torch
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
    if number == 2 and "stop" in globals():
        stop()
"""
STEPS = 4
FROZEN = """
import sys
import torch
import torch._inductor.config as config
config.freezing = True
config.cpp.weight_prepack = sys.argv[1] == "packed"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).eval()
step = torch.compile(model)
with torch.no_grad():
    print(step(torch.ones(8, 16)).sum().item().hex())
"""


@dataclass(frozen=True)
class Trained:
    """The first run of the training program, in an empty cache: its cache, its dump, its output."""

    program: Path
    cache: Path
    dump: Path
    done: subprocess.CompletedProcess[str]

    @property
    def losses(self) -> list[str]:
        return self.done.stdout.splitlines()[:STEPS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, warm_module: None) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    program = folder / "train.py"
    program.write_text(TRAIN)
    directory = folder / "cache"
    words = ["--", sys.executable, program]
    done = cache("run", "--dir", directory, "-d", folder / "dump", *words)
    assert done.returncode == 0, done.stderr
    return Trained(program, directory, folder / "dump", done)


@pytest.fixture
def warm(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the cache that the program has filled."""
    shutil.copytree(trained.cache, tmp_path / "cache", symlinks=True)
    return tmp_path / "cache"


def run(trained: Trained, directory: Path, *options: object, before: Any = ()) -> Any:
    return cache(
        "run",
        "--json",
        "--dir",
        directory,
        "-d",
        directory.parent / "dump",
        *before,
        "--",
        sys.executable,
        trained.program,
        *options,
    )


def losses(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the program printed, among the messages: with --json it goes there."""
    return [line for line in done.stderr.splitlines() if line[:1].isdigit() and "0x" in line]


def graphs(found: dict[str, Any]) -> list[tuple[str, int]]:
    return sorted((row["graph"], row["calls"]) for row in found["wrappers"])


def assert_nothing_is_left(directory: Path) -> None:
    assert {slot.state for slot in scan(directory).slots} == {"plain"}
    for path in directory.rglob("*"):
        assert not path.is_file() or b"Instrumented by" not in path.read_bytes(), path
    assert not list(directory.glob(".rewriter*"))


def test_cold(trained: Trained) -> None:
    """Twice in one command: without probes, and with them. The losses are the same."""
    lines = trained.done.stdout.splitlines()
    assert len(lines) == 2 * STEPS
    assert lines[:STEPS] == lines[STEPS:]
    assert_nothing_is_left(trained.cache)


def test_the_dump_has_every_graph_and_step(trained: Trained) -> None:
    opened = reading.open_dump(trained.dump)
    assert len(opened.runs) == 2 * STEPS
    wrappers = {slot.path.name: slot.wrapper for slot in scan(trained.cache).slots}
    order = [wrappers[run.artifact].graph for run in opened.runs]
    assert order == ["forward", "backward"] * STEPS
    for one in opened.runs:
        launches = [step.launch for step in one.steps if step.launch is not None]
        assert launches == [launch.index for launch in wrappers[one.artifact].launches]
    measured = [row for row in events(trained.dump) if "numel" in row]
    assert measured
    assert not any(row["nan"] or row["inf"] for row in measured)
    # As they ran: for the report, and for whoever asks later.
    for name in wrappers:
        assert b"Instrumented by" in (trained.dump / name).read_bytes()


def test_warm_and_aborted(trained: Trained, warm: Path) -> None:
    """The cache is as it was, and where the program was is said."""
    before = content(warm)
    done = run(trained, warm, "stop = os.abort")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert losses(done) == trained.losses[:3]
    assert found["runs"] == 1
    assert found["ended"]["signal"] == "SIGABRT"
    assert graphs(found) == [("backward", 1), ("backward", 2), ("forward", 1), ("forward", 2)]
    (verdict,) = found["verdicts"]
    assert verdict["state"] == "over"
    assert verdict["launch"] == 4
    assert content(warm) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("disabled", [False, True], ids=["deleted", "disabled"])
def test_without_the_caches_of_graphs(
    disabled: bool, trained: Trained, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program compiles again, and takes the wrapper that is there."""
    for name in ("fxgraph", "aotautograd"):
        shutil.rmtree(warm / name)
    if disabled:
        monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    before = bytes_of(warm)
    done = run(trained, warm)
    found = json.loads(done.stdout)
    assert losses(done) == trained.losses, done.stderr
    assert (done.returncode, found["runs"], found["unprobed"]) == (0, 1, [])
    assert sum(count for _, count in graphs(found)) == 2 * STEPS
    after = bytes_of(warm)
    assert {name: after[name] for name in before} == before
    assert_nothing_is_left(warm)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_stopped_in_the_middle(number: int, trained: Trained, warm: Path) -> None:
    before = content(warm)
    waits = "import time; stop = lambda: time.sleep(300)"
    program = [sys.executable, str(trained.program), waits]
    process = subprocess.Popen(
        [*command("run", "--dir", warm, "-d", warm.parent / "dump", "--"), *program],
        stdin=subprocess.DEVNULL,
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for expected in trained.losses[:3]:
        assert process.stdout.readline() == expected + "\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert content(warm) != before
        assert "restored 4 wrappers" in cache("list", "--dir", warm).stderr
    assert content(warm) == before
    assert events(warm.parent / "dump")


@pytest.mark.exhaustive
def test_cpp_wrappers(trained: Trained, tmp_path: Path) -> None:
    """Cold, then warm: what was built of instrumented C++ is gone afterwards."""
    option = "import torch._inductor.config as c; c.cpp_wrapper = True"
    done = run(trained, tmp_path / "cache", option)
    found = json.loads(done.stdout)
    assert (done.returncode, found["runs"]) == (0, 2), done.stderr
    assert losses(done)[:STEPS] == losses(done)[STEPS:]
    assert sum(count for _, count in graphs(found)) == 2 * STEPS
    assert {slot.wrapper.language for slot in scan(tmp_path / "cache").slots} == {"cpp"}
    assert_nothing_is_left(tmp_path / "cache")
    before = content(tmp_path / "cache")
    done = run(trained, tmp_path / "cache", option, before=["--overwrite", "--probe", "names"])
    assert json.loads(done.stdout)["runs"] == 1
    assert content(tmp_path / "cache") == before


@pytest.mark.exhaustive
def test_frozen_weights_in_cached_graphs(trained: Trained, tmp_path: Path) -> None:
    """The graph is in the cache, and so its wrapper is found again."""
    (tmp_path / "frozen.py").write_text(FROZEN)
    words = ["--", sys.executable, tmp_path / "frozen.py", "plain"]
    options = ["--json", "--dir", tmp_path / "cache", "-d", tmp_path / "dump"]
    found = json.loads(cache("run", *options, *words).stdout)
    assert (found["runs"], found["unprobed"]) == (2, [])
    assert graphs(found) == [("inference", 1)]
    assert_nothing_is_left(tmp_path / "cache")


@pytest.mark.exhaustive
def test_frozen_weights_that_are_packed(trained: Trained, tmp_path: Path) -> None:
    """The graph is in no cache: the wrapper is a new one each time, which is said."""
    (tmp_path / "frozen.py").write_text(FROZEN)
    words = ["--", sys.executable, tmp_path / "frozen.py", "packed"]
    options = ["--json", "--dir", tmp_path / "cache", "-d", tmp_path / "dump"]
    done = cache("run", *options, *words)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert [one["frozen"] for one in found["unprobed"]] == [True]
    assert "the weights are frozen" in done.stderr
    assert_nothing_is_left(tmp_path / "cache")
