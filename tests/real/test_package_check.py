"""A package is loaded with the bindings of torch alone: here with the torch that is installed."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import programs
import rewriter
from capture import Packaged
from rewriter import cli
from rewriter.artifact.package.model import open_package
from rewriter.core.errors import FAILED, RewriterError
from rewriter.instrumentation import instrument
from rewriter.instrumentation.rebuild import patch, probed_models, script, unpack
from rewriter.instrumentation.rebuild.check import ExpectedModel, Loading
from rewriter.instrumentation.rebuild.types import Checked
from rewriter.instrumentation.types import Instrumented

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
    package = open_package(path)
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


def damaged(path: Path, copy: Path) -> Path:
    """A copy of a package with one wrong bit in its library."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        (entry,) = (one for one in file.infolist() if one.filename.endswith(".so"))
    data[entry.header_offset + entry.compress_size // 2] ^= 1
    copy.write_bytes(data)
    return copy


def test_a_damaged_library_is_why_it_does_not_link(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> dict[str, Path]:
        raise RewriterError("link-failed", "ELF section name out of range", hint="")

    monkeypatch.setattr(patch.build, "build", fails)
    with pytest.raises(RewriterError) as caught:
        rewriter.patch(packaged("mlp").path, tmp_path / "out.pt2", rewriter.select("names"))
    assert caught.value.slug == "link-failed"
    path = damaged(packaged("mlp").path, tmp_path / "damaged.pt2")
    with pytest.raises(RewriterError) as caught:
        rewriter.patch(path, tmp_path / "out.pt2", rewriter.select("names"))
    assert caught.value.slug == "corrupt-package"


def test_what_was_begun_is_stopped_by_an_interrupt(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the package and the process that imports torch, while it is compiled."""
    copying, processes = Event(), []
    start = Loading.start

    def copy(path: Path, output: Path, stopped: Event) -> None:
        copying.set()
        assert stopped.wait(60)

    def started(*args: Any, **options: Any) -> Loading:
        processes.append(start(*args, **options))
        return processes[-1]

    def interrupted(*_: Any) -> Any:
        assert copying.wait(60)
        assert processes[0].process.is_running
        raise KeyboardInterrupt

    monkeypatch.setattr(unpack, "copy", copy)
    monkeypatch.setattr(Loading, "start", started)
    monkeypatch.setattr(patch.build, "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rewriter.patch(packaged("mlp").path, tmp_path / "out.pt2", rewriter.select("names"))
    assert not processes[0].process.is_running
    assert not any(tmp_path.iterdir())


def test_a_package_that_is_replaced_meanwhile_is_not_mixed_with_the_new_one(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, other = tmp_path / "model.pt2", tmp_path / "other.pt2"
    for path in (package, other):
        shutil.copyfile(packaged("mlp").path, path)
    copy = unpack.copy

    def replaced(path: Path, output: Path, stopped: Event) -> None:
        other.replace(path)
        copy(path, output, stopped)

    monkeypatch.setattr(unpack, "copy", replaced)
    with pytest.raises(RewriterError) as caught:
        rewriter.patch(package, tmp_path / "out.pt2", rewriter.select("names"))
    assert caught.value.slug == "package-changed"
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]


@pytest.mark.parametrize("how", [["-o", "out"], ["--diff"], ["--no-rebuild", "-o", "out"]])
def test_nothing_is_written_of_a_wrapper_that_fails_its_verification(
    how: list[str],
    packaged: Callable[..., Packaged],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = instrument.instrument_wrapper

    def other(*args: Any, **options: Any) -> Instrumented:
        made = make(*args, **options)
        return replace(made, source=made.source + b"// another line\n")

    monkeypatch.setattr(probed_models, "instrument_wrapper", other)
    monkeypatch.chdir(tmp_path)
    code = cli.main(["instrument", str(packaged("mlp").path), *how])
    printed = capsys.readouterr()
    assert code == FAILED
    assert "error[verification-failed]" in printed.err
    assert not printed.out
    assert not any(tmp_path.iterdir())


def test_no_script_is_written_for_a_damaged_library(
    packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    artifact = open_package(damaged(packaged("mlp").path, tmp_path / "damaged.pt2"))
    probed = probed_models.instrument(artifact, rewriter.select("names"))
    with pytest.raises(RewriterError) as caught:
        script.write(artifact, probed, tmp_path / "sources")
    assert caught.value.slug == "corrupt-package"


def test_hardly_anything_of_torch_in_python_is_imported() -> None:
    root = Path(rewriter.__file__).parent.parent
    done = programs.run(sys.executable, "-c", IMPORTED, cwd=root)
    assert int(done.stdout) < 10
