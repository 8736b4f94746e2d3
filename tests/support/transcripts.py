"""Runs the commands of a page, and compares what they print with what the page shows.

In a page, `…` on a line of its own stands for any lines, and elsewhere for any text. What depends
on the machine is not compared: times, sizes, hashes, names of wrappers, and line numbers in them.
Numbers with a fraction may differ by two in a hundred.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pages import ROOT, Block

_MARK = "\x1e"  # between the outputs of two commands
_RELATIVE = 0.02

_KINDS = "extern_out|extern_alloc|cpp|fallback|custom_op|triton"
_DEPENDS = re.compile(
    r"(?P<wrapper>\bc[a-z2-7]{13,}|(?<=inference )c[a-z2-7]{5}\b)"
    r"|(?P<line>(?<=\bline )\d+)"
    rf"|(?P<row>(?<=  )\d+(?=\s+(?:{_KINDS})\s))"
    r"|(?P<time>\b\d+(?:\.\d+)?(?= s\b))"
    r"|(?P<size>\b\d+\.\d+(?= MB\b))"
    r"|(?P<hash>\b[0-9a-f]{16}\b|(?<=rewriter:)[0-9a-f]{8}\b)"
    r"|(?P<number>(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?\b|(?<![\w.])-?\d+e[+-]?\d+\b)"
    r"|(?P<any>…)"
    r"|(?P<space>\s+)"
)
_PATTERNS = {
    "wrapper": r"c[a-z2-7]+",
    "line": r"\d+",
    "row": r"\d+",
    "time": r"[\d.]+",
    "size": r"[\d.]+",
    "hash": r"[0-9a-f]+",
    "number": r"(-?[\d.]+(?:e[+-]?\d+)?)",
    "any": r".*?",
    "space": r"\s+",
}


@dataclass(frozen=True)
class Step:
    """A command, and the lines that it prints."""

    command: str
    lines: tuple[str, ...]


def steps(block: Block) -> list[Step]:
    """The commands of a block of the language `console`."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    split = [part.rstrip("\n").split("\n") for part in parts]
    return [Step(command, tuple(lines)) for command, *lines in split]


def play(blocks: Iterable[Block], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run the blocks of a page in `folder`; what differs from the page, as text.

    Python blocks that name their file become files; all commands run in one shell.
    """
    expected: list[Step] = []
    for block in blocks:
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            expected += steps(block)
    script = "".join(f"{step.command}\nprintf '{_MARK}%s\\n' $?\n" for step in expected)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **environment, "PATH": _path(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    outputs = re.findall(rf"(.*?){_MARK}(\d+)\n", done.stdout, re.DOTALL)
    assert len(outputs) == len(expected), done.stdout
    wrong = []
    for step, (output, code) in zip(expected, outputs, strict=True):
        actual = output.splitlines()
        if int(code) > 1 or not agree(step.lines, actual):
            wrong.append(f"$ {step.command}\n{output}exit code {code}; the page has:\n")
            wrong += [f"{line}\n" for line in step.lines]
    return wrong


def agree(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether the lines of a page stand for these lines."""
    if not expected:
        return not actual
    first, rest = expected[0], expected[1:]
    if first.strip() == "…":
        return any(agree(rest, actual[skip:]) for skip in range(len(actual) + 1))
    return bool(actual) and same(first, actual[0]) and agree(rest, actual[1:])


def same(expected: str, actual: str) -> bool:
    """Whether two lines differ at most in what depends on the machine."""
    pattern, numbers, end = "", [], 0
    for match in _DEPENDS.finditer(expected):
        kind = str(match.lastgroup)
        pattern += re.escape(expected[end : match.start()]) + _PATTERNS[kind]
        numbers += [float(match.group())] if kind == "number" else []
        end = match.end()
    found = re.fullmatch(pattern + re.escape(expected[end:]), actual.rstrip())
    return found is not None and all(
        abs(float(text) - number) <= _RELATIVE * abs(number)
        for text, number in zip(found.groups(), numbers, strict=True)
    )


def _path(folder: Path) -> str:
    """A search path on which `rewriter` and `python` are those that run this test."""
    commands = folder / ".commands"
    commands.mkdir(exist_ok=True)
    for name, words in (("rewriter", "-m rewriter"), ("python", "")):
        command = commands / name
        command.write_text(
            f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{ROOT}" '
            f'exec "{sys.executable}" {words} "$@"\n',
            encoding="utf-8",
        )
        command.chmod(0o755)
    return f"{commands}{os.pathsep}{os.environ['PATH']}"
