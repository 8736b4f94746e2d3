"""Five faults of code generation, found by PyTorch's own procedure and by `rewriter diagnose`.

    python -m benchmarks.faults.upstream [--cases NAME ...] [--device cpu|cuda] [--ways NAME ...]

Each fault replaces one method of Inductor's code generator in every process of a program
(`sitecustomize.py`), as if Inductor had that defect. The program runs one small model.

PyTorch's procedure is its accuracy minifier: run the program under `TORCHDYNAMO_REPRO_AFTER=aot
TORCHDYNAMO_REPRO_LEVEL=4`, then the launcher that this writes, then the reproduction that the
launcher writes, with `TORCH_COMPILE_DEBUG=1` to get the kernels.

Counted are commands, graphs that Inductor compiles, CPU seconds of all processes, printed lines,
and lines of the files that have to be read to find the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.faults.judge import searched
from benchmarks.faults.programs import ROOT

PROGRAM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(48, 96)

    def forward(self, x):
        h = self.up(x)
        return {body}


torch.manual_seed(0)
model, x = Model().eval().to("{device}"), torch.randn(64, 48).to("{device}")
with torch.no_grad():
    print(torch.compile(model)(x).sum())
"""

# By device: module and class of the methods that generate the code of operations.
_WRITERS = {
    "cpu": ("torch._inductor.codegen.cpp", "CppVecOverrides"),
    "cuda": ("torch._inductor.codegen.triton", "TritonOverrides"),
}
# For each case: the method, its faulty replacement for the CPU, and the expression that the model
# computes. Models are small, since the minifier compiles once for each operator it tries to remove.
CASES = {
    "another function": ("erf", 'lambda x: f"{x}.tanh()"', "nn.functional.gelu(h)"),
    "swapped operands": (
        "sub",
        'lambda a, b: f"{b} - {a}"',
        "(h - h.mean(-1, keepdim=True)).sin()",
    ),
    "a factor of 1.001": (
        "sigmoid",
        'lambda x: f"{original(x)} * decltype({x})(1.001f)"',
        "torch.sigmoid(h * 0.75)",
    ),
    "a factor of 1.0001": (
        "sin",
        'lambda x: f"{x}.sin() * decltype({x})(1.0001f)"',
        "torch.sin(h).amax(-1)",
    ),
    "one for another": ("exp", 'lambda x: f"{x}.expm1()"', "torch.exp(-h)"),
}
# Replacements for a GPU, where they differ from those for the CPU.
_TRITON = {
    "another function": 'lambda x: f"libdevice.tanh({x})"',
    "a factor of 1.001": "lambda x: f'tl.sigmoid({x}) * 1.001'",
    "a factor of 1.0001": "lambda x: f'tl_math.sin({x}) * 1.0001'",
    "one for another": "lambda x: f'libdevice.expm1({x})'",
}

_SITE = """\
import importlib.abc, importlib.machinery, os, sys


def plant(module):
    original = module.{writer}.{method}
    module.{writer}.{method} = staticmethod({text})


def count(module):
    compile_to_module = module.GraphLowering.compile_to_module

    def counted(self):
        with open(os.environ["COUNT_COMPILED"], "a") as stream:
            stream.write("1\\n")
        return compile_to_module(self)

    module.GraphLowering.compile_to_module = counted


CHANGES = {"{module}": plant, "torch._inductor.graph": count}


class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        change = CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Planted())
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a procedure."""

    commands: int
    compiled: int  # graphs
    seconds: float
    cpu_seconds: float
    printed: int  # lines
    to_read: int  # lines
    answer: str  # what the user knows at the end


class Procedure:
    """Runs commands in one directory, and adds up their cost."""

    def __init__(self, folder: Path, case: str, device: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        method, text, body = CASES[case]
        text = text if device == "cpu" else _TRITON.get(case, text)
        program = PROGRAM.replace("{body}", body).replace("{device}", device)
        (folder / "model.py").write_text(program)
        (folder / "site").mkdir()
        module, writer = _WRITERS[device]
        site = _SITE.replace("{module}", module).replace("{writer}", writer)
        site = site.replace("{method}", method).replace("{text}", text)
        (folder / "site" / "sitecustomize.py").write_text(site)
        self._count = folder / "compiled"
        self._count.touch()
        self.commands = 0
        self.seconds = self.cpu_seconds = 0.0
        self.printed = 0

    def run(self, *command: str, **variables: str) -> str:
        """Run a command with additional environment variables. Returns what it printed."""
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), str(ROOT), *searched()]),
            "COUNT_COMPILED": str(self._count),
            "TORCH_COMPILE_DEBUG_DIR": str(self.folder / "debug"),
            **variables,
        }
        started = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds += time.monotonic() - started
        self.cpu_seconds += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.commands += 1
        text = ended.stdout + ended.stderr
        self.printed += len(text.splitlines())
        (self.folder / f"printed{self.commands}.txt").write_text(text)
        return text

    def cost(self, to_read: int, answer: str) -> Cost:
        compiled = len(self._count.read_text().splitlines())
        seconds = round(self.seconds, 1), round(self.cpu_seconds, 1)
        return Cost(self.commands, compiled, *seconds, self.printed, to_read, answer)


def minifier(folder: Path, case: str, device: str) -> Cost:
    """PyTorch's procedure: compile with its accuracy check, minify, and run the reproduction."""
    procedure = Procedure(folder, case, device)
    after = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": "4"}
    procedure.run(sys.executable, "model.py", **after)
    launcher = next(folder.glob("debug/**/minifier_launcher.py"), None)
    if launcher is None:
        return procedure.cost(0, "nothing: the check passes")
    procedure.run(sys.executable, str(launcher))
    reproduction = folder / "repro.py"
    if not reproduction.exists():
        return procedure.cost(_lines(launcher), "no reproduction: " + _last(folder))
    text = reproduction.read_text()
    said = procedure.run(
        sys.executable,
        str(reproduction),
        TORCH_COMPILE_DEBUG="1",
        TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
    )
    generated = sorted(folder.glob("debug/**/output_code.py"))
    nodes = text.count("torch.ops.")
    answer = f"a graph of {nodes} operators; {'it fails' if 'Error' in said else 'it passes'}"
    return procedure.cost(_lines(reproduction) + sum(map(_lines, generated[-1:])), answer)


def _last(folder: Path) -> str:
    lines = sorted(folder.glob("printed*.txt"))[-1].read_text().strip().splitlines()
    return lines[-1][:120] if lines else ""


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def printer(folder: Path, case: str, device: str) -> Cost:
    """PyTorch's other procedure: print statistics of all intermediate values in a C++ wrapper.

    The user still has to compare them with those of a correct run, by hand.
    """
    procedure = Procedure(folder, case, device)
    text = procedure.run(
        sys.executable,
        "model.py",
        AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER="2",
        TORCHINDUCTOR_CPP_WRAPPER="1",
    )
    lines = len(text.splitlines())
    return procedure.cost(lines, "values of all launches, none of which is called wrong")


def ours(folder: Path, case: str, device: str) -> Cost:
    procedure = Procedure(folder, case, device)
    command = [sys.executable, "-m", "rewriter", "diagnose", "-d", "values", "--"]
    text = procedure.run(*command, sys.executable, "model.py")
    found = [line for line in text.splitlines() if "does not compute" in line]
    return procedure.cost(len(text.splitlines()), found[0].strip() if found else text[-300:])


_WAYS = {"minifier": minifier, "printer": printer, "ours": ours}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--device", choices=tuple(_WRITERS), default="cpu")
    parser.add_argument("--ways", nargs="+", choices=tuple(_WAYS), default=tuple(_WAYS))
    parser.add_argument("--work", type=Path, default=Path("build/faults-upstream"), metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    rows = []
    for case in arguments.cases:
        for way in arguments.ways:
            folder = arguments.work.resolve() / f"{way}-{case.replace(' ', '-')}"
            cost = _WAYS[way](folder, case, arguments.device)
            rows.append({"case": case, "procedure": way, **asdict(cost)})
            print(json.dumps(rows[-1]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
