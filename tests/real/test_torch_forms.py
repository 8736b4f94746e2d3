"""Every form of every torch: made, called, patched in place, called again, and restored.

By default with the installed torch, and exhaustive. With the Python of another one, by hand:

    pytest -m exhaustive tests/real/test_torch_forms.py --torch-python PATH -rA
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

import programs
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from torch_forms import ARGS, CALLED, FORMS, IN_CACHE, TRAINED

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "torch_forms.py"


@pytest.fixture(scope="session")
def torch_python(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--torch-python") or sys.executable)


@pytest.fixture(scope="session")
def version(torch_python: str) -> tuple[int, ...]:
    ran = programs.run(torch_python, PROGRAM, "version")
    print("torch", ran.stdout.strip())
    return tuple(int(part) for part in ran.stdout.split(".")[:2])


def run(python: str, cache: Path, *words: object) -> str:
    """What a program prints with that torch and that cache."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "fixtures")])
    about = {"TORCHINDUCTOR_CACHE_DIR": cache, "PYTHONPATH": path}
    return programs.run(python, *words, cwd=cache.parent, **about).stdout


def contents(path: Path) -> dict[str, bytes]:
    """The files of an artifact: of a directory those that torch adds as it runs are left out."""
    if path.suffix == ".py":
        return {one.name: one.read_bytes() for one in (path, path.with_suffix(".cache"))}
    files = [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*graph/*/*/*")]
    return {one.name: one.read_bytes() for one in files}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_patched_called_and_restored(
    form: str, torch_python: str, version: tuple[int, ...], tmp_path: Path
) -> None:
    if version < FORMS[form]:
        pytest.skip(f"torch {'.'.join(map(str, version))} does not have it")
    made_in = tmp_path / "cache"
    path = Path(run(torch_python, made_in, PROGRAM, "make", form, tmp_path).split("\n")[-2])
    number = 0

    def call() -> tuple[str, list[str]]:
        """The digest of the outputs, and the launches that printed."""
        nonlocal number
        number += 1
        cache = made_in if form in IN_CACHE else tmp_path / f"cache{number}"
        printed = run(torch_python, cache, PROGRAM, "call", form, path)
        (digest,) = re.findall(r"^outputs (\w+)$", printed, re.M)
        return digest, re.findall(r"#\d+ after  (\S+)", printed)

    before, (plain, nothing) = contents(path), call()
    assert nothing == []
    assert main(["list", str(path)]) == 0
    wrappers = open_artifact(path).wrappers
    assert len(wrappers) == (2 if form in TRAINED else 1)

    copy = tmp_path / f"copy{path.suffix}"
    assert main(["instrument", str(path), "-o", str(copy), "--probe", "print"]) == 0
    assert main(["diff", str(path), str(copy)]) == 0
    assert main(["instrument", str(path), "--in-place", "--probe", "print"]) == 0
    probed, launches = call()
    assert probed == plain
    expected = [launch.kernel for wrapper in wrappers for launch in wrapper.launches]
    assert [*dict.fromkeys(launches)] == [*dict.fromkeys(expected)]
    assert main(["strip", str(path), "--in-place"]) == 0
    assert contents(path) == before

    if form in CALLED:
        words = ["run", path, "--args", tmp_path / ARGS, "--probe", "print", "--json"]
        document = json.loads(run(torch_python, tmp_path / "run", "-m", "rewriter", *words))
        assert [one["sha256"] for one in document["outputs"]] == [plain]
        assert document["dump"] is not None
    print(f"{form}: {len(wrappers)} wrappers, {len(launches)} values of launches, same bits")
