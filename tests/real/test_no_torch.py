"""What reads and rewrites text does not import torch: it must start at once, and anywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from artifacts import Fixture, get
from imports import COMMAND_LINE, HEAVY, PARSERS, imported, imported_by

ROOT = Path(__file__).parents[2]
WRAPPER = get("cuda-torch2.11/gpt_train")
CPP = [
    get("cuda-torch2.11/gpt_train cpp_wrapper"),
    get("cuda-torch2.11/gpt aoti"),
    get("cpu-torch2.13/mlp aoti"),
]
API = """
import sys, pathlib, rewriter
folder, *paths = map(pathlib.Path, sys.argv[1:])
for path in paths:
    artifact = rewriter.open(path)
    assert artifact.launches and artifact.unrecognised == ()
    for standalone, style in STYLES:
        selection = rewriter.select("names,print,save", when="both", format=style)
        result = rewriter.instrument(artifact, selection, standalone=standalone)
        out = folder / f"out{path.suffix}"
        out.write_bytes(result.source)
        assert rewriter.strip(out).source == path.read_bytes()
        assert rewriter.instrument(out, replace=True).source
"""
STYLES = [(False, "text"), (False, "upstream"), (True, "text")]


@pytest.mark.parametrize("module", ["rewriter", "rewriter.locate.types", "rewriter.core.errors"])
def test_importing_imports_neither_torch_nor_a_parser(module: str) -> None:
    modules = imported(f"import {module}")
    assert "rewriter" in modules
    assert modules.isdisjoint({*HEAVY, *PARSERS, "argparse"})


def test_importing_the_command_line_imports_no_parser() -> None:
    assert imported("import rewriter.cli").isdisjoint({*HEAVY, *PARSERS, "msgspec"})


@pytest.mark.parametrize("options", [[], ["--json"], ["--strict"]], ids=["table", "json", "strict"])
def test_list(options: list[str]) -> None:
    modules = imported(COMMAND_LINE, "list", WRAPPER.path, *options)
    # The types of what is printed as JSON are its own.
    assert modules.isdisjoint(HEAVY if "--json" in options else {*HEAVY, "msgspec"})
    assert [one for one in PARSERS if one in modules] == ["libcst"]


def test_instrument_and_strip(tmp_path: Path) -> None:
    out, back = tmp_path / "out.py", tmp_path / "back.py"
    probes = ["--probe", "names,print,save", "--when", "both"]
    steps = [
        ["instrument", WRAPPER.path, *probes, "-o", out],
        ["instrument", out, "--replace", "--standalone", *probes, "-o", out, "--overwrite"],
        ["list", out],
        ["strip", out, "-o", back],
    ]
    assert imported_by(*steps).isdisjoint(HEAVY)
    assert back.read_bytes() == WRAPPER.data


@pytest.mark.parametrize("fixture", CPP, ids=str)
def test_cpp(fixture: Fixture, tmp_path: Path) -> None:
    """C++ is read by tree-sitter, the Python around it and Triton kernels by libcst."""
    suffix = fixture.path.suffix
    out, back = tmp_path / f"out{suffix}", tmp_path / f"back{suffix}"
    probes = ["--probe", "names,print,save", "--when", "both"]
    steps = [
        ["list", fixture.path],
        ["list", "--json", "--strict", fixture.path],
        ["instrument", fixture.path, *probes, "-o", out],
        ["instrument", out, "--replace", *probes, "-o", out, "--overwrite"],
        ["list", out],
        ["strip", out, "-o", back],
    ]
    modules = imported_by(*steps)
    assert modules.isdisjoint(HEAVY)
    assert "tree_sitter" in modules
    assert ("libcst" in modules) is ("cuda" in str(fixture) or suffix == ".py")
    assert back.read_bytes() == fixture.data


def test_diff_and_check() -> None:
    code = COMMAND_LINE.replace("code == 0", "code == 1")
    arguments = ["instrument", WRAPPER.path, "--diff", "--check"]
    assert imported(code, *arguments).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("fixtures", "styles"), [([WRAPPER], STYLES), (CPP, STYLES[:2])], ids=["python", "cpp"]
)
def test_api(fixtures: list[Fixture], styles: list[tuple[bool, str]], tmp_path: Path) -> None:
    code = API.replace("STYLES", repr(styles))
    paths = [fixture.path for fixture in fixtures]
    assert imported(code, tmp_path, *paths).isdisjoint(HEAVY)


@pytest.mark.benchmark
def test_list_of_100_kb_takes_well_under_a_second() -> None:
    assert len(WRAPPER.data) > 100_000
    command = [sys.executable, "-m", "rewriter", "list", str(WRAPPER.path)]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    print(f"rewriter list of {len(WRAPPER.data)} bytes: {min(seconds):.2f} s")
    assert min(seconds) < 1
