"""What users install: the wheel holds everything, and works without the checkout."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import programs

ROOT = Path(__file__).parents[2]
WRAPPER = ROOT / "fixtures/artifacts/cuda-torch2.11/mlp/python/output_code.py"

# Asked of the metadata: looking for the module `pip` makes setuptools give up its own distutils,
# and Inductor then fails in every later test of this process.
_INSTALLED = {found.name for found in metadata.distributions()}
pytestmark = pytest.mark.skipif(
    not {"hatchling", "pip"} <= _INSTALLED, reason="building a wheel needs pip and hatchling"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(tmp_path_factory.mktemp("wheel"), "0")


def _wheel(folder: Path, build: str) -> Path:
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "-w", str(folder)]
    _python("-m", "pip", "wheel", *options, ROOT, cwd=folder, REWRITER_BUILD=build)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _install(wheel, tmp_path_factory.mktemp("installed"))


def _install(wheel: Path, folder: Path) -> Path:
    """A directory with the installed package alone; what it needs comes from this environment."""
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--target", str(folder)]
    _python("-m", "pip", "install", *options, str(wheel), cwd=folder)
    return folder


@pytest.mark.exhaustive  # the recorder is compiled for each kind of processor: minutes
def test_a_wheel_has_the_recorder_and_needs_no_compiler(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "")
    assert wheel.name.rpartition("-")[0].endswith("cp310-abi3")
    built = {name.rpartition("/")[2] for name in _names(wheel) if "/runtime/built/" in name}
    assert {"recorder.so", "recorder.o", "lines.so"} <= built
    folder = tmp_path / "installed"
    folder.mkdir()
    _install(wheel, folder)
    code = "from rewriter.runtime import extension; print(extension.load().__file__)"
    none = {"CXX": "none", "REWRITER_CACHE_DIR": str(tmp_path / "cache")}
    found = _installed(folder, tmp_path, "-c", code, **none)
    assert found == f"{folder}/rewriter/runtime/built/lines.so\n"
    assert not (tmp_path / "cache").exists()


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    names = set(_names(wheel))
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rewriter"}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rewriter").rglob("*.py")}
    assert modules <= names
    grammars = [path for path in (ROOT / "grammars").rglob("*") if path.is_file()]
    assert grammars
    assert {f"rewriter/{file.relative_to(ROOT).as_posix()}" for file in grammars} <= names
    assert {"rewriter/py.typed", "rewriter/runtime/cpp/recorder.map"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_metadata_names_the_licence_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        about = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "Name: inductor-rewriter\n" in about
    assert "License-Expression: BSD-3-Clause AND MIT\n" in about
    assert "Requires-Python: >=3.10\n" in about
    assert "rewriter = rewriter.cli:script" in entry_points


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    code = (
        "import rewriter; from rewriter.locate.declarations import folder; "
        "print(rewriter.__file__); print(folder())"
    )
    package, grammars = _installed(installed, tmp_path, "-c", code).splitlines()
    assert Path(package) == installed / "rewriter" / "__init__.py"
    assert Path(grammars) == installed / "rewriter" / "grammars"


def test_the_installed_package_lists_instruments_and_strips(
    installed: Path, tmp_path: Path
) -> None:
    original = WRAPPER.read_bytes()
    (tmp_path / "output_code.py").write_bytes(original)
    listed = _installed(installed, tmp_path, "-m", "rewriter", "list", "output_code.py")
    assert "triton_poi_fused_addmm_gelu_0" in listed
    for options in ([], ["--standalone"]):
        for command in (
            ["instrument", "output_code.py", "--probe", "names,print,save", *options],
            ["strip", "output_code.instrumented.py", "-o", "restored.py"],
        ):
            _installed(installed, tmp_path, "-m", "rewriter", *command, "--overwrite")
        assert (tmp_path / "output_code.instrumented.py").read_bytes() != original
        assert (tmp_path / "restored.py").read_bytes() == original


def _installed(installed: Path, cwd: Path, *arguments: str, **variables: str) -> str:
    """Run Python with the installed package first, and neither the checkout nor `cwd` in sight."""
    path = {"PYTHONPATH": installed, "PYTHONSAFEPATH": 1}
    return _python(*arguments, cwd=cwd, **path, **variables)


def _python(*arguments: object, cwd: Path, **variables: object) -> str:
    return programs.run(sys.executable, *arguments, cwd=cwd, **variables).stdout


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()
