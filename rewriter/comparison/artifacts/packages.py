"""Compares the contents of packages besides wrappers: members by hash, metadata, constants."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import replace

from rewriter.artifact.package import pack
from rewriter.artifact.package.container import Overlay, Zip
from rewriter.artifact.package.model import Model, Package
from rewriter.comparison.artifacts.types import MemberChange, PackageDifference, ValueChange
from rewriter.core import edit
from rewriter.core.align import by_key
from rewriter.core.errors import RewriterError

_PIECE = 1 << 20


def compare(a: Package, b: Package) -> PackageDifference:
    """What differs between two packages, for the models that were chosen in both."""
    hashes_a, hashes_b = a.hashes(), b.hashes()
    models_a, models_b = ({model.name: model for model in side.models} for side in (a, b))
    values: list[ValueChange] = []

    def constants(name: str) -> Iterator[ValueChange]:
        """Whether the constants in two libraries differ; constants in files are members."""
        own, theirs = _original_library(a, models_a[name]), _original_library(b, models_b[name])
        if own is None or theirs is None:
            return
        if hashes_a.get(own.removeprefix(a.root)) == hashes_b.get(theirs.removeprefix(b.root)):
            return
        digests = _constants_hash(a, own), _constants_hash(b, theirs)
        if digests[0] != digests[1]:
            yield ValueChange(name, "constants", *digests)

    for name in [name for name in models_a if name in models_b]:
        x, y = models_a[name].metadata, models_b[name].metadata
        keys = (key for key in sorted(x.keys() | y.keys()) if x.get(key) != y.get(key))
        values += (ValueChange(name, key, x.get(key), y.get(key)) for key in keys)
        values += constants(name)
    return PackageDifference(
        tuple(_members(hashes_a, hashes_b)),
        tuple(values),
        tuple(name for name in models_a if name not in models_b),
        tuple(name for name in models_b if name not in models_a),
        layout=hashes_a == hashes_b and not is_same_file(a, b),
    )


def is_same_file(a: Package, b: Package) -> bool:
    """Whether two packages are equal byte for byte; for a directory, whether its contents are."""
    if isinstance(a.container, Zip) and isinstance(b.container, Zip):
        return pack.sha256(a.path) == pack.sha256(b.path)
    return a.hashes() == b.hashes()


def is_same_original(a: Package, b: Package) -> bool:
    """Whether two packages were equal byte for byte before they were instrumented.

    This does not check the sources of the wrappers as they are now.
    """
    if a.is_folder or b.is_folder:
        members = _original_members(a)
        return members is not None and members == _original_members(b)
    original = _original_hash(a)
    return original is not None and original == _original_hash(b)


def _original_hash(package: Package) -> str | None:
    """The hash of the file without probes; `None` if it cannot be restored."""
    if isinstance(package.container, Overlay):
        return pack.sha256(package.container.original.path)
    if package.manifest is None:
        return pack.sha256(package.path)
    if not pack.restore(package.path, package.root):
        return None
    return str(package.manifest["original"]["sha256"])


def _original_members(package: Package) -> dict[str, str] | None:
    """The hashes of the members without probes; `None` if they are not the original ones."""
    if isinstance(package.container, Overlay):
        return replace(package, container=package.container.original).hashes()
    hashes = package.hashes()
    if package.manifest is None:
        return hashes
    if not package.is_folder and not pack.restore(package.path, package.root):
        return None
    for name in (pack.MANIFEST, pack.DIRECTORY):
        hashes.pop(name, None)
    for model in package.models:
        plain = edit.strip(model.source).source
        hashes[model.wrapper.removeprefix(package.root)] = hashlib.sha256(plain).hexdigest()
    for about in package.manifest.get("models", {}).values():
        if moved := about.get("original_library"):
            inside, before = (x.removeprefix(package.root) for x in (moved, about["library"]))
            hashes[before] = hashes.pop(inside)
    recorded = package.manifest["original"].items() if package.is_folder else None
    if recorded is None or hashes == {x.removeprefix(package.root): y for x, y in recorded}:
        return hashes
    return None


def _members(a: dict[str, str], b: dict[str, str]) -> Iterator[MemberChange]:
    """Members that differ: paired by name, else by contents, else as the only ones of a kind.

    Inductor names files by hashes of their contents, so two compilations of one model rarely use
    the same names.
    """
    for name in a:
        if name in b and a[name] != b[name]:
            yield MemberChange(name, name, a[name], b[name])
    left_a = [item for item in a.items() if item[0] not in b]
    left_b = [item for item in b.items() if item[0] not in a]
    for key in (_kind_and_contents, _kind):
        for one, other in by_key(key, left_a, left_b):
            yield MemberChange(one[0], other[0], one[1], other[1])
            left_a.remove(one)
            left_b.remove(other)
    for name, digest in left_a:
        yield MemberChange(name, None, digest, None)
    for name, digest in left_b:
        yield MemberChange(None, name, None, digest)


def _kind(member: tuple[str, str]) -> Hashable:
    """The directory of a member, and the end of its name, such as `.wrapper.so`."""
    folder, _, file = member[0].rpartition("/")
    return folder, "".join(file.partition(".")[1:]) or file


def _kind_and_contents(member: tuple[str, str]) -> Hashable:
    return _kind(member), member[1]


def _original_library(package: Package, model: Model) -> str | None:
    """The library with the constants: for a patched package not the new one."""
    about = (package.manifest or {}).get("models", {}).get(model.name, {})
    return about.get("original_library") or model.library


def _constants_hash(package: Package, name: str) -> str | None:
    """The hash of the constants in a library; `None` if they cannot be located."""
    from rewriter.artifact.package import library

    with package.container.open(name) as file:
        try:
            constants = library.read_from(file, name).constants
        except RewriterError:
            # Not a library that one could link to; the difference of the member is reported anyway.
            return None
        if constants is None:
            return None
        digest = hashlib.sha256()
        file.seek(constants.offset)
        left = constants.size
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            digest.update(piece)
            left -= len(piece)
        return digest.hexdigest()
