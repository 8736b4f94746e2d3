"""A package is loaded with the bindings of torch alone: here with the torch that is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rewriter
from capture import Packaged
from rewriter.artifact.opening import open_artifact
from rewriter.rebuild import patch
from rewriter.rebuild.check import ExpectedModel, Loading
from rewriter.rebuild.types import Checked

if TYPE_CHECKING:
    from capture import Packaged

IMPORTED = """\
import sys
from rewriter.runtime.host.package import import_bindings
assert import_bindings()._aoti.AOTIModelPackageLoader
files = (getattr(x, "__file__", "") or "" for n, x in sys.modules.items() if n.startswith("torch"))
print(sum(file.endswith(".py") for file in files))
"""


def test_a_package_is_loaded(packaged: Callable[..., Packaged], tmp_path: Path) -> None:
    path = packaged("mlp").path
    package = open_artifact(path).package
    assert package is not None
    models = {x.name: ExpectedModel(x.device, Path(x.library or "").name) for x in package.models}
    loading = Loading.start_for(tmp_path, {"cpu"}, ())
    assert not loading.full_torch
    assert loading.load(path, models, ()) == ("loaded", "")


def test_a_large_library_is_loaded_without_its_package(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are not unpacked: the new library runs beside one that has zeros there."""
    answers = []
    load = Loading.load

    def watched(self: Loading, *args: Any) -> tuple[Checked, str]:
        (model,) = args[1].values()
        answers.append((self.full_torch, model.alone.is_file(), load(self, *args)))
        return answers[-1][2]

    monkeypatch.setattr(Loading, "load", watched)
    monkeypatch.setattr(patch, "_LARGE", 0)
    built = rewriter.patch(packaged("mlp").path, tmp_path / "out.pt2", rewriter.select("names"))
    assert built.check == "loaded"
    assert answers == [(False, True, ("loaded", ""))]


def test_hardly_anything_of_torch_in_python_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        cwd=Path(rewriter.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 10
