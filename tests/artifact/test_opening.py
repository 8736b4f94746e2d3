"""Which form a path is: each is asked in turn, and a further one is a function in the list."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from artifacts import get
from rewriter.artifact import opening, recognise
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.recognise import OtherForm
from rewriter.artifact.types import Artifact, Form, NewFile, Wrapper
from rewriter.cli import main
from rewriter.core.errors import RewriterError

FIXTURES = Path(__file__).parents[2] / "fixtures"
CACHE = next(FIXTURES.rglob("m.cache"))
PACKAGE = next(FIXTURES.rglob("*.pt2"))
LOG = next(FIXTURES.rglob("*.log"))
CONTAINER = FIXTURES / "containers" / "standalone-aot.bin"
WRAPPER = get("cpu-torch2.13/mlp").path
POSTED = FIXTURES / "posted" / "issue.md"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    with zipfile.ZipFile(PACKAGE) as file:
        file.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked"


def form_of(path: Path) -> int:
    """The position of the form that opens a path."""
    opened = (open_form(path, None) is not None for open_form in opening._FORMS)
    return next(number for number, is_open in enumerate(opened) if is_open)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for name in ("aotautograd/a1", "fxgraph"):
        (tmp_path / "saved" / name).mkdir(parents=True)
    (tmp_path / "saved" / "wrapper.py").write_bytes(WRAPPER.read_bytes())
    return tmp_path / "saved"


def test_the_first_form_that_knows_a_path_opens_it(unpacked: Path, saved: Path) -> None:
    paths = [unpacked, saved, WRAPPER.parent, CACHE, PACKAGE, CONTAINER, LOG, POSTED, WRAPPER]
    assert [form_of(path) for path in paths] == list(range(len(opening._FORMS)))
    assert open_artifact(unpacked).is_rebuilt
    assert not open_artifact(WRAPPER.parent).is_rebuilt


MAGIC = b"\x93CORP"


@dataclass(frozen=True)
class Bundle(Artifact):
    """A form of somebody's own: a wrapper behind five bytes."""

    is_text: ClassVar[bool] = False

    def rewritten(self, sources: Mapping[str, bytes]) -> tuple[NewFile, ...]:
        (wrapper,) = self.wrappers
        versions = (wrapper.source, sources[wrapper.name], wrapper.restored.source)
        before, after, plain = (MAGIC + source for source in versions)
        return (NewFile(self.path, self.path.name, before, after, plain, (wrapper.name,)),)


def open_bundle(path: Path, models: tuple[str, ...] | None) -> Bundle | None:
    if path.is_dir() or not path.read_bytes().startswith(MAGIC):
        return None
    name, source = "inside.py", path.read_bytes().removeprefix(MAGIC)
    form = Form("bundle", "a bundle of Corp's")
    wrapper = Wrapper(name, source, "python", path / name, inside=path)
    return Bundle(path, (wrapper,), form=form)


def test_a_further_form_is_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = tmp_path / "model.corp", MAGIC + WRAPPER.read_bytes()
    path.write_bytes(data)
    with pytest.raises(RewriterError):
        open_artifact(path)
    monkeypatch.setattr(opening, "_FORMS", (open_bundle, *opening._FORMS))
    assert [launch.kernel for launch in open_artifact(path).launches] == [
        launch.kernel for launch in open_artifact(WRAPPER).launches
    ]
    assert main(["list", str(path)]) == 0
    assert main(["instrument", str(path), "-o", "-"]) == 2
    assert "is a bundle of Corp's, and -o - is for text" in capsys.readouterr().err
    assert main(["instrument", str(path), "--probe", "names", "--check"]) == 1
    assert main(["instrument", str(path), "--probe", "names"]) == 0
    probed, back = tmp_path / "model.instrumented.corp", tmp_path / "back.corp"
    assert open_artifact(probed).only.probes
    assert main(["diff", str(path), str(probed)]) == 0
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == data
    assert main(["instrument", str(path), "--in-place", "--json"]) == 0
    assert path.with_name("model.corp.orig").read_bytes() == data
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == data
    assert not path.with_name("model.corp.orig").exists()


def test_a_form_that_is_no_text_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory names its files; one that no form opens is refused by name."""
    (tmp_path / "output_code.py").write_bytes(WRAPPER.read_bytes())
    (tmp_path / "model.py").write_bytes(MAGIC)
    form = OtherForm(MAGIC, "a container of Corp's")
    monkeypatch.setattr(recognise, "OTHER_FORMS", (*recognise.OTHER_FORMS, form))
    assert open_artifact(tmp_path).unread == (("model.py", form.description),)
    with pytest.raises(RewriterError) as caught:
        open_artifact(tmp_path / "model.py")
    assert caught.value.slug == "unsupported-artifact"
    assert form.description in caught.value.message
