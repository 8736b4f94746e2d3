"""Finds out whether a program can use a GPU, without running it or importing its torch.

Only NVIDIA and AMD GPUs matter: callers set variables of CUDA, which HIP reads, too.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_DEVICES = ("nvidiactl", "kfd", "dxg")  # NVIDIA, AMD, either of them in WSL
_PATIENCE = 20  # seconds for a Python to start
_FIND = (
    "import importlib.util as util; found = util.find_spec('torch'); "
    "print(found.origin if found and found.origin else '')"
)


def why_none(program: Sequence[str], *, devices: Path = Path("/dev")) -> str:
    """Why a program cannot use a GPU; empty if it can, or if that is not known."""
    if not any((devices / name).exists() for name in _DEVICES):
        return "there is no GPU here"
    python = _python(program[0])
    version = _version_file(python) if python else None
    if version is not None and not _is_for_gpu(version):
        return f"the torch of {python} is for the CPU alone"
    return ""


def _python(command: str) -> str:
    """The Python that a command starts: the command itself, or that in a script's first line."""
    path = shutil.which(command)
    if path is None or _is_python(path):
        return path or ""
    try:
        with open(path, "rb") as file:
            line = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return ""
    words = line[2:].split() if line.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = words[1:]
    interpreter = shutil.which(words[0]) if words else None
    return interpreter if interpreter is not None and _is_python(interpreter) else ""


def _is_python(path: str) -> bool:
    return re.fullmatch(r"python[\d.]*", Path(path).name) is not None


def _version_file(python: str) -> Path | None:
    """The `version.py` of the torch that a Python would import."""
    try:
        done = subprocess.run(
            [python, "-c", _FIND],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    file = Path(done.stdout.strip()).with_name("version.py") if done.stdout.strip() else None
    return file if file is not None and file.is_file() else None


def _is_for_gpu(version: Path) -> bool:
    """Whether torch was built for CUDA or HIP, by its `version.py`; true if that does not say."""
    try:
        tree = ast.parse(version.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return True
    assigned = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(
                getattr(node, "value", None), ast.Constant
            ):
                assigned[target.id] = node.value.value  # type: ignore[attr-defined]
    return "cuda" not in assigned or bool(assigned["cuda"] or assigned.get("hip"))
