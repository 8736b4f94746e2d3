"""Services and jobs with dormant probes, which are switched while they run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from capture import Compiled
from harness import events, load
from rewriter import cli
from rewriter.runtime import control

ROOT = Path(__file__).parents[2]

_WARNING = "it is no rewriter.control; nothing was switched"


def rewriter(*words: object) -> str:
    command = [sys.executable, "-m", "rewriter", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.05)


def runs_of(dump: Path) -> list[Path]:
    return sorted(dump.glob("rank*/run*/events.jsonl"))


def test_a_wrapper_is_switched_while_threads_call_it(
    tmp_path: Path,
    compiled: Callable[[str], Compiled],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, dump = tmp_path / "ctl", tmp_path / "dump"
    monkeypatch.setenv(control.VARIABLE, str(path))
    graph = compiled("mlp").graphs[0]
    source = tmp_path / "plain.py"
    source.write_text(graph.source)
    probed_file = tmp_path / "probed.py"
    assert cli.main(["instrument", str(source), "--dormant", "-o", str(probed_file)]) == 0
    plain = load(source.read_bytes(), tmp_path)
    probed = load(probed_file.read_bytes(), tmp_path)
    with torch.no_grad():
        expected = plain.call(list(graph.args))
        stopping, changed, counts = threading.Event(), [], [0] * 4

        def work(number: int) -> None:
            with torch.no_grad():
                while not stopping.is_set():
                    results = probed.call(list(graph.args))
                    counts[number] += 1
                    if not all(map(torch.equal, results, expected)):
                        changed.append(number)

        def switch(*words: str) -> None:
            assert cli.main(["control", str(path), *words]) == 0

        def warned() -> bool:
            said.append(capfd.readouterr().err)
            return _WARNING in "".join(said)

        said: list[str] = []
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            # What is on is replaced while calls begin; only the last request is left on.
            for _ in range(10):
                switch("set", "names", "--calls", "1", "--quiet")
            switch("set", "hash", "--launches", "0", "--calls", "10", "-d", str(dump), "--quiet")
            wait_for(lambda: len(runs_of(dump)) == 10)
            path.write_text("{")
            wait_for(warned)  # the file is looked at now and then, not at each call
            path.unlink()
            switch("off")
            before = sum(counts)
            wait_for(lambda: sum(counts) > before + 20)
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
    assert not changed
    assert len(runs_of(dump)) == 10
    assert {row["launch"] for row in events(dump) if "launch" in row} == {0}
    said.append(capfd.readouterr().err)
    assert "".join(said).count(_WARNING) == 1
    assert not probed._rw.on


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["wrapper", "package", "cpp"])
def test_a_service_under_load(tmp_path: Path, form: str) -> None:
    command = [sys.executable, "-m", "benchmarks.service", "--forms", form, "--seconds", "2"]
    command += ["--folder", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-3000:]
    assert " requests, 0 changed, 10 calls recorded, of cpp_fused__softmax_2" in result.stderr
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 9


TRAIN = """
import os, sys, time
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(model)
losses = []
while not os.path.exists(sys.argv[1]) or len(losses) < 30:
    loss = step(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
    time.sleep(0.002)
    if len(losses) == 3:
        print("ready", flush=True)
print(*losses[:30])
"""


@pytest.mark.exhaustive
def test_a_program_that_others_start_is_switched(tmp_path: Path) -> None:
    program, cache, stop = tmp_path / "train.py", tmp_path / "cache", tmp_path / "stop"
    program.write_text(TRAIN)
    path, dump = tmp_path / "ctl", tmp_path / "dump"
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    environment[control.VARIABLE] = str(path)
    command = [sys.executable, str(program), str(stop)]
    stop.touch()
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    stop.unlink()
    wrappers = {x: x.read_bytes() for x in cache.rglob("*.py")}
    # The shell of whoever starts a service sets what was printed.
    variables = rewriter("run", "--print-env", "--dormant", "-d", tmp_path / "env.dump")
    command = ["sh", "-c", f'{variables}\nexec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        rewriter("control", process.pid, "set", "hash", "--calls", 3, "-d", dump, "--quiet")
        wait_for(lambda: len(runs_of(dump)) == 6, process)  # forward and backward
        assert "off, 3 calls recorded" in rewriter("control", process.pid, "show")
        rewriter("control", path, "off")
        stop.touch()
        losses = process.stdout.read()
    assert process.returncode == 0
    assert losses == plain.stdout.removeprefix("ready\n")
    assert {x: x.read_bytes() for x in cache.rglob("*.py")} == wrappers


RANK = """
import os, sys, time
import torch, torch.distributed as dist
from pathlib import Path

dist.init_process_group("gloo")
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import probed

args = torch.load(folder / "args.pt")
expected = torch.load(folder / "expected.pt")
number = wrong = 0
stop = torch.zeros(1)
with torch.no_grad():
    while not stop.item():
        results = probed.call(list(args))
        wrong += not all(map(torch.equal, results, expected))
        number += 1
        time.sleep(0.002)
        stop.fill_((folder / "stop").exists())
        dist.all_reduce(stop)
        if number == 3:
            (folder / f"ready{dist.get_rank()}").touch()
(folder / f"wrong{dist.get_rank()}").write_text(str(wrong))
dist.destroy_process_group()
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not torch.distributed.is_available(), reason="a torch without distributed")
def test_the_ranks_of_a_job_are_switched_by_one_command(
    tmp_path: Path, compiled: Callable[[str], Compiled]
) -> None:
    graph = compiled("mlp").graphs[0]
    (tmp_path / "plain.py").write_text(graph.source)
    rewriter("instrument", tmp_path / "plain.py", "--dormant", "-o", tmp_path / "probed.py")
    torch.save(list(graph.args), tmp_path / "args.pt")
    with torch.no_grad():
        expected = load(graph.source.encode(), tmp_path).call(list(graph.args))
    torch.save(list(expected), tmp_path / "expected.pt")
    (tmp_path / "rank.py").write_text(RANK)
    path = tmp_path / "ctl"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(tmp_path / "rank.py"), str(tmp_path)]
    environment = {**os.environ, control.VARIABLE: str(path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, text=True) as process:
        wait_for(lambda: all((tmp_path / f"ready{x}").exists() for x in range(2)), process)

        def recorded(name: str, *words: object) -> Callable[[], list[str]]:
            dump = tmp_path / name
            rewriter("control", path, "set", "hash", "-d", dump, "--quiet", *words)
            return lambda: [x.parent.parent.name for x in runs_of(dump)]

        both = recorded("both", "--calls", 5)
        wait_for(lambda: sorted(both()) == ["rank0"] * 5 + ["rank1"] * 5, process)
        shown = rewriter("control", path, "show")
        assert shown.count("off, 5 calls recorded") == 2
        second = recorded("second", "--ranks", 1, "--every", 2, "--calls", 4)
        wait_for(lambda: second() == ["rank1"] * 4, process)
        calls = sorted(int(x.parent.name[3:]) for x in runs_of(tmp_path / "second"))
        assert {y - x for x, y in itertools.pairwise(calls)} == {2}
        timed = recorded("timed", "--for", "400ms")
        wait_for(lambda: {"rank0", "rank1"} <= set(timed()), process)
        time.sleep(1.0)
        count = len(timed())
        time.sleep(0.5)
        assert len(timed()) == count
        rewriter("control", path, "off")
        (tmp_path / "stop").touch()
    assert process.returncode == 0
    assert [(tmp_path / f"wrong{x}").read_text() for x in range(2)] == ["0", "0"]


NOTEBOOK = """
import code, sys

CELLS = [
'''
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))
start = [p.detach().clone() for p in net.parameters()]
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net)
def train(steps, block=None):
    with torch.no_grad():
        for p, value in zip(net.parameters(), start):
            p.copy_(value)
    torch.manual_seed(1)
    seen = []
    for number in range(steps):
        def step():
            optimizer.zero_grad()
            output = compiled(torch.randn(4, 8))
            output.square().sum().backward()
            seen.extend([output.detach(), *(p.grad.clone() for p in net.parameters())])
            optimizer.step()
        if block and number in (2, 3):
            with block():
                step()
        else:
            step()
    return seen
''',
"plain = train(6)",
"import sys; assert not any(x.split('.')[0] == 'rewriter' for x in sys.modules)",
'''
import rewriter
from rewriter.execution.loaded.find import loaded_entries
from rewriter.execution.loaded.code import functions_of
dumps = []
def codes():
    return [
        function.__code__
        for entry in loaded_entries()
        for function in functions_of(entry.__globals__).values()
    ]
before = codes()
class Block:
    def __enter__(self):
        self.manager = rewriter.probing("print,hash")
        dumps.append(self.manager.__enter__())
    def __exit__(self, *error):
        return self.manager.__exit__(*error)
probed = train(6, Block)
assert len(probed) == len(plain) and all(map(torch.equal, probed, plain))
assert [len(dump.calls) for dump in dumps] == [2, 2], [dump.calls for dump in dumps]
assert all(any(row.phase == "after" for row in dump) for dump in dumps)
assert codes() == before and before
''',
'''
try:
    with rewriter.probing("print") as dump:
        train(1)
        raise KeyError("a mistake in the cell")
except KeyError:
    pass
assert all(x is y for x, y in zip(codes(), before, strict=True))
assert len(list(dump)) and all(map(torch.equal, train(6), plain))
print("the notebook is done")
''',
]
class Kernel(code.InteractiveInterpreter):
    def showtraceback(self):
        super().showtraceback()
        sys.exit(1)
kernel = Kernel({"__name__": "__main__"})
for cell in CELLS:
    kernel.runsource(cell, "<cell>", "exec")
"""


@pytest.mark.exhaustive
def test_a_training_loop_in_a_notebook(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTEBOOK]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.endswith("the notebook is done\n")


MILLION = """
import gc, os, sys
import torch
from rewriter.execution import control
from pathlib import Path

torch.set_num_threads(1)
form, file, args, path, dump = sys.argv[1:]
if form == "wrapper":
    sys.path.insert(0, os.path.dirname(file))
    import probed
    given = torch.load(args)
    call = lambda: probed.call(list(given))
else:
    run, given = torch._inductor.aoti_load_package(file).loader.run, torch.load(args)
    call = lambda: run(given)

def resident():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

sizes = []
with torch.no_grad():
    for number in range(1_000_000):
        if number % 10_000 == 0:
            if number % 20_000:
                control.write(Path(path), control.off())
            else:
                request = control.request("hash", calls=5, dump=f"{dump}{number}", quiet=True)
                control.write(Path(path), request)
        call()
        if number % 100_000 == 99_999:
            sizes.append(resident())
print(*sizes)
"""


EXPORT = """
import sys, torch
net, x = torch.nn.Linear(4, 4).requires_grad_(False), torch.randn(2, 4)
exported = torch.export.export(net, (x,))
torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1])
torch.save([x], sys.argv[2])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["wrapper", "package"])
def test_memory_is_flat_in_a_million_calls(
    tmp_path: Path, form: str, compiled: Callable[[str], Compiled]
) -> None:
    suffix = ".py" if form == "wrapper" else ".pt2"
    plain, probed, args = (tmp_path / x for x in (f"plain{suffix}", f"probed{suffix}", "args.pt"))
    if form == "wrapper":
        graph = compiled("mlp").graphs[0]
        plain.write_text(graph.source)
        torch.save(list(graph.args), args)
    else:
        subprocess.run([sys.executable, "-c", EXPORT, plain, args], check=True)
    rewriter("instrument", plain, "--dormant", "-o", probed)
    path = tmp_path / "ctl"
    result = subprocess.run(
        [sys.executable, "-c", MILLION, form, probed, args, path, tmp_path / "d"],
        env={**os.environ, control.VARIABLE: str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    sizes = [int(x) for x in result.stdout.split()]
    assert len(sizes) == 10
    assert sizes[-1] - sizes[1] < 2 << 20, sizes
    assert len(list(tmp_path.glob("d*/rank0/run*"))) == 250
