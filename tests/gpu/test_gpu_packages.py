"""On a GPU: packages compiled there, patched, loaded and run.

pytest -m gpu tests/gpu/test_gpu_packages.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import rewriter
from capture import PACKAGE_VARIANTS, Packaged, package_case
from models import models_for
from rewriter.cli import main

pytestmark = pytest.mark.gpu

FIXTURES = Path(__file__).parents[2] / "fixtures"
IMPORTS = [str(FIXTURES / "models.py")]
CASES = [
    *(
        (name, "library")
        for name in ("mlp", "dynamic", "transformer", "cond", "customop", "user_triton", "flex")
    ),
    ("mlp", "appended"),
    ("mlp", "blob"),
    ("mlp", "embedded"),
    ("buffers", "library"),
]
VARIANTS = PACKAGE_VARIANTS | {"embedded": {"aot_inductor.embed_kernel_binary": True}}


def package(name: str, variant: str, path: Path) -> Packaged:
    if name in models_for("aoti"):
        case = models_for("aoti")[name]("cuda")
    else:
        from gpu_models import GPU_MODELS

        case = GPU_MODELS[name]("cuda")
    return package_case(case, path, **VARIANTS[variant])


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_a_patched_package_is_bit_equal(name: str, variant: str, tmp_path: Path) -> None:
    plain, patched = tmp_path / "model.pt2", tmp_path / "probed.pt2"
    made = package(name, variant, plain)
    torch.save(list(made.inputs["model"]), tmp_path / "inputs.pt")
    artifact = rewriter.open(plain)
    assert artifact.launches
    assert artifact.unrecognised == ()

    built = rewriter.patch(
        plain, patched, rewriter.select("names,print,save", when="both"), imports=IMPORTS
    )
    assert (built.check, built.recipes[0].route) == ("loaded", "link")
    runs = [
        rewriter.run(
            file, args=tmp_path / "inputs.pt", imports=IMPORTS, dump=tmp_path / f"dump-{number}"
        )
        for number, file in enumerate((plain, plain, patched))
    ]
    assert [run.code for run in runs] == [0, 0, 0]
    digests = [[output["sha256"] for output in run.outputs] for run in runs]
    assert digests[0] == digests[1]
    assert digests[2] == digests[0]

    ran = {row["launch"] for row in runs[2].events if "launch" in row}
    branches = {launch.index for launch in artifact.launches if "graph" in launch.scope}
    assert ran | branches == {launch.index for launch in artifact.launches}
    assert ran - branches or name == "cond"
    for launch in artifact.launches:
        if launch.index not in ran:
            continue
        written = {a.name for a in launch.args if a.type == "tensor" and a.role != "in"}
        saved = {
            row["arg"]
            for row in runs[2].events
            if (row.get("launch"), row["phase"]) == (launch.index, "after") and row.get("file")
        }
        assert written <= saved, launch.kernel

    assert rewriter.restore(patched, tmp_path / "restored.pt2")
    assert (tmp_path / "restored.pt2").read_bytes() == plain.read_bytes()


def test_a_build_script_builds_it_elsewhere(tmp_path: Path) -> None:
    plain = tmp_path / "model.pt2"
    made = package("mlp", "library", plain)
    torch.save(list(made.inputs["model"]), tmp_path / "inputs.pt")
    sources = tmp_path / "sources"
    assert main(["instrument", str(plain), "--probe=save", "--no-rebuild", "-o", str(sources)]) == 0
    script = ["sh", str(sources / "build.sh"), str(tmp_path / "built.pt2")]
    subprocess.run(script, check=True, env={**os.environ, "PYTHON": sys.executable})
    runs = [
        rewriter.run(file, args=tmp_path / "inputs.pt", dump=tmp_path / f"dump-{file.stem}")
        for file in (plain, tmp_path / "built.pt2")
    ]
    assert runs[0].outputs == runs[1].outputs
    assert {row["launch"] for row in runs[1].events if "launch" in row} == set(range(5))
    assert rewriter.restore(tmp_path / "built.pt2", tmp_path / "restored.pt2")
    assert (tmp_path / "restored.pt2").read_bytes() == plain.read_bytes()


recorded_here = pytest.mark.skipif(
    not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, which loads them"
)


@recorded_here
@pytest.mark.parametrize("name", ["mlp", "customop"])
def test_recorded_packages_are_patched_and_load(name: str, tmp_path: Path) -> None:
    recorded = FIXTURES / "artifacts/cuda-torch2.11" / name / "package/model.pt2"
    built = rewriter.patch(recorded, tmp_path / "probed.pt2", rewriter.select("names,print,save"))
    # The operator of the other one is nobody's here.
    assert built.check == ("loaded" if name == "mlp" else "linked")
    assert rewriter.restore(tmp_path / "probed.pt2", tmp_path / "restored.pt2")
    assert (tmp_path / "restored.pt2").read_bytes() == recorded.read_bytes()


def test_doctor_says_what_a_rebuild_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package("mlp", "library", tmp_path / "model.pt2")
    assert main(["doctor", "--json", str(tmp_path / "model.pt2")]) == 0
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["route"]["found"].startswith("link")
    assert found["CUDA headers"]["ok"]
    assert found["model model"]["found"].startswith("cuda; 5 launches")


@recorded_here
@pytest.mark.parametrize("is_planted", [True, False], ids=["planted", "as it is"])
def test_a_store_of_one_element_behind_a_buffer_is_found(
    is_planted: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its buffer has 127 elements for the 128 that the kernel writes: the allocator gives 512 bytes
    for either. What `sanitize` runs is compiled of the source in the package."""
    package, inputs = tmp_path / "model.pt2", tmp_path / "inputs.pt"
    smaller = {
        b"int_array_8[] = {8L, 16L}": b"int_array_8[] = {1L, 127L}",
        b"int_array_9[] = {16L, 1L}": b"int_array_9[] = {127L, 1L}",
    }
    recorded = FIXTURES / "artifacts/cuda-torch2.11/mlp/package/model.pt2"
    with zipfile.ZipFile(recorded) as old, zipfile.ZipFile(package, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if is_planted and info.filename.endswith(".wrapper.cpp"):
                for before, after in smaller.items():
                    assert data.count(before) == 1
                    data = data.replace(before, after)
            new.writestr(info, data)
    torch.save([torch.randn(8, 32, device="cuda")], inputs)

    rewriter.patch(package, tmp_path / "names.pt2", rewriter.select("names"))
    ran = rewriter.run(tmp_path / "names.pt2", args=inputs, dump=tmp_path / "names")
    assert ran.code == 0  # nothing else notices it
    capfd.readouterr()

    options = ["--args", str(inputs), "-d", str(tmp_path / "dump"), "--json"]
    code = main(["sanitize", str(package), *options])
    printed = capfd.readouterr()
    assert printed.out, printed.err
    said = json.loads(printed.out)
    assert [run["outcome"] for run in said["runs"]] == ["ran to its end"] * (3 if is_planted else 2)
    if not is_planted:
        assert (code, said["findings"]) == (0, [])
        return
    assert code == 1
    (finding,) = said["findings"]
    assert (finding["launch"], finding["kind"]) == (3, "bounds")
    assert any(note.startswith("outputs unchanged") for note in said["notes"])
    (row,) = (
        row
        for line in (tmp_path / "dump/filling-0/rank0/run0/memory.jsonl").read_text().splitlines()
        if (row := json.loads(line))["event"] == "memory"
    )
    assert (row["buffer"], row["side"], row["distance"], row["count"]) == ("buf12", "behind", 0, 1)
