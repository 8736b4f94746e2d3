"""What is read of a package before it is patched, without copying its weights."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rewriter.artifact.package import pack
from rewriter.artifact.package.container import Zip, open_zip
from rewriter.artifact.package.library import Constants, Library
from rewriter.core import parallel
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild import unpack

NAME = "m/data/aotinductor/model/x.so"
DATA = bytes(range(256)) * 64
METHODS = [
    pytest.param(zipfile.ZIP_STORED, id="stored"),
    pytest.param(zipfile.ZIP_DEFLATED, id="deflated"),
]


def package(folder: Path, method: int = zipfile.ZIP_STORED, data: bytes = DATA) -> Any:
    path = folder / "model.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/data/aotinductor/model/first.cpp", b"before it", method)
        entry = zipfile.ZipInfo(NAME)
        entry.extra = b"\x99\x99\x04\x00more"
        file.writestr(entry, data, method)
        file.writestr("m/data/aotinductor/model/last.json", b"behind it", method)
    model = SimpleNamespace(library=NAME, weights="in the library")
    return _package(path, (model,))


def _package(path: Path, models: tuple[Any, ...]) -> Any:
    return SimpleNamespace(path=path, container=open_zip(path), models=models, is_folder=False)


def library(offset: int, size: int) -> Library:
    constants = Constants(offset, size, ".lrodata", writable=False)
    return Library("X86_64", "", (), frozenset(), frozenset(), constants)


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_a_member_are_read(method: int, tmp_path: Path) -> None:
    with package(tmp_path, method).container.open(NAME) as file:
        assert file.read(300) == DATA[:300]
        assert file.seek(-10, 2) == len(DATA) - 10
        assert file.read() == DATA[-10:]
        assert file.read(1) == b""
        file.seek(5000)
        file.seek(7, 1)
        assert file.read(20) == DATA[5007:5027]
        file.seek(0)
        assert file.read() == DATA


@pytest.mark.parametrize(
    ("offset", "size", "place", "whole", "hole"),
    [
        pytest.param(1000, 4000, "in the library", True, range(0), id="all of it is needed"),
        pytest.param(1000, 4000, "in a blob", False, range(0), id="the weights are elsewhere"),
        pytest.param(-5, 4000, "in the library", False, range(0), id="before its beginning"),
        pytest.param(1000, 1 << 40, "in the library", False, range(0), id="behind its end"),
        pytest.param(1000, 0, "in the library", False, range(0), id="no weights"),
        pytest.param(1000, 4000, "in the library", False, range(1000, 5000), id="within it"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_weights_are_a_hole_where_a_library_is_only_linked_to(
    method: int, offset: int, size: int, place: str, whole: bool, hole: range, tmp_path: Path
) -> None:
    made = package(tmp_path, method)
    made.models[0].weights = place
    to = tmp_path / "x.so"
    unpacked = unpack.unpack(made, made.models[0], library(offset, size), to, whole=whole)
    data = bytearray(DATA)
    data[hole.start : hole.stop] = bytes(len(hole))
    assert to.read_bytes() == data
    # The hash knows two libraries apart by all but their weights.
    digests = set()
    for number, at in enumerate((0, 999, 1000, 4999, 5000, len(DATA) - 1)):
        changed = bytearray(DATA)
        changed[at] ^= 1
        folder = tmp_path / str(number)
        folder.mkdir()
        other = package(folder, method, bytes(changed))
        other.models[0].weights = place
        target = folder / "x.so"
        again = unpack.unpack(other, other.models[0], library(offset, size), target, whole=whole)
        assert (again.digest == unpacked.digest) == (at in hole)
        digests.add(again.digest)
    assert len(digests) == (5 if hole else 6)


def test_weights_behind_a_library_are_a_hole(tmp_path: Path) -> None:
    data = bytearray(DATA)
    data[1000:1008] = (2000).to_bytes(8, "little")
    made = package(tmp_path, data=bytes(data))
    made.models[0].weights = "behind the library"
    unpack.unpack(made, made.models[0], library(1000, 8), tmp_path / "x.so", whole=False)
    # It ends in a number that is compared when it is loaded.
    assert (tmp_path / "x.so").read_bytes() == data[:-2000] + bytes(1992) + data[-8:]


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_checksum_that_is_wrong_is_found_while_the_package_is_read(
    method: int, forks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_can_fork", lambda: forks)
    made = package(tmp_path, method)
    path = cast(Path, made.path)
    with unpack.reading(made) as reading:
        unpack.copy(path, tmp_path / "copy.pt2", Event())
        assert reading is not None
        assert reading.finish() == pack.sha256(path)
    assert (tmp_path / "copy.pt2").read_bytes() == path.read_bytes()
    data = bytearray(path.read_bytes())
    data[data.index(b"more") + 12] ^= 64
    path.write_bytes(data)
    damaged = _package(path, made.models)
    with unpack.reading(damaged) as reading:
        assert reading is not None
        with pytest.raises(RewriterError) as caught:
            reading.finish()
    assert caught.value.slug == "corrupt-package"
    # It is why the library says nonsense, too.
    with pytest.raises(RewriterError) as caught:
        unpack.library_of(damaged, made.models[0])
    assert caught.value.slug == "corrupt-package"


@pytest.mark.parametrize("method", METHODS)
def test_checksums_are_compared_by_another_process(
    method: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, check = package(tmp_path, method), Zip.check
    here: list[int] = []
    made.container.size(NAME)  # its own descriptor is open

    def watched(*arguments: Any) -> None:
        here.append(os.getpid())
        check(*arguments)

    monkeypatch.setattr(parallel, "_can_fork", lambda: True)
    monkeypatch.setattr(Zip, "check", watched)
    with unpack.reading(made) as reading:
        assert reading is not None
        reading.require_sound()
    assert not here


def test_a_package_that_is_replaced_is_no_defect_of_the_reader(tmp_path: Path) -> None:
    made = package(tmp_path)
    made.container.size(NAME)
    with zipfile.ZipFile(made.path, "w") as file:
        file.writestr("another member", b"")
    with pytest.raises(RewriterError) as caught:
        made.container.check(NAME)
    assert caught.value.slug == "corrupt-package"


def test_what_is_left_is_not_read_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, hashed = package(tmp_path), pack.sha256_of

    def later(file: Any) -> str:
        file._stopped.wait()
        return hashed(file)

    monkeypatch.setattr(parallel, "_can_fork", lambda: False)  # a process is killed
    monkeypatch.setattr(pack, "sha256_of", later)
    with pytest.raises(KeyboardInterrupt), unpack.reading(made) as reading:
        raise KeyboardInterrupt
    assert reading is not None
    assert reading.digest() == hashlib.sha256().hexdigest()


def test_a_copy_ends_where_it_is_stopped(tmp_path: Path) -> None:
    made, output, stopped = package(tmp_path), tmp_path / "copy.pt2", Event()
    stopped.set()
    unpack.copy(made.path, output, stopped)
    assert output.read_bytes() == b""
