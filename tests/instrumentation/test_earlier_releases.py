"""What earlier releases of this program wrote is stripped, compared and read by this one.

`fixtures/releases/<version>` was made by `fixtures/release.sh` with that version.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

import rewriter
from artifacts import ARTIFACTS, get
from fuzzing import invoke

RELEASES = Path(__file__).parents[2] / "fixtures/releases"
# What was instrumented, by the name of the result.
ORIGINALS = {
    "mlp.py": "cpu-torch2.13/mlp",
    "mlp-standalone.py": "cpu-torch2.13/mlp",
    "transformer-backward.py": "cpu-torch2.13/transformer 1",
    "gpt-cuda.py": "cuda-torch2.11/gpt",
    "mlp.cpp": "cpu-torch2.13/mlp aoti",
    "mlp-cpp.py": "cpu-torch2.13/mlp cpp_wrapper",
    "mlp-cpp-2.6.py": "cpu-torch2.6/mlp cpp_wrapper",
}
INSTRUMENTED = sorted(
    path for path in RELEASES.glob("*/instrumented/*") if path.suffix in (".py", ".cpp")
)
DUMPS = sorted(path.parent for path in RELEASES.glob("*/dumps/*/manifest.json"))
# The exit code of `rewriter report`: 1 where it has something to report.
FINDINGS = {"nan": 1, "crash": 1}


def name(path: Path) -> str:
    return str(path.relative_to(RELEASES))


def test_there_is_one_of_each() -> None:
    assert {path.name for path in INSTRUMENTED} == {*ORIGINALS}
    assert {path.name for path in DUMPS} == {"wrapper", "saved", "cpp", "nan", "crash"}


@pytest.mark.parametrize("path", INSTRUMENTED, ids=name)
def test_a_wrapper_is_stripped(path: Path) -> None:
    stripped = rewriter.strip(path)
    assert stripped.source == get(ORIGINALS[path.name]).data
    assert stripped.exact
    assert stripped.removed


@pytest.mark.parametrize("path", INSTRUMENTED, ids=name)
def test_the_probes_of_a_wrapper_are_exchanged(path: Path) -> None:
    replaced = rewriter.instrument(path, rewriter.select("names"), replace=True)
    assert replaced.original == get(ORIGINALS[path.name]).data


@pytest.mark.parametrize("path", INSTRUMENTED, ids=name)
def test_a_wrapper_is_listed_and_compared(path: Path, tmp_path: Path) -> None:
    original = get(ORIGINALS[path.name])
    assert rewriter.open(path).unrecognised == ()
    listed = [launch.kernel for launch in rewriter.open(path).launches]
    assert listed == [launch.kernel for launch in rewriter.open(original.path).launches]
    # Probes of another version of this program are not what this one would write, and say so.
    done = invoke(["diff", str(path), str(original.path), "--json"])
    assert done.code in (0, 1), done.errors
    assert json.loads(done.output)["verdict"] in ("instrumented", "unverified")


@pytest.mark.parametrize("packed", sorted(RELEASES.glob("*/instrumented/*.pt2.xz")), ids=name)
def test_a_package_is_restored(packed: Path, tmp_path: Path) -> None:
    patched = tmp_path / "model.pt2"
    patched.write_bytes(lzma.decompress(packed.read_bytes()))
    restored = tmp_path / "restored.pt2"
    done = invoke(["strip", str(patched), "-o", str(restored)])
    assert done.code == 0, done.errors
    original = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"
    assert restored.read_bytes() == original.read_bytes()


@pytest.mark.parametrize("dump", DUMPS, ids=name)
def test_a_dump_is_read(dump: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = invoke(["report", str(dump), "-o", str(page)])
    assert done.code == FINDINGS.get(dump.name, 0), done.errors
    assert "</html>" in page.read_text(encoding="utf-8")
    done = invoke(["compare", str(dump), str(dump), "--json"])
    compared = json.loads(done.output)
    assert done.code == 0, done.errors
    assert compared["launches"]
    assert {launch["state"] for launch in compared["launches"]} <= {"equal", "unknown"}


def test_the_verdicts_of_a_dump_are_those_of_its_release() -> None:
    for dump, says in (("nan", "first NaN"), ("crash", "release.stop")):
        (path,) = (one for one in DUMPS if one.name == dump)
        done = invoke(["report", str(path), "--json"])
        assert says in json.dumps(json.loads(done.output)["verdicts"]), dump
