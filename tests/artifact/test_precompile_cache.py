"""The cache of `torch.compiler.precompile` follows its code, and is never unpickled."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import zipfile
import zlib
from pathlib import Path

import pytest

from fuzzing import snapshot
from rewriter.artifact.precompile_cache import PrecompileCache, read_cache
from rewriter.cli import main
from rewriter.core.errors import RewriterError

PAIR = Path(__file__).parents[2] / "fixtures" / "precompile" / "cpu-torch2.15"
CODE, CACHE = (PAIR / "m.py").read_bytes(), (PAIR / "m.cache").read_bytes()


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """The code of a pair, in a directory of its own."""
    shutil.copytree(PAIR, tmp_path / "pair")
    return tmp_path / "pair" / "m.py"


def cache(path: Path) -> PrecompileCache:
    known = read_cache(path)
    assert known is not None
    return known


def pack(path: Path, data: bytes, *, compression: int = zipfile.ZIP_STORED) -> None:
    """A zip file with a pickle, as `torch.save` writes one."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")


def envelope(**items: object) -> bytes:
    return pickle.dumps({"format": "torch.compiler.precompile", "version": 1, **items}, 2)


def test_the_cache_belongs_to_the_code() -> None:
    known = cache(PAIR / "m.cache")
    assert known.belongs_to(CODE)
    assert not known.belongs_to(CODE + b"\n")
    assert known.for_code(CODE) == CACHE


def test_only_the_hash_and_checksums_change(tmp_path: Path) -> None:
    other = cache(PAIR / "m.cache").for_code(b"other")
    (tmp_path / "m.cache").write_bytes(other)
    changed = [at for at, (a, b) in enumerate(zip(CACHE, other, strict=True)) if a != b]
    assert 0 < len(changed) <= 64 + 2 * 4
    assert cache(tmp_path / "m.cache").belongs_to(b"other")
    assert cache(tmp_path / "m.cache").for_code(CODE) == CACHE
    with zipfile.ZipFile(tmp_path / "m.cache") as file:
        assert file.testzip() is None


def test_torch_itself_reads_the_hash(tmp_path: Path) -> None:
    import torch

    (tmp_path / "m.cache").write_bytes(cache(PAIR / "m.cache").for_code(b"other"))
    before = torch.load(PAIR / "m.cache", weights_only=True)
    after = torch.load(tmp_path / "m.cache", weights_only=True)
    assert after == before | {"code_hash": hashlib.sha256(b"other").hexdigest()}


def test_a_member_without_a_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "m.cache"
    pack(path, envelope(code_hash="0" * 64, artifact=None))
    path.write_bytes(cache(path).for_code(CODE))
    assert cache(path).belongs_to(CODE)
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None


def test_instrument_writes_both_and_strip_gives_both_back(pair: Path) -> None:
    assert main(["instrument", str(pair), "--probe", "print"]) == 0
    probed = pair.with_name("m.instrumented.py")
    assert cache(pair.with_name("m.instrumented.cache")).belongs_to(probed.read_bytes())
    assert main(["strip", str(probed), "-o", str(pair.with_name("back.py"))]) == 0
    assert pair.with_name("back.py").read_bytes() == CODE
    assert pair.with_name("back.cache").read_bytes() == CACHE


def test_in_place_both_have_a_backup(pair: Path) -> None:
    assert main(["instrument", str(pair), "--in-place", "--probe", "names"]) == 0
    assert cache(pair.with_suffix(".cache")).belongs_to(pair.read_bytes())
    there = snapshot(pair.parent)
    assert (there["m.py.orig"], there["m.cache.orig"]) == (CODE, CACHE)
    assert main(["strip", str(pair), "--in-place"]) == 0
    assert snapshot(pair.parent) == {"m.py": CODE, "m.cache": CACHE}


def test_if_one_cannot_be_written_neither_is(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.with_name("m.instrumented.cache").write_bytes(b"of somebody else")
    before = snapshot(pair.parent)
    assert main(["instrument", str(pair), "--probe", "print"]) == 2
    assert "error[exists]" in capsys.readouterr().err
    pair.with_name("m.cache.orig").write_bytes(b"of somebody else")
    before = snapshot(pair.parent)
    assert main(["instrument", str(pair), "--in-place", "--probe", "print"]) == 2
    assert snapshot(pair.parent) == before


def test_a_directory_of_pairs(pair: Path) -> None:
    for suffix in (".py", ".cache"):
        shutil.copyfile(pair.with_suffix(suffix), pair.with_name(f"n{suffix}"))
    out = pair.parent.with_name("out")
    assert main(["instrument", str(pair.parent), "-o", str(out), "--probe", "print"]) == 0
    for name in ("m", "n"):
        assert cache(out / f"{name}.cache").belongs_to((out / f"{name}.py").read_bytes())
    before = snapshot(pair.parent)
    assert main(["instrument", str(pair.parent), "--in-place", "--probe", "print"]) == 0
    assert snapshot(out).items() <= snapshot(pair.parent).items()
    assert main(["strip", str(pair.parent), "--in-place"]) == 0
    assert snapshot(pair.parent) == before


def test_the_document_names_the_cache(pair: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["instrument", str(pair), "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["cache"] == str(pair.with_name("m.instrumented.cache"))


def test_a_cache_opens_its_code(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(pair)]) == 0
    of_code = capsys.readouterr().out
    assert main(["list", str(pair.with_suffix(".cache"))]) == 0
    assert capsys.readouterr().out == of_code
    pair.unlink()
    assert main(["list", str(pair.with_suffix(".cache"))]) == 2
    assert "error[cache-alone]" in capsys.readouterr().err


def test_of_a_cache_of_other_code_it_is_said(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.write_bytes(CODE + b"# edited\n")
    assert main(["instrument", str(pair), "--probe", "print"]) == 0
    assert "m.cache does not belong to" in capsys.readouterr().err
    assert not pair.with_name("m.instrumented.cache").exists()


def test_other_files_are_no_caches(pair: Path) -> None:
    path = pair.with_suffix(".cache")
    for data in (b"", b"SQLite format 3\0", pickle.dumps({"format": "torch.compiler.precompile"})):
        path.write_bytes(data)
        assert read_cache(path) is None
    pack(path, pickle.dumps({"format": "other", "code_hash": "0" * 64}, 2))
    assert read_cache(path) is None
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "")
    assert read_cache(path) is None


class Bomb:
    """A pickle that makes a file as it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


def test_a_pickle_with_code_is_not_executed(pair: Path, tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "executed")
    code_hash = hashlib.sha256(CODE).hexdigest()
    pack(pair.with_suffix(".cache"), envelope(artifact=bomb, code_hash=code_hash))
    assert main(["instrument", str(pair), "--probe", "print"]) == 0
    assert main(["list", str(pair.with_suffix(".cache"))]) == 0
    assert not bomb.path.exists()


def damaged() -> dict[str, bytes]:
    """What is left of a cache, by what happened to it."""
    at = CACHE.index(b"code_hash") + 20
    names = zlib.crc32(CACHE)  # nothing that stands in the file
    return {
        "cut": CACHE[: len(CACHE) // 2],
        "flipped": CACHE[:at] + bytes([CACHE[at] ^ 1]) + CACHE[at + 1 :],
        "begins": CACHE[:100],
        "checksum": CACHE.replace(
            b"PK\7\x08" + CACHE[CACHE.index(b"PK\7\x08") + 4 :][:4],
            b"PK\7\x08" + names.to_bytes(4, "little"),
            1,
        ),
    }


@pytest.mark.parametrize("how", damaged())
def test_damaged(how: str, pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair.with_suffix(".cache").write_bytes(damaged()[how])
    before = snapshot(pair.parent)
    assert main(["instrument", str(pair), "--in-place", "--probe", "print"]) == 2
    assert "error[damaged-cache]" in capsys.readouterr().err
    assert snapshot(pair.parent) == before


def test_damaged_pickles(pair: Path) -> None:
    path = pair.with_suffix(".cache")
    for data in (
        envelope(artifact=None),
        envelope(code_hash="no hash"),
        envelope(code_hash="0" * 64)[:-3],
    ):
        pack(path, data)
        with pytest.raises(RewriterError, match="damaged") as caught:
            read_cache(path)
        assert caught.value.slug == "damaged-cache"
    pack(path, envelope(code_hash="0" * 64), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(RewriterError, match="compressed"):
        read_cache(path)
