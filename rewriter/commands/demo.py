"""`rewriter demo`: the whole tour, on small models that are compiled on the spot.

Every step is the command that it shows.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rewriter.commands import _options, _top
from rewriter.commands._click import argument, command
from rewriter.commands._options import OUTPUT
from rewriter.core.errors import DIFFERS, FAILED, OK, RewriterError
from rewriter.core.terminal import message, say

# What Inductor does to make later compilations faster takes longer than this one: it builds a test
# program for each instruction set of the processor, and precompiles its headers. Without them
# kernels are not vectorised, and the tour takes half as long (`vec_isa_ok` and
# `cpp_cache_precompile_headers` in torch/_inductor/config.py).
_ONE_SMALL_KERNEL = {
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
}

# Each runs in a process of its own, so that the tour itself shows what does not need torch.
_COMPILE = """
import sys, torch
from torch._inductor.utils import run_and_get_code
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
with torch.no_grad():
    inputs = torch.randn(8, 16)
    _, (source, *_) = run_and_get_code(torch.compile(model), inputs)
weights = [model[0].weight, model[0].bias, inputs, model[2].weight, model[2].bias]
open(sys.argv[1], "w").write(source)
torch.save([weight.detach() for weight in weights], sys.argv[2])
"""
_PACKAGE = """
import sys, torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)
        layers = nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)
        self.mlp = nn.Sequential(*layers)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(x)

torch.manual_seed(0)
with torch.no_grad():
    x = torch.randn(2, 32, 64)
    exported = torch.export.export(Block().eval(), (x,))
    torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1])
torch.save([x], sys.argv[2])
"""
_NAN = """\
import torch

torch.manual_seed(0)
linear, head = torch.nn.Linear(64, 256), torch.nn.Linear(256, 16)


@torch.compile
def model(x):
    gate = torch.log(linear(x)).sigmoid()
    return head(gate).softmax(-1)


with torch.no_grad():
    print("NaN:", model(torch.randn(32, 64)).isnan().sum().item())
"""


class Arguments(_options.Arguments):
    parts: tuple[str, ...] = argument(
        "[PART ...]", "only these parts of the tour: file, package, nan (default: all)", nargs=-1
    )
    directory: str | None = OUTPUT.option(
        "-d, --directory DIR", "keep the files of the tour in this directory"
    )


@command(
    Arguments,
    ("the tour", "rewriter demo"),
    ("and keep its files", "rewriter demo -d tour"),
    ("a package alone", "rewriter demo package"),
)
def act(arguments: Arguments) -> int:
    parts = {"file": _file, "package": _package, "nan": _nan}
    if unknown := [name for name in arguments.parts if name not in parts]:
        raise RewriterError(
            "no-such-part",
            f"the tour has no part {unknown[0]!r}",
            hint=f"Its parts are {', '.join(parts)}.",
        )
    if arguments.directory:
        try:
            Path(arguments.directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RewriterError(
                "unwritable",
                f"cannot make {arguments.directory}: {error.strerror}",
                hint="Pass another path with -d.",
            ) from error
    with ExitStack() as closed:
        folder = arguments.directory or closed.enter_context(
            tempfile.TemporaryDirectory(prefix="rewriter-demo-")
        )
        closed.enter_context(_environment(_ONE_SMALL_KERNEL))
        for name in arguments.parts or parts:
            if code := parts[name](Path(folder)):
                return code
    return OK


@contextmanager
def _environment(defaults: dict[str, str]) -> Iterator[None]:
    """Variables for the processes of the tour; those that somebody has set stay as they are."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _file(folder: Path) -> int:
    """A wrapper in a file: instrumented, run, compared with the plain one, and restored."""
    wrapper, inputs = folder / "output_code.py", folder / "inputs.pt"
    _say("1. A model is compiled by torch.compile; this is all that Inductor leaves of it.")
    _compile(_COMPILE, wrapper, inputs)
    probed = folder / "output_code.instrumented.py"
    return _steps(
        ("Its launches, without importing torch.", ["list", wrapper]),
        (
            "What probes around one kernel change.",
            ["instrument", wrapper, "--probe", "print", "--launches", "1", "--diff"],
        ),
        (
            "Probes in, and the result run on the model's own weights and inputs.",
            ["instrument", wrapper, "--probe", "print,save", "--overwrite"],
        ),
        ("", ["run", probed, "--args", inputs, "-d", folder / "dump", "--overwrite"]),
        ("Do the two files differ in more than probes?", ["diff", wrapper, probed]),
        ("The original back, byte for byte.", ["strip", probed, "-o", folder / "restored.py"]),
    ) or _compare(folder / "restored.py", wrapper)


def _package(folder: Path) -> int:
    """A package of AOTInductor: patched without its model, run, and restored."""
    model, inputs = folder / "model.pt2", folder / "x.pt"
    _say("2. A transformer block in a package of AOTInductor. Its model is gone.")
    _compile(_PACKAGE, model, inputs)
    probed = folder / "model.instrumented.pt2"
    return _steps(
        (
            "Only its wrapper is compiled again: kernels and weights stay as they are.",
            ["instrument", model, "--probe", "print", "--overwrite"],
        ),
        (
            "It prints wherever it is loaded.",
            ["run", probed, "--args", inputs, "-d", folder / "package.dump", "--overwrite"],
        ),
        ("The original back.", ["strip", probed, "-o", folder / "restored.pt2"]),
    ) or _compare(folder / "restored.pt2", model)


def _nan(folder: Path) -> int:
    """A program whose model returns NaN: the launch that makes the first one, and its line."""
    program = folder / "model.py"
    program.write_text(_NAN, encoding="utf-8")
    _say("3. This program returns NaN. Which kernel makes it, and which line of the model?")
    say(*(f"    {line}" for line in _NAN.splitlines()))
    with _environment({"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}):
        words = ["run", "-d", str(folder / "nan.dump"), "--overwrite", "--"]
        code = _step("", [*words, sys.executable, str(program)], "run -- python model.py")
    return OK if code == DIFFERS else code or FAILED  # it found the NaN


def _compile(program: str, *paths: Path) -> None:
    compiled = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True
    )
    if compiled.returncode:
        raise RewriterError(
            "toolchain",
            f"torch.compile failed:\n{compiled.stderr.strip()[-2000:]}",
            hint="`rewriter doctor` says what is missing.",
            code=FAILED,
        )


def _steps(*steps: tuple[str, Sequence[object]]) -> int:
    """Take steps until one fails."""
    codes = (_step(title, list(map(str, words))) for title, words in steps)
    return next(filter(None, codes), OK)


def _step(title: str, words: list[str], shown: str = "") -> int:
    if title:
        _say(title)
    say(f"$ rewriter {shown or shlex.join(words)}")
    sys.stdout.flush()
    return _top.run(words)


def _compare(restored: Path, original: Path) -> int:
    same = restored.read_bytes() == original.read_bytes()
    _say(f"{restored.name} and {original.name} are {'identical' if same else 'DIFFERENT'}.")
    return OK if same else FAILED


def _say(text: str) -> None:
    sys.stdout.flush()
    message("", f"# {text}")
