"""Writes a patched `.pt2`, and the original back from it.

A patched package begins with the very bytes of the original, up to its directory. New members
follow, then a directory that names them in place of what they replace. A member that is renamed
stays where it is; only its name changes, for one of the same length. The original directory is a
member of its own, so that nothing of the original is lost and all of it can be restored.

This file needs the standard library only: a build script takes it along.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import json
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event
from typing import IO, ParamSpec

# In a directory that no loader looks into, beside `data/`.
MANIFEST = "rewriter/manifest.json"
DIRECTORY = "rewriter/original.directory"

# In a directory with sources and a build script: what they are for, and the package.
SOURCES = "sources.json"
ORIGINAL = "original.pt2"
FORMAT = "rewriter.package"
VERSION = 1

# What the manifest holds beside what it is given.
_OURS = ("format", "version", "written", "original")

_NAME = 30  # where the name stands in a local header
_DATE = (1980, 1, 1, 0, 0, 0)  # that of torch's own entries
_ATTRIBUTES = 0o600 << 16
# Bytes that are held at once. A thread that reads in the background waits after each block until
# the others let the interpreter go, so smaller blocks take longer.
BLOCK = 4 << 20

_Asked = ParamSpec("_Asked")


@dataclass(frozen=True)
class Changes:
    """What happens to the members of a package.

    `replaced` gives members new contents, `renamed` other names of the same length, and `added`
    lists new members: name, file, and the member (by its new name) that they come after. The order
    matters: loaders before torch 2.13 take the last library.
    """

    replaced: Mapping[str, Path] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[tuple[str, Path, str]] = ()


def patch(
    original: Path, output: Path, root: str, changes: Changes, about: Mapping[str, object]
) -> None:
    """Write the patched package to `output`, a file that may exist and is overwritten.

    `root` is what precedes `data/` in the names of members; `about` goes into the manifest, which
    also says how to give the original back.
    """
    shutil.copyfile(original, output)
    append(output, root, changes, about, sha256(original))


def append(
    output: Path, root: str, changes: Changes, about: Mapping[str, object], digest: str
) -> None:
    """Make a copy of the original, which has this hash, the patched package; as `patch`."""
    size = output.stat().st_size
    # Opened here: zipfile makes a new archive where it cannot open one.
    with output.open("r+b") as raw, zipfile.ZipFile(raw, "a", allowZip64=True) as file:
        start = file.start_dir
        tail = _from(output, start)
        renamed: list[tuple[int, str]] = []
        for old, new in changes.renamed.items():
            if len(new.encode()) != len(old.encode()) or new in file.NameToInfo:
                raise ValueError(f"{old} cannot be renamed to {new}")
            entry = file.NameToInfo.pop(old)
            renamed.append((entry.header_offset + _NAME, old))
            entry.filename = entry.orig_filename = new
            file.NameToInfo[new] = entry
        for name, contents in changes.replaced.items():
            entry = file.NameToInfo.pop(name)
            place = file.filelist.index(entry)
            file.filelist.remove(entry)
            _add(file, name, contents, place)
        for name, contents, after in changes.added:
            if name in file.NameToInfo:
                raise ValueError(f"there is a member {name} already")
            _add(file, name, contents, file.filelist.index(file.NameToInfo[after]) + 1)
        manifest = _manifest(about, changes) | {
            "original": {
                "sha256": digest,
                "size": size,
                "directory": start,
                "renamed": sorted(renamed),
            },
        }
        file.writestr(_entry(root + DIRECTORY), tail)
        file.writestr(_entry(root + MANIFEST), _text(manifest))
    with output.open("r+b") as raw:
        for offset, old in renamed:
            raw.seek(offset)
            raw.write(changes.renamed[old].encode())


def patch_folder(
    original: Path, output: Path, root: str, changes: Changes, about: Mapping[str, object]
) -> None:
    """Write the patched package to a new directory; as `patch`, for one that was unpacked."""
    shutil.copytree(original, output)
    for old, new in changes.renamed.items():
        (output / old).rename(output / new)
    for name, contents in changes.replaced.items():
        shutil.copyfile(contents, output / name)
    for name, contents, _ in changes.added:
        shutil.copyfile(contents, output / name)
    manifest = output / root / MANIFEST
    manifest.parent.mkdir()
    fields = _manifest(about, changes) | {"original": hashes(original)}
    manifest.write_text(_text(fields), encoding="utf-8")


def is_as_packed(patched: Path, root: str, scratch: Path) -> bool:
    """Whether a patched package is, behind its original, what `patch` makes of what it holds.

    `scratch` is a directory with room for what was added. Other members, other fields of entries,
    or a manifest that is written in another way make the answer false.
    """
    with zipfile.ZipFile(patched) as file:
        text = file.read(root + MANIFEST)
        manifest = json.loads(text)
        tail = file.read(root + DIRECTORY)
        models = manifest["models"].values()
        files: dict[str, Path] = {}
        for name in [model[key] for model in models for key in ("wrapper", "library")]:
            if name is not None:
                files[name] = scratch / f"packed{len(files)}"
                with file.open(name) as source, files[name].open("wb") as target:
                    shutil.copyfileobj(source, target, BLOCK)
    moved = [(model["library"], model["original_library"]) for model in models if model["library"]]
    changes = Changes(
        {model["wrapper"]: files[model["wrapper"]] for model in models},
        dict(moved),
        [(name, files[name], after) for name, after in moved],
    )
    start, again = manifest["original"]["directory"], scratch / "again.pt2"
    with again.open("wb") as target:
        target.truncate(start)  # of the original, the directory is enough
        target.seek(start)
        target.write(tail)
    about = {key: value for key, value in manifest.items() if key not in _OURS}
    append(again, root, changes, about, manifest["original"]["sha256"])
    with patched.open("rb") as one, again.open("rb") as other:
        one.seek(start)
        other.seek(start)
        while block := one.read(1 << 20):
            if block != other.read(1 << 20):
                return False
        return not other.read(1)


def hashes(folder: Path) -> dict[str, str]:
    """The hash of each file in a directory, by its path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def _false_of_damaged(ask: Callable[_Asked, bool]) -> Callable[_Asked, bool]:
    """A question about a patched package. Whatever somebody wrote into its manifest, or did to its
    members, makes the answer false."""

    @functools.wraps(ask)
    def asked(*args: _Asked.args, **kwargs: _Asked.kwargs) -> bool:
        try:
            return ask(*args, **kwargs)
        except (AttributeError, EOFError, KeyError, RuntimeError, TypeError, ValueError):
            return False
        except (zipfile.BadZipFile, zlib.error):
            return False
        except OSError as error:
            if error.errno != errno.EINVAL:  # to seek to before the file
                raise
            return False

    return asked


@_false_of_damaged
def restore(patched: Path, root: str, output: Path | None = None) -> bool:
    """Give back the original of a patched `.pt2`; whether it is exactly that, by its hash.

    Without `output` it is not written. If the answer is false, what was written is of no use.
    """
    known, blocks = _read_back(patched, root)
    digest = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(output.open("xb")) if output else None
        for block in blocks:
            digest.update(block)
            if target:
                target.write(block)
    return digest.hexdigest() == known


@_false_of_damaged
def gives_back(patched: Path, root: str, original: Path, stopped: Event | None = None) -> bool:
    """Whether `restore` would give back this original, which takes less time than its hash. False
    if it is stopped."""
    stopped = stopped or Event()
    _, blocks = _read_back(patched, root)
    with original.open("rb") as file:
        same = (block == file.read(len(block)) and not stopped.is_set() for block in blocks)
        return all(same) and not file.read(1)


def _read_back(patched: Path, root: str) -> tuple[str, Iterator[bytes]]:
    """The hash of the original, as the manifest has it, and its bytes, a piece at a time."""
    with zipfile.ZipFile(patched) as file:
        original = json.loads(file.read(root + MANIFEST))["original"]
        if file.getinfo(root + DIRECTORY).file_size > patched.stat().st_size:
            raise ValueError("a directory of more bytes than the original had")
        tail = file.read(root + DIRECTORY)
    if original["directory"] + len(tail) != original["size"]:
        raise ValueError("the original had another size")
    blocks = _original(patched, original["directory"], original["renamed"])
    return original["sha256"], itertools.chain(blocks, [tail])


def _original(patched: Path, size: int, renamed: Sequence[tuple[int, str]]) -> Iterator[bytes]:
    """The first bytes of a patched package as they were, names included."""
    with patched.open("rb") as file:
        for offset, name in renamed:
            yield from blocks(file, offset - file.tell())
            yield name.encode()
            file.seek(len(name.encode()), os.SEEK_CUR)
        yield from blocks(file, size - file.tell())


def write(output: Path, members: Sequence[tuple[str, Path]]) -> None:
    """Write a package of these members, in their order, as torch does: not compressed."""
    with zipfile.ZipFile(output, "x", allowZip64=True) as file:
        for place, (name, contents) in enumerate(members):
            _require_inside(name)
            _add(file, name, contents, place)


def write_folder(output: Path, members: Sequence[tuple[str, Path]]) -> None:
    """Write a new directory of these members."""
    for name, contents in members:
        _require_inside(name)
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(contents, output / name)


def _require_inside(name: str) -> None:
    """A name may come from a manifest that somebody wrote."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ValueError(f"{name!r} is no name of a member")


def sha256(path: Path) -> str:
    """The hash of a file of any size, in hexadecimal."""
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """The hash of what is left of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _manifest(about: Mapping[str, object], changes: Changes) -> dict[str, object]:
    files = [*changes.replaced.items(), *((name, file) for name, file, _ in changes.added)]
    written = {name: sha256(file) for name, file in files}
    return {"format": FORMAT, "version": VERSION, **about, "written": written}


def _text(manifest: Mapping[str, object]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The next bytes of a file, so many of them, a piece at a time."""
    while size > 0 and (block := file.read(min(size, BLOCK))):
        yield block
        size -= len(block)


def _add(file: zipfile.ZipFile, name: str, contents: Path, place: int) -> None:
    """Append a member to the file, and put it at `place` in the directory."""
    entry = _entry(name)
    entry.file_size = contents.stat().st_size
    with contents.open("rb") as source, file.open(entry, "w") as target:
        shutil.copyfileobj(source, target, BLOCK)
    file.filelist.insert(place, file.filelist.pop())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.external_attr = _ATTRIBUTES
    entry.create_system = 3  # Unix, whatever the machine
    return entry


def _from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def main(folder: Path, *arguments: str) -> None:
    """What a build script asks for: `extract MEMBER FILE`, or `pack FILE` for the package."""
    with (folder / SOURCES).open(encoding="utf-8") as file:
        sources = json.load(file)
    original = folder / ORIGINAL
    if arguments[0] == "extract":
        _, member, target = arguments
        with (
            zipfile.ZipFile(original) as package,
            package.open(member) as source,
            (folder / target).open("wb") as library,
        ):
            shutil.copyfileobj(source, library, 1 << 20)
        return
    changes = Changes(
        {name: folder / file for name, file in sources["replaced"].items()},
        sources["renamed"],
        [(name, folder / file, after) for name, file, after in sources["added"]],
    )
    output = Path(arguments[1])
    temporary = output.with_name(f".{output.name}.part")
    patch(original, temporary, sources["root"], changes, sources["manifest"])
    if not restore(temporary, sources["root"]):
        temporary.unlink()
        raise SystemExit("the package would not give its original back")
    temporary.replace(output)


if __name__ == "__main__":
    main(Path(__file__).parent, *sys.argv[1:])
