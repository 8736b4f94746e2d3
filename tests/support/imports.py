"""What a new interpreter has imported after some code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import programs

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable  # a new one, also where tests have put another in its place
# Beside these, each language of wrappers has a parser: libcst or tree_sitter.
HEAVY = ("torch", "numpy", "triton", "sympy")
PARSERS = ("libcst", "tree_sitter")


def imported(code: str, *arguments: object) -> set[str]:
    """The top-level modules that a new interpreter has after `code`, with `sys.argv` set."""
    tail = "import json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = programs.run(PYTHON, "-c", f"{code}\n{tail}", *arguments, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported_by(*commands: Sequence[object], code: int = 0) -> set[str]:
    """The modules that a new interpreter has after these command lines, one after the other."""
    lines = json.dumps([list(map(str, command)) for command in commands])
    run = "import json, sys; from rewriter.cli import main\n"
    run += f"for line in json.loads(sys.argv[1]): assert main(line) == {code}, line"
    return imported(run, lines)


COMMAND_LINE = (
    "import sys; from rewriter.cli import main; code = main(sys.argv[1:]); assert code == 0"
)
