"""Containers that the installed torch makes: with probes they run, and they come back exactly."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import programs
from container_files import FORMS
from container_programs import LOAD, MAKE
from rewriter.artifact.containers.opening import read_contents
from rewriter.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"


def _run(program: str, cache: Path, *arguments: str) -> str:
    kept = {"TORCHINDUCTOR_CACHE_DIR": cache, "PYTHONPATH": FIXTURES}
    return programs.run(sys.executable, "-c", program, *arguments, **kept).stdout


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("language", ["python", pytest.param("cpp", marks=pytest.mark.exhaustive)])
def test_every_form_is_patched_loaded_and_restored(language: str, tmp_path: Path) -> None:
    plain, probed, cache = (tmp_path / name for name in ("plain", "probed", "cache"))
    plain.mkdir()
    probed.mkdir()
    _run(MAKE, cache, str(plain), language)
    names = {one.name for one in plain.iterdir()} - {"aot-autograd.entry"}
    made_elsewhere = {"standalone-2.8.bin", "aot-compile-2.15.bin"}
    left_out = {"standalone-cpp.bin"} if language == "python" else set()
    assert names == FORMS.keys() - made_elsewhere - left_out
    for name in names:
        path, back = plain / name, tmp_path / f"back-{name}"
        contents = read_contents(path.read_bytes())
        assert contents is not None
        assert contents.splice({}) == path.read_bytes()
        assert main(["instrument", str(path), "--probe", "print", "-o", str(probed / name)]) == 0
        assert main(["strip", str(probed / name), "-o", str(back)]) == 0
        assert back.read_bytes() == path.read_bytes()
    printed = _run(LOAD, cache, str(plain), str(probed))
    parts = dict(re.findall(r"== (\S+ \S+) ?(?:True)?\n((?:(?!== ).*\n)*)", printed))
    loaded = names - {"fx-graph.entry", "aot-autograd-bundled.entry"}  # in the mega-cache file
    for name in loaded:
        assert f"== bits {name} True" in printed
        assert "after" not in parts[f"plain {name}"]
        launches = 3 if name == "mega-cache.bin" else 1  # forward, and two of the backward
        assert len(re.findall(r"#\d+ after", parts[f"probed {name}"])) == launches, printed
