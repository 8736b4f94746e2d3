"""The same bytes are stored once in a dump, and every path of it is a file like any other."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.runtime import attach
from rewriter.runtime import saved as saved_module
from rewriter.runtime.engine_library import EngineUnavailable
from rewriter.runtime.saved import Saved

BIG = 1 << 17  # elements: more than what is hashed in one go


class Finished(Saved):
    """Waits until each tensor is in its file."""

    def save(self, content: torch.Tensor, path: Path) -> str:
        why = super().save(content, path)
        self.drain()
        return why


@pytest.fixture(params=["engine", "torch"])
def saved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """By the engine, and where there is none."""
    if request.param == "torch":
        monkeypatch.setattr(saved_module, "load", lambda: EngineUnavailable("not here"))
    return Finished()


def content_of(path: Path) -> torch.Tensor:
    found = torch.load(path, weights_only=True)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("count", [0, 3, BIG, BIG + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_equal_bytes_are_one_file(
    saved: Saved, tmp_path: Path, count: int, dtype: torch.dtype
) -> None:
    first = torch.arange(count).to(dtype)
    for name in "abc":
        saved.save(first.clone(), tmp_path / name)
    assert len({(tmp_path / name).stat().st_ino for name in "abc"}) == 1
    assert torch.equal(content_of(tmp_path / "c"), first)


@pytest.mark.parametrize("count", [8, BIG, BIG + 1])
def test_other_bytes_are_other_files(saved: Saved, tmp_path: Path, count: int) -> None:
    plain = torch.arange(count, dtype=torch.uint8 if count == BIG + 1 else torch.float32)
    changed = plain.clone()
    changed[-1] += 1
    swapped = plain.clone()  # the same sum
    swapped[1], swapped[2] = plain[2].clone(), plain[1].clone()
    others = [
        changed,
        swapped,
        plain.view(2, -1) if count % 2 == 0 else plain.view(1, -1),
        plain.view(torch.int8 if plain.dtype == torch.uint8 else torch.int32),
        torch.empty_strided((1, count), (1, 1), dtype=plain.dtype).copy_(plain),
    ]
    tensors = [plain, *others]
    for number, tensor in enumerate(tensors):
        saved.save(tensor.clone(), tmp_path / str(number))
    assert len({(tmp_path / str(number)).stat().st_ino for number in range(len(tensors))}) == 6
    for number, tensor in enumerate(tensors):
        found = content_of(tmp_path / str(number))
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor)


def test_not_a_number_is_compared_by_its_bytes(saved: Saved, tmp_path: Path) -> None:
    tensor = torch.full((BIG,), float("nan"))
    saved.save(tensor, tmp_path / "a")
    saved.save(tensor.clone(), tmp_path / "b")
    assert (tmp_path / "a").samefile(tmp_path / "b")
    saved.save(torch.zeros(4), tmp_path / "c")
    saved.save(-torch.zeros(4), tmp_path / "d")
    assert not (tmp_path / "c").samefile(tmp_path / "d")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.EMLINK])
def test_where_there_are_no_links_there_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    saved = Finished()
    saved._by_engine = None

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    for name in "abc":
        saved.save(torch.ones(3), tmp_path / name)
    assert len({(tmp_path / name).stat().st_ino for name in "abc"}) == 3
    monkeypatch.undo()
    # Too many names of one file are no fault of the file system's.
    saved.save(torch.ones(3), tmp_path / "d")
    assert (tmp_path / "c").samefile(tmp_path / "d") == (code == errno.EMLINK)


@pytest.mark.parametrize("count", [3, 3 * BIG + 5], ids=["one piece", "several pieces"])
def test_the_engine_copies_where_there_are_no_links(tmp_path: Path, count: int) -> None:
    other = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system")
        saved = Finished()
        content = torch.arange(count * 4, dtype=torch.float64)
        for path in (other / "a", tmp_path / "b", tmp_path / "c"):
            saved.save(content, path)
            assert torch.equal(content_of(path), content)
    finally:
        shutil.rmtree(other)


def test_what_was_removed_is_written_again(saved: Saved, tmp_path: Path) -> None:
    for size in (3, BIG):
        saved.save(torch.ones(size), tmp_path / "a")
        (tmp_path / "a").unlink()
        saved.save(torch.ones(size), tmp_path / "b")
        assert content_of(tmp_path / "b").sum() == size


def test_a_dump_of_two_wrappers_and_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    options: dict[str, Any] = {
        "artifact": "w.py", "sha256": "", "version": "0", "probes": ["save"], "when": None,
        "format": "text", "values": False,
    }  # fmt: skip
    labels = {"before": [["in", "x"]], "after": [["in", "x"], ["out", "y"]]}
    table = [{"launch": 0, "kernel": "k", "kind": "cpp", "repeats": False, **labels}]
    x = torch.randn(4, 4)
    for recorder in (attach(options, table), attach(options, table)):
        for number in range(3):
            recorder.begin()
            recorder.before(0, x.T)
            recorder.after(0, x.T, x * number)
        recorder._finish()  # type: ignore[union-attr]
    files = sorted((tmp_path / "dump").rglob("*.pt"))
    assert len(files) == 2 * 3 * 3
    assert len({path.stat().st_ino for path in files}) == 4  # x, and three results
    shutil.copytree(tmp_path / "dump", tmp_path / "copy")
    shutil.rmtree(tmp_path / "dump")
    for path in (tmp_path / "copy").rglob("before*.pt"):
        found = content_of(path)
        assert torch.equal(found, x.T)
        assert found.stride() == x.T.stride()


@pytest.mark.parametrize("count", [8, BIG])
@pytest.mark.parametrize("damage", ["edited", "cut"])
def test_a_file_that_was_changed_meanwhile_gets_no_further_name(
    saved: Saved, tmp_path: Path, count: int, damage: str
) -> None:
    tensor = torch.arange(count, dtype=torch.float32)
    saved.save(tensor.clone(), tmp_path / "a")
    if damage == "edited":
        torch.save(tensor + 1, tmp_path / "a")
    else:
        os.truncate(tmp_path / "a", 100)
    saved.save(tensor.clone(), tmp_path / "b")
    assert torch.equal(content_of(tmp_path / "b"), tensor)
