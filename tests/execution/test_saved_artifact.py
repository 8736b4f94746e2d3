"""Which artifacts torch loads by itself, and the copy that is run; nothing is loaded here."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts import get
from container_files import FORMS, data_of
from rewriter.artifact.containers.opening import Container
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from rewriter.core.errors import RewriterError
from rewriter.execution.saved_artifact import loader_of, write_copy
from rewriter.instrumentation.select import select

CALLED = {"standalone": "binary", "standalone-aot": "binary", "aot-compile": "function"}


def container(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data_of(name))
    return path


def unpacked(folder: Path) -> Path:
    for name in ("aotautograd/a1/entry", "fxgraph/b2/fb2/entry"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"\x80\x04N.")
    (folder / "wrapper.py").write_bytes(get("cpu-torch2.13/mlp").path.read_bytes())
    return folder


@pytest.mark.parametrize("name", FORMS)
def test_what_torch_loads_by_itself(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = open_artifact(container(tmp_path, name))
    form, wrappers = FORMS[name]
    if form in CALLED:
        assert loader_of(artifact) == CALLED[form]
        return
    with pytest.raises(RewriterError, match="only the program"):
        loader_of(artifact)
    (tmp_path / "args.pt").touch()
    words = ["--args", str(tmp_path / "args.pt"), "--wrapper", wrappers[0]]
    assert main(["run", str(tmp_path / name), *words, "-d", str(tmp_path / "dump")]) == 2
    message = capsys.readouterr().err
    assert "error[not-runnable]" in message
    assert "rewriter run -- COMMAND" in message
    assert not (tmp_path / "dump").exists()


def test_a_wrapper_in_a_file_is_called_by_its_wrapper() -> None:
    assert loader_of(open_artifact(get("cpu-torch2.13/mlp").path)) is None


def test_a_directory(tmp_path: Path) -> None:
    artifact = open_artifact(unpacked(tmp_path / "saved"))
    assert loader_of(artifact) == "unpacked"
    copy, source = write_copy(artifact, select(["names"]), tmp_path)
    assert (copy / "wrapper.py").read_bytes() == source != artifact.only.source
    assert open_artifact(copy).only.restored.source == artifact.only.source
    (tmp_path / "saved" / "vllm_compile_cache.py").write_text("{}", encoding="utf-8")
    (tmp_path / "saved" / "aotautograd" / "a2").mkdir()
    with pytest.raises(RewriterError, match="a cache directory of vLLM"):
        loader_of(open_artifact(tmp_path / "saved"))


@pytest.mark.parametrize("name", ["standalone.bin", "standalone-aot.bin", "aot-compile.bin"])
def test_the_copy_of_a_file(name: str, tmp_path: Path) -> None:
    artifact = open_artifact(container(tmp_path, name))
    copy, source = write_copy(artifact, None, tmp_path)
    assert copy.read_bytes() == data_of(name)
    assert source == artifact.only.source
    copy, source = write_copy(artifact, select(["names"]), tmp_path)
    assert open_artifact(copy).only.source == source != artifact.only.source
    probed = open_artifact(copy)
    assert isinstance(probed, Container)
    assert probed.plain() == data_of(name)
