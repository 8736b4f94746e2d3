"""Inductor caches made of real wrappers, and what is in one."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import rewriter
from artifacts import get
from rewriter.core.files import backup_path

ROOT = Path(__file__).parents[2]
WRAPPERS = {
    "cpu-torch2.13/mlp": "ab/cabmlp0000.py",
    "cpu-torch2.13/conv_train cpp_wrapper": "cd/ccdtrain000.py",
    "cpu-torch2.13/conv_train cpp_wrapper 1": "cd/ccdtrain111.py",
    "cpu-torch2.13/mlp cpp_wrapper": "ef/cefcpp0000.py",
    "cuda-torch2.11/mlp": "gh/cghcuda000.py",
}
NAMES = tuple(WRAPPERS.values())
MLP, FORWARD, BACKWARD, CPP, CUDA = NAMES
_KERNEL = "import triton\n\n@triton.jit\ndef triton_poi_fused_0(in_ptr0, xnumel):\n    pass\n"


def make(directory: Path, names: Sequence[str] = NAMES) -> Path:
    """A cache of real wrappers, the last one the newest, and what else Inductor leaves."""
    for number, (fixture, name) in enumerate(WRAPPERS.items()):
        if name not in names:
            continue
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(get(fixture).data)
        path.chmod(0o640)
        os.utime(path, ns=(1, 1_700_000_000_123_456_789 + number * 60 * 10**9))
    (directory / "ab").mkdir(exist_ok=True)
    (directory / "ab" / "cabkernel.py").write_text(_KERNEL)
    (directory / "ab" / "cabkernel.cpp").write_text("void kernel() {}\n")
    (directory / "fxgraph" / "zz").mkdir(parents=True)
    (directory / "fxgraph" / "zz" / "entry").write_bytes(b"\x80\x04pickled")
    (directory / "locks").mkdir()
    return directory


def put_probes(directory: Path, probe: str = "print", names: Sequence[str] = NAMES) -> None:
    """Put probes into wrappers of a cache in place, as earlier versions did: the original is kept
    beside each, as the very file."""
    for name in names:
        path = directory / name
        made = rewriter.instrument(path, rewriter.select(probe))
        probed = path.with_name(f".{path.name}.test")
        probed.write_bytes(made.source)
        probed.chmod(path.stat().st_mode)
        os.link(path, backup_path(path))
        probed.replace(path)


def content(directory: Path) -> dict[str, tuple[object, ...]]:
    """Every file below a directory: its bytes, where a link leads, its mode and, of wrappers, age
    and identity."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        facts = path.lstat()
        link = os.readlink(path) if path.is_symlink() else ""
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        more = (facts.st_mtime_ns, facts.st_ino) if path.suffix == ".py" else ()
        found[str(path.relative_to(directory))] = (digest, link, facts.st_mode, *more)
    return found


def bytes_of(directory: Path) -> dict[str, tuple[object, ...]]:
    """As `content`, without what a copy cannot keep: age and identity."""
    return {name: facts[:3] for name, facts in content(directory).items()}


def command(*arguments: object) -> list[str]:
    """The command line of `rewriter cache …`."""
    return [sys.executable, "-m", "rewriter", "cache", *map(str, arguments)]


def cache(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """`rewriter cache …` in a process of its own."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command(*arguments),
        **{"cwd": ROOT, "capture_output": True, "text": True, "check": False, **options},
    )


def heed_interrupts() -> None:
    """For a new process: signals end it, even if this one is in the background or under nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
