"""Builds that are kept: found by all that they are made of, and never one that is damaged."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rewriter.instrumentation.rebuild import build_cache
from rewriter.runtime import cache_directory


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache_directory.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "builds"


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "shim.h"
    path.write_text("int f();")
    return path


def built(tmp_path: Path, data: bytes = b"library") -> Path:
    path = tmp_path / "out.so"
    path.write_bytes(data)
    return path


def kept(key: str) -> bytes | None:
    found = build_cache.find(key)
    return None if found is None else found.content


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({cache_directory.VARIABLE: "off"}, None),
        ({cache_directory.VARIABLE: "/x/y"}, "/x/y/builds"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/rewriter/builds"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/rewriter/builds"),
        ({"HOME": "/h"}, "/h/.cache/rewriter/builds"),
    ],
    ids=["off", "named", "xdg", "relative", "home"],
)
def test_where_it_is(
    variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (cache_directory.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build_cache.directory() == (None if expected is None else Path(expected))


def test_what_was_kept_is_found_while_its_headers_are_the_same(
    place: Path, header: Path, tmp_path: Path
) -> None:
    assert build_cache.find("k") is None
    build_cache.keep("k", built(tmp_path), [header])
    assert kept("k") == b"library"
    assert build_cache.find("k") == build_cache.Product(b"library", (header,))
    assert build_cache.find("other") is None
    header.write_text("int g();")
    assert build_cache.find("k") is None
    # Both are kept, and found by what the header is.
    build_cache.keep("k", built(tmp_path, b"another"), [header])
    assert kept("k") == b"another"
    header.write_text("int f();")
    assert kept("k") == b"library"
    header.unlink()
    assert build_cache.find("k") is None


@pytest.mark.parametrize("suffix", ["so", "json"])
@pytest.mark.parametrize("damage", [b"", b"[]", b'{"sha256": 3, "headers": []}', None])
def test_what_is_damaged_is_not_taken(
    place: Path, header: Path, tmp_path: Path, suffix: str, damage: bytes | None
) -> None:
    build_cache.keep("k", built(tmp_path), [header])
    (file,) = place.glob(f"*.{suffix}")
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    assert build_cache.find("k") is None
    build_cache.keep("k", built(tmp_path), [header])
    assert kept("k") == b"library"


def test_the_oldest_go(
    place: Path, header: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_cache, "LIMIT", 4000)
    for number in range(6):
        build_cache.keep(f"k{number}", built(tmp_path, bytes([number]) * 900), [header])
        for path in place.glob("*.so"):
            made = path.read_bytes()[0] + 1
            os.utime(path, (made, made))
    assert [build_cache.find(f"k{number}") is not None for number in range(6)] == [False] * 2 + [
        True
    ] * 4
    found = build_cache.usage()
    assert found is not None
    assert found.size <= 4000
    assert len(list(place.glob("*.json"))) == found.count
    # One that is too large is not worth all the others.
    build_cache.keep("large", built(tmp_path, b"x" * 1001), [header])
    assert build_cache.find("large") is None


def test_objects_are_no_libraries_but_need_room(
    place: Path, header: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "out.o"
    compiled.write_bytes(b"object" * 100)
    build_cache.keep("o", compiled, [header])
    build_cache.keep("k", built(tmp_path), [header])
    assert (kept("o"), kept("k")) == (b"object" * 100, b"library")
    assert build_cache.usage() == build_cache.Kept(place, 1, 607)
    (file,) = place.glob("*.o")
    os.utime(file, (1, 1))
    monkeypatch.setattr(build_cache, "LIMIT", 606)
    build_cache.keep("l", built(tmp_path, b"another"), [header])
    assert (kept("o"), kept("k"), kept("l")) == (None, b"library", b"another")


def test_nothing_is_kept_where_it_is_off_or_cannot_be(
    tmp_path: Path, header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache_directory.VARIABLE, "off")
    build_cache.keep("k", built(tmp_path), [header])
    assert build_cache.find("k") is None
    assert build_cache.usage() is None
    monkeypatch.setenv(cache_directory.VARIABLE, str(header))  # a file
    build_cache.keep("k", built(tmp_path), [header])
    assert build_cache.find("k") is None


def test_many_at_once(place: Path, header: Path, tmp_path: Path) -> None:
    library = built(tmp_path, b"x" * 5000)
    found: list[bytes | None] = []

    def work() -> None:
        for _ in range(20):
            build_cache.keep("k", library, [header])
            found.append(kept("k"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"x" * 5000] * 80
    assert not list(place.glob(".*"))


def test_what_a_build_is_known_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 12\n")
    compiler.chmod(0o755)

    def key(*, flag: str = "-O1", content: str = "a", versions: str = "2.11") -> str:
        build_cache._identity.cache_clear()
        return build_cache.key([[str(compiler), flag]], [content], versions)

    plain = key()
    assert key() == plain
    others = {key(flag="-O2"), key(content="b"), key(versions="2.12")}
    monkeypatch.setenv("CPATH", "/x")
    others.add(key())
    monkeypatch.delenv("CPATH")
    compiler.write_text("#!/bin/sh\necho 13\n")
    others.add(key())
    assert len(others | {plain}) == 6


def test_headers_that_a_compiler_names() -> None:
    rules = "wrapper.o: wrapper.cpp /t/shim.h \\\n /with\\ space/a.h\n/t/shim.h:\n"
    found = build_cache.headers_in(rules, Path("/scratch/0"))
    assert found == [Path("/t/shim.h"), Path("/with space/a.h")]
