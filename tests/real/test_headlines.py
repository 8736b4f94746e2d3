"""Twelve programs that fail in twelve ways: the first line of `rewriter diagnose` alone says what
is wrong, and where."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import programs
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive

_RAISES = """
model = torch.compile(torch.nn.Linear(16, 16))

def load(step):
    if step == 1:
        raise ValueError(f"no checkpoint of step {step}")

for step in range(3):
    load(step)
    model(torch.randn(4, 16))
"""
_IMPORTS = """
import no_such_library
torch.compile(torch.nn.Linear(16, 16))(torch.randn(4, 16))
"""
_NOT_COMPILED = """
@torch.compile
def model(x):
    return (x.sin() + 1).softmax(-1)

model(torch.randn(4, 16))
"""
_INDEX = """
embed = torch.nn.Embedding(50, 16)

@torch.compile
def model(ids):
    return embed(ids).relu().sum(1)

with torch.no_grad():
    ids = torch.randint(0, 50, (8, 12))
    model(ids)
    ids[3, 4] = 54
    model(ids)
"""
_KERNEL = """
scale = torch.nn.Parameter(torch.randn(4, 16))

@torch.compile
def model(x):
    return (x * scale).softmax(-1)

with torch.no_grad():
    model(torch.randn(4, 16))
    scale.untyped_storage().resize_(0)
    model(torch.randn(4, 16))
"""
_LIBRARY = """
import ctypes

@torch.library.custom_op("rows::lookup", mutates_args=())
def lookup(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1:
        ctypes.string_at(0)
    return x + 1

@lookup.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile
def model(x):
    return lookup(x * 2).relu()

model(torch.zeros(4, 16))
model(torch.ones(4, 16))
"""
_HANGS = """
import threading
model = torch.compile(torch.nn.Linear(16, 16))

def wait_for_data():
    threading.Event().wait()

model(torch.randn(4, 16))
wait_for_data()
"""
_RANKS = """
import os, tempfile
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as processes

def step(x):
    return functional.all_reduce(x.sin(), "sum", "0") * 2

def worker(rank, folder):
    os.environ["RANK"] = str(rank)
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    compiled = torch.compile(step)
    for number in range(4):
        if rank == 0 or number != 2:
            compiled(torch.randn(4, 16))
    dist.barrier()

if __name__ == "__main__":
    processes.spawn(worker, (tempfile.mkdtemp(),), nprocs=2)
"""
_MEMORY = """
@torch.compile(dynamic=True)
def model(x):
    return (x[:, None] * x[None, :]).cos()

model(torch.randn(16))
model(torch.randn(1 << 23))
"""
_MAKES_NAN = """
@torch.compile
def model(x):
    return torch.log(x - 1).sigmoid()

model(torch.zeros(4, 16))
"""
_GIVEN_NAN = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

    def forward(self, x):
        return self.down_proj(self.up_proj(x).relu()).softmax(-1)

torch.manual_seed(0)
block = Block()
with torch.no_grad():
    block.down_proj.weight[:, 3] = float("inf")
    torch.compile(block)(torch.randn(4, 16))
"""
_WRONG = """
@torch.compile
def model(x):
    return torch.sigmoid(x) * 3

model(torch.randn(4, 16))
"""
# The program, options, and what its first line says, in this order.
PROGRAMS = {
    "exception": (_RAISES, [], [
        "raised ValueError: no checkpoint of step 1 at train.py:7 in load, outside of compiled code"
    ]),
    "import": (_IMPORTS, [], [
        "raised ModuleNotFoundError: No module named 'no_such_library' at train.py:3, outside of"
    ]),
    "compiler": (_NOT_COMPILED, [], [
        "raised torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler",
        "'no-such-g++'", "while compiling what is called at train.py:7",
    ]),
    "index": (_INDEX, [], [
        "index out of bounds in launch #0 cpp_fused_embedding", "ids holds 54, embed.weight has 50"
        " rows", "train.py:7",
    ]),
    "kernel": (_KERNEL, [], [
        "the program ended in launch #0 cpp_fused__softmax_mul_0", "SIGSEGV", "train.py:7",
    ]),
    "library": (_LIBRARY, [], [
        "the program ended in launch #1 torch.ops.rows.lookup", "SIGSEGV", "train.py:17",
    ]),
    "hang": (_HANGS, ["--timeout", "20"], [
        "stopped at the time limit of 20 s at train.py:7 in wait_for_data, outside of compiled code"
    ]),
    "ranks": (_RANKS, ["--timeout", "60"], [
        "rank 1 is 1 call behind rank 0, which waits for it", "time limit of 60 s",
    ]),
    "memory": (_MEMORY, [], [
        "raised RuntimeError: ", "can't allocate memory: you tried to allocate 281474976710656",
        "train.py:3 in model, in compiled code",
    ]),
    "makes NaN": (_MAKES_NAN, [], [
        "launch #0 cpp_fused_log", "makes the first NaN: ", "train.py:5",
        "the launch computes what its graph says, so the NaN is the model's",
    ]),
    "given NaN": (_GIVEN_NAN, [], [
        "launch #2 extern_kernels.addmm", "makes the first NaN, of infinities in the"
        " inputs of the call (16 of 1,024 elements of down_proj.weight): 32 of 64",
        "rank 0, 1st call", "train.py:9",
    ]),
    "wrong": (_WRONG, [], [
        "launch #0 cpp_fused_mul_sigmoid_0", "train.py:5", "does not compute what it claims: 64 of",
    ]),
}  # fmt: skip
_QUICK = ("exception", "import")  # each of the others takes some 10 s or more


@pytest.mark.parametrize(
    "name", [x if x in _QUICK else pytest.param(x, marks=exhaustive) for x in PROGRAMS]
)
def test_the_first_line_says_what_is_wrong_and_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, options, words = PROGRAMS[name]
    (tmp_path / "train.py").write_text(f"import torch\n{program}")
    python = sys.executable
    if name == "compiler":
        monkeypatch.setenv("CXX", "no-such-g++")
    if name in ("compiler", "ranks"):  # not the one of the tests, which is imported already
        python = str(Path(sys.prefix, "bin/python"))
    if name in ("compiler", "wrong"):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    if name == "wrong":
        programs.run(python, "train.py")
        (wrapper,) = (
            x for x in (tmp_path / "cache").rglob("c*.py") if "cpp_fused" in x.read_text()
        )
        text = wrapper.read_text()
        assert "static_cast<float>(3.0)" in text
        wrapper.write_text(text.replace("static_cast<float>(3.0)", "static_cast<float>(2.0)"))
    capfd.readouterr()
    assert main(["diagnose", "-d", "found", *options, "--", python, "train.py"]) == 1
    out, err = capfd.readouterr()
    first = out.split("\ndiagnosis: ")[-1].removeprefix("diagnosis: ").partition("\n")[0]
    if name == "makes NaN":  # said before the checks, which may take minutes
        assert "run 2 of at most 3: launch #0 cpp_fused_log" in err
        assert "makes the first NaN: " in err
    at = 0
    for word in words:
        assert word in first[at:], first
        at = first.index(word, at)
    assert json.loads(Path("found/diagnosis.json").read_text())["headline"] == first
