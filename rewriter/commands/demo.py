"""`rewriter demo`: the whole tour, on a small model that is compiled on the spot.

Every step is the command that it shows, as its parser reads it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.commands import _top
from rewriter.commands._parser import Parser
from rewriter.core.errors import FAILED, OK, RewriterError
from rewriter.core.terminal import message, say

# What Inductor does to make later compilations faster takes longer than this one: it builds a test
# program for each instruction set of the processor, and precompiles its headers. Without them
# kernels are not vectorised, and the tour takes half as long (`vec_isa_ok` and
# `cpp_cache_precompile_headers` in torch/_inductor/config.py).
_ONE_SMALL_KERNEL = {
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
}

# Runs in a process of its own, so that the tour itself shows what does not need torch.
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


def add(parser: Parser) -> None:
    parser.group("output").add_argument(
        "-d", "--directory", metavar="DIR", help="keep the files of the tour in this directory"
    )
    parser.add_examples(
        ("the tour", "rewriter demo"), ("and keep its files", "rewriter demo -d tour")
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    if arguments.directory:
        folder = Path(arguments.directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RewriterError(
                "unwritable",
                f"cannot make {folder}: {error.strerror}",
                hint="Pass another path with -d.",
            ) from error
        with _environment(_ONE_SMALL_KERNEL):
            return _tour(folder)
    with (
        tempfile.TemporaryDirectory(prefix="rewriter-demo-") as scratch,
        _environment(_ONE_SMALL_KERNEL),
    ):
        return _tour(Path(scratch))


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


def _tour(folder: Path) -> int:
    wrapper, inputs = folder / "output_code.py", folder / "inputs.pt"
    _say("A model is compiled by torch.compile; this is all that Inductor leaves of it.")
    compiled = subprocess.run(
        [sys.executable, "-c", _COMPILE, str(wrapper), str(inputs)], capture_output=True, text=True
    )
    if compiled.returncode:
        raise RewriterError(
            "toolchain",
            f"torch.compile failed:\n{compiled.stderr.strip()[-2000:]}",
            hint="`rewriter doctor` says what is missing.",
            code=FAILED,
        )
    probed = folder / "output_code.instrumented.py"
    steps = [
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
        ("The original back, byte for byte.", ["strip", probed, "-o", folder / "restored.py"]),
    ]
    for title, command in steps:
        if code := _step(title, [str(part) for part in command]):
            return code
    same = (folder / "restored.py").read_bytes() == wrapper.read_bytes()
    _say(f"restored.py and output_code.py are {'identical' if same else 'DIFFERENT'}.")
    return OK if same else FAILED


def _step(title: str, command: list[str]) -> int:
    if title:
        _say(title)
    arguments = _top.parse(command)
    say(f"$ {arguments.command_line}")
    sys.stdout.flush()
    code: int = arguments.act(arguments)
    return code


def _say(text: str) -> None:
    sys.stdout.flush()
    message("", f"# {text}")
