"""Packages that are no packages, or that somebody made to do harm: refused, and nothing written."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from artifacts import ARTIFACTS, get
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package import pack
from rewriter.artifact.package.model import Package
from rewriter.cli import main
from rewriter.instrumentation.rebuild import build, probed_models
from rewriter.instrumentation.rebuild.check import Loading
from rewriter.instrumentation.rebuild.machine import Machine, Torch
from rewriter.instrumentation.select import select
from sampling import sampled

pytestmark = pytest.mark.properties

MLP = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"
REAL = [MLP, ARTIFACTS / "cuda-torch2.11/customop/package/model.pt2"]
SOURCES = get("cpu-torch2.13/mlp aoti").path.parent
COMMANDS = {
    "list": ["list"],
    "instrument": ["instrument", "--no-rebuild"],
    "build": ["instrument", "--no-check"],
    "strip": ["strip"],
    "doctor": ["doctor"],
}


def by_a_command(cases: Collection[str]) -> pytest.MarkDecorator:
    """Each case is given to one of the commands; in the exhaustive run, to all."""
    return pytest.mark.parametrize(("what", "command"), sampled(list(cases), list(COMMANDS)))


MODEL = "model/data/aotinductor/model/"
STEM = f"{MODEL}c{'a' * 51}.wrapper"
WRAPPER = f"{STEM}.cpp"
LIBRARY = f"{STEM}.so"


@dataclass(frozen=True)
class Entry:
    """An entry of a zip file, and what it claims of itself where that is not true."""

    name: str
    data: bytes = b"x"
    raw: bytes | None = None  # the name as bytes
    local: bytes | None = None  # the name in front of the data
    method: int = zipfile.ZIP_STORED
    flags: int = 0x800
    size: int | None = None
    packed: int | None = None
    mode: int = 0o100600
    at: int | None = None  # the offset


def zipped(entries: list[Entry], comment: bytes = b"") -> bytes:
    """A zip file of these entries, sound or not."""
    body, directory = b"", b""
    for entry in entries:
        data = entry.data
        if entry.method == zipfile.ZIP_DEFLATED:
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
            data = squeeze.compress(data) + squeeze.flush()
        name = entry.name.encode() if entry.raw is None else entry.raw
        local = name if entry.local is None else entry.local
        fixed = (entry.flags, entry.method, 0, 33, zlib.crc32(entry.data))
        sizes = (
            len(data) if entry.packed is None else entry.packed,
            len(entry.data) if entry.size is None else entry.size,
        )
        offset = len(body) if entry.at is None else entry.at
        body += struct.pack("<4s5H3L2H", b"PK\3\4", 20, *fixed, *sizes, len(local), 0)
        body += local + data
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", 0x314, 20, *fixed, *sizes, len(name),
                                 0, 0, 0, 0, entry.mode << 16, offset) + name  # fmt: skip
    count = len(entries)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body),
                      len(comment))  # fmt: skip
    return body + directory + end + comment


def members(*, library: bool = True) -> list[Entry]:
    """What is in a package of one model, its library aside, in torch's order."""
    found = [
        Entry(WRAPPER, (SOURCES / "wrapper.cpp").read_bytes()),
        Entry(f"{MODEL}ck.kernel.cpp", (SOURCES / "kernel.cpp").read_bytes()),
        Entry(f"{STEM}_metadata.json", (SOURCES / "wrapper_metadata.json").read_bytes()),
        Entry(LIBRARY, b"\x7fELF, or so it says"),
        Entry("model/archive_format", b"pt2"),
        Entry("model/byteorder", b"little"),
    ]
    return [one for one in found if library or one.name != LIBRARY]


def without(name: str) -> list[Entry]:
    return [one for one in members() if one.name != name]


def with_(**changes: object) -> list[Entry]:
    """The members, the third of which differs from what it was."""
    first, second, third, *more = members()
    return [first, second, replace(third, **changes), *more]  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes | None]:
    """Everything in a directory with its contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a package lies, in a directory so deep that what leads out of it is seen."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    yield folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b"]


def refused(
    command: str, path: Path, slug: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(path.parent)
    code = main([*COMMANDS[command], str(path)])
    output = capsys.readouterr()
    assert code == 2, output.err
    assert f"error[{slug}]: {path}" in output.err
    assert says in output.err
    assert output.out == ""
    assert files(path.parent) == before


# --- Refused ------------------------------------------------------------------------------------

EVIL = Entry("model/evil", b"evil")


def more(*less: str, **changes: object) -> Callable[[], list[Entry]]:
    """The members, and an evil one; without some."""
    evil = replace(EVIL, **changes)  # type: ignore[arg-type]
    return lambda: [*(one for one in members() if one.name not in less), evil]


def linked() -> list[Entry]:
    first, *others = members()
    return [replace(first, mode=0o120777, data=b"/etc/passwd"), *others]


def overlapping() -> list[Entry]:
    first, *others = members()
    return [replace(first, packed=10**6, size=10**6), *others]


def bombs() -> list[Entry]:
    bomb = replace(EVIL, data=bytes(9 << 10), method=8, size=1 << 28)
    return [*members(), *(replace(bomb, name=f"model/{n}") for n in range(40))]


UNSAFE: dict[str, tuple[Callable[[], list[Entry]], str]] = {
    "a name that leads up": (more(name="model/../../evil"), "leads out of the package"),
    "a library that leads up": (
        more(LIBRARY, name=f"{MODEL}../../../../../evil.so"), "leads out of the package"
    ),
    "a model named ..": (
        more(name=f"model/data/aotinductor/../{PurePosixPath(WRAPPER).name}"),
        "leads out of the package",
    ),
    "nothing but ..": (more(name=".."), "leads out of"),
    "an absolute name": (more(name="/evil"), "absolute"),
    "a drive": (more(name="C:/evil"), "absolute"),
    "a drive alone": (more(name="c:evil"), "absolute"),
    "a backslash": (more(name="model\\..\\evil"), "no sound name"),
    "a NUL": (more(name="model/evil\0.txt"), "no sound name"),
    "a name that ends at a NUL": (more(WRAPPER, name=f"{WRAPPER}\0.txt"), "no sound name"),
    "no name": (more(name=""), "no sound name"),
    "a directory outside": (more(name="../evil/", data=b""), "leads out of"),
    "a link": (more(mode=0o120777, data=b"/etc/passwd"), "is a link"),
    "a wrapper that is a link": (linked, "is a link"),
    "an entry twice": (more(name="model/byteorder"), "two entries"),
    "a wrapper twice": (more(name=WRAPPER), "two entries"),
    "an encrypted entry": (lambda: with_(flags=0x801), "is encrypted"),
    "strong encryption": (lambda: with_(flags=0x841), "is encrypted"),
    "an entry in an entry": (
        lambda: [*with_(data=zipped([EVIL])), replace(EVIL, at=at_of(2) + 100)],
        "shares bytes",
    ),
    "two entries of the same bytes": (
        lambda: [*members(), replace(EVIL, at=0, data=members()[0].data, local=b"model/evil")],
        "shares bytes",
    ),
    "an entry that reaches into the next": (overlapping, "shares bytes"),
    "two sizes": (lambda: with_(size=99), "two sizes"),
    "a bomb": (more(data=bytes(3 << 20), method=8, size=0xFFFFFFF0), "claim to hold 4,"),
    "many small bombs": (bombs, "claim to hold 10,"),
}  # fmt: skip


def at_of(number: int) -> int:
    """Where an entry of `members` begins."""
    return sum(30 + len(one.name) + len(one.data) for one in members()[:number])


@by_a_command(UNSAFE)
def test_what_nobody_should_unpack_is_refused(
    what: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, says = UNSAFE[what]
    path = place / "model.pt2"
    path.write_bytes(zipped(make()))
    refused(command, path, "unsafe-package", says, capsys)


def _cut(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at]


def _flip(marker: bytes, offset: int = 0) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = data.index(marker) + offset
        return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]

    return change


def _end(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Change the record at the end of the file."""

    def change(data: bytes) -> bytes:
        at = data.index(b"PK\5\6") + offset
        return data[:at] + new + data[at + len(new) :]

    return change


def _with(**changes: object) -> Callable[[bytes], bytes]:
    return lambda data: zipped([replace(members()[0], **changes), *members()[1:]])  # type: ignore[arg-type]


def _torn(data: bytes) -> bytes:
    entry = replace(members()[0], method=8)
    whole = zipped([entry, *members()[1:]])
    at = 30 + len(entry.name) + 2000
    return whole[:at] + bytes(100) + whole[at + 100 :]


CORRUPT: dict[str, Callable[[bytes], bytes]] = {
    "the first bytes alone": _cut(4),
    "cut in the wrapper": _cut(1000),
    "cut in the directory": _cut(-200),
    "cut at the end": _cut(-1),
    "no directory": lambda data: data[: data.index(b"PK\1\2")] + data[data.index(b"PK\5\6") :],
    "garbage behind a head": lambda data: b"PK\3\4" + bytes(range(256)) * 40,
    "a wrapper of another hash": _flip(b"AOTInductorModel::run_impl"),
    "a torn deflated wrapper": _torn,
    "a wrong signature in the directory": _flip(b"PK\1\2", 1),
    "a wrong signature in an entry": _flip(f"{MODEL}ck.kernel".encode(), -30),
    "another name in front of the data": _with(local=f"{STEM}.hpp".encode()),
    "a longer name in front of the data": _with(local=b"model/" + WRAPPER.encode()),
    "a name that is no UTF-8": _with(raw=WRAPPER.encode() + b"\xff.cpp"),
    "an entry behind the file": _with(at=10**6),
    "a size behind the file": lambda data: zipped(
        [*members(), Entry("model/evil", packed=10**6, size=10**6)]
    ),
    "an inflated size that is too small": _with(method=8, size=1000),
    "an inflated size that is too large": _with(method=8, size=10**6),
    "patched data": _with(flags=0x820),
    "bzip2": _with(method=12),
    "lzma": _with(method=14),
    "a method that there is not": _with(method=77),
    "a directory that says it is elsewhere": _end(16, b"\xff\xff\xff\x7f\0\0"),
    "more entries than there are": _end(8, b"\7\0\7\0"),
    "fewer entries than there are": _end(8, b"\5\0\5\0"),
    "a directory behind the file": _end(12, b"\xf0" * 8),
}


@by_a_command(CORRUPT)
def test_a_damaged_zip_file_is_refused(
    what: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "model.pt2"
    path.write_bytes(CORRUPT[what](zipped(members())))
    refused(command, path, "corrupt-package", "", capsys)


def _plain(*names: str) -> Callable[[], list[Entry]]:
    return lambda: [Entry(name) for name in names]


_NO_MODELS = "no data/aotinductor/ directory"
OTHERS: dict[str, tuple[Callable[[], list[Entry]], str, str]] = {
    "an empty zip": (_plain(), "not-a-package", _NO_MODELS),
    "torch.save": (
        _plain("archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/version"),
        "not-a-package",
        "a file of torch.save",
    ),
    "TorchScript": (
        _plain("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl", "m/version"),
        "not-a-package",
        "a TorchScript model",
    ),
    "torch.export": (
        _plain("m/archive_format", "m/models/model.json", "m/data/weights/weight_0"),
        "not-a-package",
        "torch.export that was not compiled",
    ),
    "another zip": (_plain("readme.txt"), "not-a-package", _NO_MODELS),
    "a file beside the models": (
        _plain("m/data/aotinductor/readme.txt"), "not-a-package", _NO_MODELS
    ),
    "two roots": (more(name="other/readme.txt"), "not-a-package", _NO_MODELS),
    "no wrapper": (
        lambda: without(WRAPPER), "no-wrapper-source", "the model model holds no wrapper"
    ),
    "an empty wrapper": (
        lambda: [Entry(WRAPPER, b""), *without(WRAPPER)], "no-wrapper-source", "no wrapper"
    ),
    "two wrappers": (
        lambda: [*members(), Entry(f"{MODEL}other.wrapper.cpp", members()[0].data)],
        "no-wrapper-source",
        "holds 2 wrappers",
    ),
    "a second model without wrapper": (
        more(name="model/data/aotinductor/other/x.so"),
        "no-wrapper-source",
        "the model other holds no wrapper",
    ),
    "metadata that is no JSON": (
        lambda: with_(data=b"{"), "corrupt-package", "is no JSON object"
    ),
    "metadata that is no object": (
        lambda: with_(data=b"[1]"), "corrupt-package", "is no JSON object"
    ),
    "metadata that is no text": (
        lambda: with_(data=b"\xff\xfe{}"), "corrupt-package", "is no JSON object"
    ),
}  # fmt: skip


@by_a_command(OTHERS)
def test_another_zip_file_is_named(
    what: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, slug, says = OTHERS[what]
    path = place / "model.pt2"
    path.write_bytes(zipped(make()))
    refused(command, path, slug, says, capsys)


# --- Accepted -----------------------------------------------------------------------------------


def patched(place: Path, data: bytes | None = None) -> tuple[Path, Path]:
    """A package, and what `probed` makes of it."""
    original, output = place / "model.pt2", place / "model.instrumented.pt2"
    original.write_bytes(zipped(members()) if data is None else data)
    probed(original, output)
    return original, output


def probed(original: Path, output: Path) -> None:
    """Patch a package as `instrument` does, with some bytes for the libraries."""
    if original.is_dir():
        _patch(original, output)
    else:
        output.write_bytes(_patched(original.read_bytes()))


@lru_cache(maxsize=4)
def _patched(original: bytes) -> bytes:
    """Of most tests, the package is the same."""
    with TemporaryDirectory() as folder:
        plain, output = Path(folder, "model.pt2"), Path(folder, "model.instrumented.pt2")
        plain.write_bytes(original)
        _patch(plain, output)
        return output.read_bytes()


def _patch(original: Path, output: Path) -> None:
    artifact = open_artifact(original)
    assert isinstance(artifact, Package)
    results = probed_models.instrument(artifact, select("names"))
    scratch = output.with_suffix(".files")
    scratch.mkdir()
    sources, libraries = {}, {}
    for number, one in enumerate(results):
        sources[one.model.name] = scratch / f"{number}.cpp"
        sources[one.model.name].write_bytes(one.result.source)
        libraries[one.model.name] = scratch / f"{number}.so"
        libraries[one.model.name].write_bytes(b"a new library")
    changes = probed_models.changes(results, sources, libraries)
    write = pack.patch_folder if original.is_dir() else pack.patch
    about = probed_models.manifest(results, ["link" for _ in results])
    write(original, output, artifact.root, changes, about)
    shutil.rmtree(scratch)


def contents(path: Path) -> dict[str, bytes]:
    """The members of a package, each once, in their order."""
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert len(set(file.namelist())) == len(file.namelist())
        return {name: file.read(name) for name in file.namelist()}


def _written(*, force_zip64: bool = False) -> bytes:
    """As `zipfile` writes it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for one in members():
            entry = zipfile.ZipInfo(one.name)
            entry.file_size = len(one.data)
            with file.open(entry, "w", force_zip64=force_zip64) as member:
                member.write(one.data)
    return target.getvalue()


class _Pipe(io.RawIOBase):
    """What can only be written to the end."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.data += data
        return len(data)


def _streamed() -> bytes:
    target = _Pipe()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for one in members():
            file.writestr(one.name, one.data)
    return target.data


def _zip64() -> bytes:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zipfile, "ZIP64_LIMIT", 100)
        return _written()


def _renamed(old: str, new: str) -> list[Entry]:
    return [replace(one, name=one.name.replace(old, new, 1)) for one in members()]


def _gap() -> bytes:
    data = zipped(members())
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    start = struct.pack("<L", at + 5)
    return data[:at] + b"a gap" + data[at:end] + data[end:].replace(data[end + 16 :][:4], start, 1)


SOUND: dict[str, Callable[[], bytes]] = {
    "as torch writes it": lambda: zipped(members()),
    "the real one": MLP.read_bytes,
    "with operators": REAL[1].read_bytes,
    "deflated": lambda: zipped([replace(one, method=8) for one in members()]),
    "partly deflated": lambda: zipped(with_(method=8)),
    "without a root": lambda: zipped(_renamed("model/", "")),
    "another root": lambda: zipped(_renamed("model/", "data/")),
    "a root that is no ASCII": lambda: zipped(_renamed("model/", "modèle/")),
    "a model that is no ASCII": lambda: zipped(_renamed("/model/", "/模型 1/")),
    "a comment": lambda: zipped(members(), b"made by hand"),
    "directories": lambda: zipped([Entry("model/", b""), Entry("model/data/", b""), *members()]),
    "the library first": lambda: zipped(sorted(members(), key=lambda one: one.name != LIBRARY)),
    "two models": lambda: zipped([*members(), *_renamed("/model/", "/other/")[:4]]),
    "without library": lambda: zipped(members(library=False)),
    "a gap before the directory": _gap,
    "streamed": _streamed,
    "zip64 in front of the data": lambda: _written(force_zip64=True),
    "zip64": _zip64,
    "as zipfile writes it": _written,
    "zeros that deflate well": lambda: zipped(
        [*members(), Entry("model/data/constants/weight_0", bytes(5 << 20), method=8)]
    ),
}


@pytest.mark.parametrize("how", SOUND)
def test_a_sound_package_comes_back_exactly(
    how: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, output = patched(place, SOUND[how]())
    assert main(["list", str(original)]) == 0
    launches = capsys.readouterr().out
    assert len(launches.splitlines()) > 4
    assert main(["list", str(output)]) == 0
    assert "names" in contents(output)["".join(n for n in contents(output) if "anif" in n)].decode()
    before, after = contents(original), contents(output)
    changed = {name for name in before if after.get(name) != before[name]}
    assert {PurePosixPath(name).suffix for name in changed} <= {".cpp", ".so"}
    assert main(["strip", "--check", str(output)]) == 1
    assert main(["strip", "--check", str(original)]) == 0
    assert main(["strip", str(output), "-o", str(place / "back.pt2")]) == 0
    assert "warning" not in capsys.readouterr().err
    assert (place / "back.pt2").read_bytes() == original.read_bytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("how", ["as torch writes it", "the real one", "two models", "zip64"])
def test_a_package_that_was_packed_again_comes_back_by_its_members(
    how: str, turned: bool, method: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, output = patched(place, SOUND[how]())
    entries = contents(output)
    packed(output, dict(reversed(entries.items())) if turned else entries, method)
    comes_back_by_its_members(original, output, capsys)


def packed(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in entries.items():
            file.writestr(name, data)


def comes_back_by_its_members(
    original: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the exact way back is not to be had."""
    back = original.with_name("back.pt2")
    before = files(original.parent)
    assert main(["list", str(output)]) == 0
    assert main(["strip", str(output), "-o", str(back)]) == 0
    assert "warning: " in capsys.readouterr().err
    assert contents(back) == contents(original)
    assert files(original.parent) == before | {"back.pt2": back.read_bytes()}
    # Nor are its probes exchanged, since that begins with what it was.
    assert main(["instrument", "--replace", "--no-rebuild", str(output)]) == 2
    assert "error[edited-since]" in capsys.readouterr().err


# --- Manifests that somebody else wrote -----------------------------------------------------------


def forge(package: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Write another manifest into a patched package, and leave the rest where it is."""
    if package.is_dir():
        (path,) = package.rglob("manifest.json")
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        return
    with zipfile.ZipFile(package, "a") as file:
        (name,) = (name for name in file.namelist() if name.endswith("manifest.json"))
        manifest = change(json.loads(file.read(name)))
        entry = file.NameToInfo.pop(name)
        file.filelist.remove(entry)
        file.start_dir = entry.header_offset
        file.writestr(name, manifest if isinstance(manifest, bytes) else json.dumps(manifest))


def _original(**changes: object) -> Callable[[dict[str, object]], object]:
    return lambda manifest: manifest | {"original": {**manifest["original"], **changes}}  # type: ignore[dict-item]


def _names(*renamed: object) -> Callable[[dict[str, object]], object]:
    return _original(renamed=list(renamed))


def _less(*keys: str) -> Callable[[dict[str, object]], object]:
    def change(manifest: dict[str, object]) -> object:
        of = manifest
        for key in keys[:-1]:
            of = of[key]  # type: ignore[assignment]
        del of[keys[-1]]
        return manifest

    return change


FORGED: dict[str, Callable[[dict[str, object]], object]] = {
    "a directory behind the file": _original(directory=10**9),
    "a directory far behind the file": _original(directory=1 << 63),
    "a directory and a size far behind": _original(directory=(1 << 63) - 400, size=1 << 63),
    "a directory before the file": _original(directory=-1),
    "a directory in text": _original(directory="0"),
    "a directory in half": _original(directory=100.5),
    "a directory at no place": _original(directory=None),
    "a directory in a list": _original(directory=[1]),
    "a directory at infinity": _original(directory=float("inf"), size=float("inf")),
    "a directory that is no number": _original(directory=float("nan"), size=float("nan")),
    "another directory": _original(directory=0),
    "another size": _original(size=7),
    "a negative size": _original(size=-7),
    "another hash": _original(sha256="0" * 64),
    "no hash": _original(sha256=None),
    "a hash that is a list": _original(sha256=[]),
    "nothing renamed": _names(),
    "renamed in front of the file": _names([-1, "x"]),
    "renamed behind the file": _names([10**12, "x"]),
    "renamed in no order": _names([3000, "abc"], [100, "abc"], [2000, "abc"]),
    "renamed twice": _names([100, "abc"], [100, "def"]),
    "renamed to much more": _names([100, "x" * 100_000]),
    "renamed to what is no text": _names([100, "\ud800"]),
    "renamed to a number": _names([100, 7]),
    "renamed in a flat list": _names(100, "x"),
    "renamed in triples": _names([100, "x", "y"]),
    "renamed in text": _original(renamed="text"),
    "renamed in a number": _original(renamed=7),
    "no renames": _less("original", "renamed"),
    "no original": _less("original"),
    "an original that is a list": lambda manifest: manifest | {"original": []},
    "an original that is nothing": lambda manifest: manifest | {"original": None},
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_way_back_leads_to_the_members(
    what: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, output = patched(place)
    forge(output, FORGED[what])
    comes_back_by_its_members(original, output, capsys)


@pytest.mark.parametrize("kept", [b"", b"PK\5\6" + bytes(18), b"PK\1\2" * 1000, None])
def test_a_directory_that_is_not_the_original_one_leads_to_the_members(
    kept: bytes | None, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, output = patched(place)
    if kept is None:  # damaged where it lies
        data = output.read_bytes()
        at = data.index(b"original.directory") + 40
        output.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    else:
        packed(output, contents(output) | {"model/rewriter/original.directory": kept})
    comes_back_by_its_members(original, output, capsys)


UNKNOWN: dict[str, object] = {
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "nothing": b"",
    "null": None,
    "a list": [],
    "a number": 7,
    "an empty object": {},
    "a later version": {"format": "rewriter.package", "version": 2},
    "a version in text": {"format": "rewriter.package", "version": "1"},
    "another format": {"format": "rewriter.dump", "version": 1},
    "no format": {"version": 1},
}


@by_a_command(UNKNOWN)
def test_an_unknown_manifest_is_refused(
    what: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, path = patched(place)
    original.unlink()
    forge(path, lambda manifest: UNKNOWN[what])
    refused(command, path, "bad-manifest", "no manifest that this version knows", capsys)


def _models(**changes: object) -> Callable[[dict[str, object]], object]:
    def change(manifest: dict[str, object]) -> object:
        (about,) = manifest["models"].values()  # type: ignore[attr-defined]
        return manifest | {"models": {"model": {**about, **changes}}}

    return change


_KERNELS = LIBRARY.replace(".wrapper", ".kernels")
WRONG_MODELS: dict[str, Callable[[dict[str, object]], object]] = {
    "a list": lambda manifest: manifest | {"models": []},
    "text": lambda manifest: manifest | {"models": "model"},
    "nothing": lambda manifest: manifest | {"models": None},
    "a model that is text": lambda manifest: manifest | {"models": {"model": "x"}},
    "a model that is a list": lambda manifest: manifest | {"models": {"model": []}},
    "a library that leads out": _models(library="../../../../evil.so"),
    "a library at an absolute place": _models(library="/evil.so"),
    "a library that is a directory": _models(library=MODEL),
    "a library that is the wrapper": _models(library=WRAPPER),
    "a library that is another member": _models(library="model/byteorder"),
    "a library without name": _models(library=""),
    "a library that is a number": _models(library=7),
    "a library that is a list": _models(library=[LIBRARY]),
    "no library": _models(library=None),
    "an original that is the wrapper": _models(original_library=WRAPPER),
    "an original that is another member": _models(original_library="model/byteorder"),
    "an original that is a list": _models(original_library=[_KERNELS]),
    "an original that is not there": _models(original_library="model/evil.so"),
    "no original": _models(original_library=None),
    "one library from two": lambda manifest: (
        manifest
        | {
            "models": {
                "a": {"library": LIBRARY, "original_library": _KERNELS},
                "b": {"library": LIBRARY, "original_library": "model/byteorder"},
            }
        }
    ),
}


@pytest.mark.parametrize("folder", [False, True], ids=["zip", "folder"])
@pytest.mark.parametrize("what", WRONG_MODELS)
def test_a_manifest_with_wrong_members_is_refused(
    what: str, folder: bool, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, output = patched(place)
    if folder:
        with zipfile.ZipFile(original) as file:
            file.extractall(place / "unpacked")
        original, output = place / "unpacked", place / "unpacked.instrumented"
        probed(original, output)
    forge(output, WRONG_MODELS[what])
    if not folder:
        # The way back must not be the exact one, which needs no names of members.
        forge(output, _original(size=1))
    before = files(place)
    code = main(["strip", str(output), "-o", str(place / "back")])
    assert files(place) == before
    assert code == 2
    assert "error[bad-manifest]" in capsys.readouterr().err


# --- Unpacked, and sources beside their package ---------------------------------------------------


def test_an_unpacked_package_with_a_link_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, secret = place / "model.pt2", place / "secret"
    original.write_bytes(zipped(members()))
    with zipfile.ZipFile(original) as file:
        file.extractall(place / "unpacked")
    secret.write_text("a secret")
    (place / "unpacked/model/byteorder").unlink()
    (place / "unpacked/model/byteorder").symlink_to(secret)
    for command in COMMANDS:
        refused(command, place / "unpacked", "unsafe-package", "byteorder is a link", capsys)


def test_an_unpacked_package_comes_back_exactly(place: Path) -> None:
    original, output = place / "unpacked", place / "unpacked.instrumented"
    with zipfile.ZipFile(REAL[1]) as file:
        file.extractall(original)
    probed(original, output)
    assert main(["list", str(output)]) == 0
    assert files(output) != files(original)
    assert main(["strip", str(output), "-o", str(place / "back")]) == 0
    assert files(place / "back") == files(original)


def _replaced(**changes: object) -> Callable[[dict[str, object]], object]:
    return lambda sources: sources | changes


def _wrapper_is(file: object) -> Callable[[dict[str, object]], object]:
    def change(sources: dict[str, object]) -> object:
        member = next(iter(sources["replaced"]))  # type: ignore[call-overload]
        return sources | {"replaced": {member: file}}

    return change


WRONG_SOURCES: dict[str, tuple[Callable[[dict[str, object]], object], str]] = {
    "a file that leads out": (_wrapper_is("../../secret.cpp"), "unsafe-package"),
    "a file that leads out and back": (_wrapper_is("../model/build.sh"), "unsafe-package"),
    "a file at an absolute place": (_wrapper_is("/etc/hostname"), "unsafe-package"),
    "a link that leads out": (_wrapper_is("link.cpp"), "unsafe-package"),
    "a file that is not there": (_wrapper_is("other.cpp"), "unreadable"),
    "a directory": (_wrapper_is("model"), "unreadable"),
    "a number": (_wrapper_is(7), "unsafe-package"),
    "a list": (_wrapper_is(["x"]), "unsafe-package"),
    "a member that is not there": (_replaced(replaced={"model/x": "build.sh"}), "unsafe-package"),
    "replaced is a list": (_replaced(replaced=["x"]), "unsafe-package"),
    "replaced is a number": (_replaced(replaced=7), "unsafe-package"),
    "another version": (_replaced(version=2), "bad-manifest"),
    "no object": (lambda sources: [], "bad-manifest"),
}


@pytest.mark.parametrize("what", WRONG_SOURCES)
def test_sources_that_lead_elsewhere_are_refused(
    what: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, slug = WRONG_SOURCES[what]
    folder = place / "model"
    assert main(["instrument", "--no-rebuild", str(MLP), "-o", str(folder)]) == 0
    (place.parent / "b" / "secret.cpp").write_text("a secret")
    (folder / "link.cpp").symlink_to("../secret.cpp")
    path = folder / "sources.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    capsys.readouterr()
    before = files(place)
    for command in ("list", "strip", "instrument"):
        assert main([*COMMANDS[command], str(folder)]) == 2
        assert f"error[{slug}]" in capsys.readouterr().err
        assert files(place) == before


@pytest.mark.parametrize("key", ["replaced", "original"])
def test_sources_that_say_too_little_are_refused(key: str, place: Path) -> None:
    folder = place / "model"
    assert main(["instrument", "--no-rebuild", str(MLP), "-o", str(folder)]) == 0
    sources = json.loads((folder / "sources.json").read_text())
    del sources[key]
    (folder / "sources.json").write_text(json.dumps(sources))
    assert main(["strip", str(folder), "-o", str(place / "back.pt2")]) == 2
    assert not (place / "back.pt2").exists()


@pytest.mark.parametrize("command", ["list", "strip"])
def test_a_manifest_without_end_is_refused(
    command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "model.pt2"
    path.write_bytes(zipped([*members(), Entry("model/rewriter/manifest.json", b"[" * 10**5)]))
    refused(command, path, "bad-manifest", "", capsys)


def test_sources_without_their_package_are_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "model"
    assert main(["instrument", "--no-rebuild", str(MLP), "-o", str(folder)]) == 0
    (folder / "original.pt2").unlink()
    for command in COMMANDS.values():
        capsys.readouterr()
        assert main([*command, str(folder)]) == 2
        assert "error[unreadable]" in capsys.readouterr().err


# --- Real ones, where nothing can be built --------------------------------------------------------

HERE = Machine(
    system="linux",
    processor="x86_64",
    features=frozenset({"avx2", "avx512f", "avx512_vnni", "amx_tile"}),
    torch=Torch("2.11.0+cu130", "13.0", Path("/nowhere/torch")),
    python_include=None,
    cuda_include=Path("/nowhere/include"),
)
# More machines are in tests/instrumentation/rebuild/test_recipe.py.
MACHINES: dict[str, tuple[Machine, int, str, str]] = {
    "torch for the CPU": (
        replace(HERE, torch=Torch("2.11.0+cpu", "", Path("/nowhere/torch"))),
        2,
        "no-cuda-torch",
        "torch 2.11.0+cpu is built without CUDA",
    ),
    "an earlier torch": (
        replace(HERE, torch=Torch("2.9.1+cu130", "13.0", Path("/nowhere/torch"))),
        2,
        "other-torch",
        "here is 2.9.1",
    ),
    "another processor": (replace(HERE, processor="aarch64"), 2, "wrong-machine", "linux aarch64"),
    "no torch": (replace(HERE, torch=None), 3, "no-torch", "not installed"),
    "no CUDA headers": (replace(HERE, cuda_include=None), 3, "no-cuda-headers", "cuda.h"),
}


def name_of(path: Path) -> str:
    return path.parent.parent.name


def _id(value: str | Path) -> str:
    return name_of(value) if isinstance(value, Path) else value


@pytest.mark.parametrize(("machine", "original"), sampled(list(MACHINES), REAL, id=_id))
def test_a_real_package_is_refused_before_anything_is_built(
    machine: str,
    original: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, code, slug, says = MACHINES[machine]
    monkeypatch.setattr(Machine, "detect", lambda: there)
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("something was built"))
    stopped: list[bool] = []
    loading = SimpleNamespace(stop=lambda: stopped.append(True))
    monkeypatch.setattr(Loading, "start", lambda *_, **__: loading)
    path = place / "model.pt2"
    shutil.copyfile(original, path)
    before = files(place)
    assert main(["instrument", str(path)]) == code
    error = capsys.readouterr().err
    assert f"error[{slug}]: {path}: model 'model': " in error
    assert says in error
    assert "--no-rebuild" in error
    assert main(["instrument", "--in-place", str(path)]) == code
    assert files(place) == before
    assert stopped == [True, True]


@pytest.mark.parametrize("original", REAL, ids=name_of)
def test_a_real_package_becomes_sources_and_comes_back(
    original: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "model.pt2"
    shutil.copyfile(original, path)
    assert main(["list", str(path)]) == 0
    listed = capsys.readouterr()
    assert listed.err == "5 launches, 0 unrecognised calls\n"
    assert main(["instrument", "--no-rebuild", str(path)]) == 0
    folder = place / "model.instrumented"
    assert main(["list", str(folder)]) == 0
    columns = [line.split()[2:] for line in listed.out.splitlines()]
    capsys_ = capsys.readouterr()
    assert [line.split()[2:] for line in capsys_.out.splitlines()] == columns
    assert main(["strip", str(folder), "-o", str(place / "back.pt2")]) == 0
    assert "warning" not in capsys.readouterr().err
    assert (place / "back.pt2").read_bytes() == path.read_bytes() == original.read_bytes()
