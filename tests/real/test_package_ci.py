"""The recipe for CI: the script does what it says, and the workflow calls it."""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import programs
from artifacts import ARTIFACTS

if TYPE_CHECKING:
    from capture import Packaged

pytestmark = pytest.mark.usefixtures("warm_python")

RECIPE = Path(__file__).parents[2] / "docs/ci"
CUDA = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"


def patch_package(*arguments: object, code: int = 0) -> programs.Done:
    """Run the script with the `rewriter` of this environment."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    return programs.run("sh", RECIPE / "patch-package.sh", *arguments, code=code, PATH=path)


def test_a_package_is_patched_and_checked(
    packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    package = packaged("mlp").path
    done = patch_package(package, tmp_path / "out", "--probe", "names")
    assert done.stdout == f"{tmp_path}/out/{package.name}\n"
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "doctor.json",
        "instrument.json",
        "launches.json",
        package.name,
    }
    said = json.loads((tmp_path / "out/instrument.json").read_text())
    assert (said["check"], said["probes"]) == ("loaded", ["names"])
    (model,) = said["models"]
    launches = json.loads((tmp_path / "out/launches.json").read_text())["launches"]
    assert model["launches"] == [launch["index"] for launch in launches]


def test_what_cannot_be_built_here_leaves_its_sources(tmp_path: Path) -> None:
    done = patch_package(CUDA, tmp_path / "out", "--probe", "print", code=1)
    failed = [
        check["error"]
        for check in json.loads((tmp_path / "out/doctor.json").read_text())["checks"]
        if check["ok"] is False
    ]
    assert failed
    assert (tmp_path / "out/sources/build.sh").is_file()
    assert "not built here" in done.stderr


def test_the_script_says_what_it_takes() -> None:
    done = patch_package("model.pt2", code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("usage: patch-package.sh MODEL.pt2 OUTPUT_DIRECTORY")


@pytest.mark.parametrize("name", ["missing.pt2", "broken.pt2"])
def test_a_wrong_package_ends_it_with_2(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.pt2").write_bytes(b"PK\3\4")
    assert "error[" in patch_package(tmp_path / name, tmp_path / "out", code=2).stderr


def test_the_workflow_runs_the_script_with_the_values_that_somebody_typed() -> None:
    workflow = yaml.safe_load((RECIPE / "patch-package.yml").read_text())
    steps = workflow["jobs"]["patch"]["steps"]
    (step,) = (step for step in steps if "patch-package.sh" in step.get("run", ""))
    # Nobody's input is part of a script.
    assert not any("${{" in step.get("run", "") for step in steps)
    assert "$PACKAGE" in step["run"]
    assert set(step["env"]) == {"PACKAGE", "PROBES"}
