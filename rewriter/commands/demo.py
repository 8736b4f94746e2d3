"""`rewriter demo`: the whole tour, on a small model that is compiled on the spot.

Every step is the command that it shows, run through the same `main`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rewriter.commands._parser import Parser
from rewriter.core.errors import FAILED, OK, RewriterError
from rewriter.core.terminal import message, say

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
        return _tour(folder)
    with tempfile.TemporaryDirectory(prefix="rewriter-demo-") as scratch:
        return _tour(Path(scratch))


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
    from rewriter.cli import main

    if title:
        _say(title)
    say(f"$ rewriter {shlex.join(command)}")
    sys.stdout.flush()
    return main(command)


def _say(text: str) -> None:
    sys.stdout.flush()
    message("", f"# {text}")
