"""Which form a path is: each is asked in turn, and a further one is a function in the list."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from artifacts import get
from rewriter.artifact import opening, recognise
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.recognise import OtherForm
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import RewriterError

FIXTURES = Path(__file__).parents[2] / "fixtures"
CACHE = next(FIXTURES.rglob("m.cache"))
PACKAGE = next(FIXTURES.rglob("*.pt2"))
LOG = next(FIXTURES.rglob("*.log"))
CONTAINER = FIXTURES / "containers" / "standalone-aot.bin"
WRAPPER = get("cpu-torch2.13/mlp").path


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
    paths = [unpacked, saved, WRAPPER.parent, CACHE, PACKAGE, CONTAINER, LOG, WRAPPER]
    assert [form_of(path) for path in paths] == list(range(len(opening._FORMS)))
    assert open_artifact(unpacked).package is not None
    assert open_artifact(WRAPPER.parent).package is None


MAGIC = b"\x93CORP"


def open_corp(path: Path, models: tuple[str, ...] | None) -> Artifact | None:
    """A form of somebody's own: a wrapper behind five bytes."""
    if path.is_dir() or not path.read_bytes().startswith(MAGIC):
        return None
    source = path.read_bytes().removeprefix(MAGIC)
    return Artifact(path, (Wrapper("inside.py", source, "python", path / "inside.py"),))


def test_a_further_form_is_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(MAGIC + WRAPPER.read_bytes())
    with pytest.raises(RewriterError, match="UTF-8"):
        open_artifact(path)
    monkeypatch.setattr(opening, "_FORMS", (open_corp, *opening._FORMS))
    launches = open_artifact(path).launches
    assert [one.kernel for one in launches] == [
        one.kernel for one in open_artifact(WRAPPER).launches
    ]


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
