"""What patching a small package takes: ratios against compiling its wrapper, and exporting anew.

pytest -m benchmark benchmarks/tests/test_package_benchmark.py -s
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import rewriter
from capture import Packaged
from rewriter.artifact.opening import open_artifact

pytestmark = pytest.mark.benchmark

ROOT = Path(rewriter.__file__).parent.parent
ROUNDS = 3

# Export and compile with upstream's printer, as its user would: a program of its own.
EXPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from capture import package_case
from models import models_for
package_case(models_for("aoti")["mlp"]("cpu"), Path(sys.argv[2]))
"""


def seconds(command: list[str], **environment: str) -> float:
    """Wall clock time of a command that must succeed."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return taken


def instrument(package: Path, output: Path) -> list[str]:
    command = [sys.executable, "-m", "rewriter", "instrument", str(package), "--probe", "print"]
    return [*command, "-o", str(output), "--overwrite"]


def compile_command(package: Path, folder: Path, *, header: bool) -> list[str]:
    """What the wrapper says that compiled it, for a copy of it in `folder`."""
    opened = open_artifact(package).package
    assert opened is not None
    (model,) = opened.models
    command = list(model.command("Compile"))
    source = next(part for part in command if part.endswith(".wrapper.cpp"))
    (folder / "wrapper.cpp").write_bytes(model.source)
    moved = {source: str(folder / "wrapper.cpp")}
    moved[command[command.index("-o") + 1]] = str(folder / "wrapper.o")
    command = [moved.get(part, part) for part in command]
    if not header:
        place = command.index("-include")
        del command[place : place + 2]
    return command


@contextmanager
def away(folder: Path) -> Iterator[None]:
    """Move a directory out of the way."""
    elsewhere = folder.with_name(f"{folder.name}.away")
    folder.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(folder)


def medians(rounds: int, **measured: Callable[[], float]) -> Mapping[str, float]:
    """The median of each, measured in turns; all figures are printed."""
    figures = {name: [] for name in measured}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, measure in measured.items():
            figures[name].append(measure())
    for name, values in figures.items():
        print(f"\n{name}: {', '.join(f'{value:.2f}' for value in values)} s", end="")
    return {name: statistics.median(values) for name, values in figures.items()}


@pytest.mark.parametrize("header", [True, False], ids=["header", "no header"])
def test_against_one_compile_of_the_wrapper(
    header: bool, packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    """With the precompiled header of this machine, and where it is gone."""
    package = packaged("mlp").path
    command = compile_command(package, tmp_path, header=header)
    included = [part for part in command if re.search(r"\.h$", part)]
    assert all(Path(f"{part}.gch").is_file() for part in included)
    assert bool(included) == header

    def measure() -> Mapping[str, float]:
        return medians(
            ROUNDS,
            bare_compile=lambda: seconds(command),
            instrument=lambda: seconds(instrument(package, tmp_path / "out.pt2")),
        )

    if header:
        found = measure()
    else:
        with away(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])):
            found = measure()
    ratio = found["instrument"] / found["bare_compile"]
    print(f"\n{'with' if header else 'without'} the header: {ratio:.2f} times one compile")
    assert ratio <= 1.3


def test_against_exporting_with_the_printer_of_torch(
    packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    package = packaged("mlp").path
    numbers = iter(range(ROUNDS))

    def export() -> float:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return seconds(
            [sys.executable, "-c", EXPORT, str(ROOT / "fixtures"), str(folder / "mlp.pt2")],
            AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER="2",
            TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
            TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
        )

    found = medians(
        ROUNDS,
        instrument=lambda: seconds(instrument(package, tmp_path / "out.pt2")),
        export=export,
    )
    (wrapper,) = open_artifact(tmp_path / "0/mlp.pt2").wrappers
    assert b"aoti_torch_print_tensor_handle" in wrapper.source
    print(f"\n1/{found['export'] / found['instrument']:.1f} of exporting anew")
    assert found["instrument"] <= found["export"] / 3
