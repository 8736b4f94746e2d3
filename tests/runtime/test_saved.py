"""The same bytes are stored once in a dump, and every path of it is a file like any other."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from rewriter.runtime import attach
from saved_tensors import Saved, content_of
from tables import options, row

BIG = 1 << 17  # elements: more than what is hashed in one go


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "dump")


@pytest.mark.parametrize("count", [0, 3, BIG, BIG + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_equal_bytes_are_one_file(saved: Saved, count: int, dtype: torch.dtype) -> None:
    first = torch.arange(count).to(dtype)
    paths = [saved.save(first.clone()) for _ in range(3)]
    assert len({path.stat().st_ino for path in paths}) == 1
    assert torch.equal(content_of(paths[2]), first)


@pytest.mark.parametrize("count", [8, BIG, BIG + 1])
def test_other_bytes_are_other_files(saved: Saved, count: int) -> None:
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
    paths = [saved.save(tensor.clone()) for tensor in tensors]
    assert len({path.stat().st_ino for path in paths}) == 6
    for path, tensor in zip(paths, tensors, strict=True):
        found = content_of(path)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor)


def test_not_a_number_is_compared_by_its_bytes(saved: Saved) -> None:
    tensor = torch.full((BIG,), float("nan"))
    assert saved.save(tensor).samefile(saved.save(tensor.clone()))
    assert not saved.save(torch.zeros(4)).samefile(saved.save(-torch.zeros(4)))


@pytest.mark.parametrize("count", [3, 3 * BIG + 5], ids=["one piece", "several pieces"])
def test_there_are_copies_where_there_are_no_links(
    saved: Saved, tmp_path: Path, count: int
) -> None:
    other = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system")
        content = torch.arange(count * 4, dtype=torch.float64)
        paths = [saved.save(content, folder) for folder in (other, None, None)]
        assert all(torch.equal(content_of(path), content) for path in paths)
        assert not paths[0].samefile(paths[1])
    finally:
        shutil.rmtree(other)


def test_what_was_removed_is_written_again(saved: Saved) -> None:
    for size in (3, BIG):
        saved.save(torch.ones(size)).unlink()
        assert content_of(saved.save(torch.ones(size))).sum() == size


def test_a_dump_of_two_wrappers_and_its_copy(dump: Path) -> None:
    labels = {"before": [["in", "x"]], "after": [["in", "x"], ["out", "y"]]}
    table = [row(**labels)]
    x = torch.randn(4, 4)
    for recorder in (attach(options("save"), table), attach(options("save"), table)):
        for number in range(3):
            recorder.begin()
            recorder.before(0, x.T)
            recorder.after(0, x.T, x * number)
        recorder.end()
    files = sorted(dump.rglob("*.pt"))
    assert len(files) == 2 * 3 * 3
    assert len({path.stat().st_ino for path in files}) == 4  # x, and three results
    shutil.copytree(dump, copy := dump.with_name("copy"))
    shutil.rmtree(dump)
    for path in copy.rglob("before*.pt"):
        found = content_of(path)
        assert torch.equal(found, x.T)
        assert found.stride() == x.T.stride()


@pytest.mark.parametrize("count", [8, BIG])
@pytest.mark.parametrize("damage", ["edited", "cut"])
def test_a_file_that_was_changed_meanwhile_gets_no_further_name(
    saved: Saved, count: int, damage: str
) -> None:
    tensor = torch.arange(count, dtype=torch.float32)
    path = saved.save(tensor.clone())
    if damage == "edited":
        torch.save(tensor + 1, path)
    else:
        os.truncate(path, 100)
    assert torch.equal(content_of(saved.save(tensor.clone())), tensor)
