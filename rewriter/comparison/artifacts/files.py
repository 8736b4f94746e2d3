"""The files beside wrappers: sources of their kernels, descriptions of their operators, others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.artifact.containers.types import Container
from rewriter.artifact.package import pack
from rewriter.artifact.recognise import read, unreadable
from rewriter.artifact.trace import log, page
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.comparison.artifacts.types import MemberChange
from rewriter.core.files import BACKUP
from rewriter.core.transaction import is_scratch
from rewriter.instrumentation import containers
from rewriter.locate.cpp.kernel_sources import defined
from rewriter.locate.cpp.recognition import ENTRY

# What running a module creates.
_CACHE = "__pycache__"
# What TORCH_COMPILE_DEBUG writes beside a wrapper: torch/_inductor/debug.py.
_DEBUG = "fx_graph_runnable.py"

# Other folders in Inductor's cache besides those of wrappers and builds, which have short names.
_CACHED = ("aotautograd", "fxgraph", "locks", "precompiled_headers", "triton")
_HASHED = re.compile(r"c([a-z2-7]{2})[a-z2-7]{49}\.")

_RECORDS = "files about the compilation, such as logs, graphs and builds, are not compared"

KernelFiles = dict[str, bytes]


@dataclass(frozen=True)
class PairWithKernels:
    """A pair of wrappers, with the kernels in files beside them.

    `notes` say what only one side has, so that it was not compared.
    """

    a: OpenWrapper
    b: OpenWrapper
    kernels_a: KernelFiles
    kernels_b: KernelFiles
    notes: tuple[str, ...] = ()


def read_beside(a: OpenWrapper, b: OpenWrapper) -> PairWithKernels:
    """Read the files beside two wrappers that belong to them."""
    if _operators_file(a) is None or _operators_file(b) is None:
        return PairWithKernels(a, b, {}, {})
    notes = []
    kernels_a, kernels_b = _kernels(a), _kernels(b)
    if bool(kernels_a) != bool(kernels_b):
        side, kernels = ("A", kernels_a) if kernels_a else ("B", kernels_b)
        notes.append(f"{', '.join(kernels)} is beside {side} alone: its kernels are not compared")
        kernels_a = kernels_b = {}
    there_a, there_b = _has_operators(a), _has_operators(b)
    if there_a != there_b:
        # A copy of a wrapper may lack the file; its operators are the same.
        side, wrapper = ("A", a) if there_a else ("B", b)
        a, b = (replace(one, operators=wrapper.operators) for one in (a, b))
        notes.append(
            f"{wrapper.path.with_suffix('.json').name} is beside {side} alone: "
            "its operators are taken for those of both"
        )
    return PairWithKernels(a, b, kernels_a, kernels_b, tuple(notes))


def compare(a: Artifact, b: Artifact) -> tuple[tuple[MemberChange, ...], tuple[str, ...]]:
    """The files beside wrappers that differ, and notes about what is not compared.

    For directories these are all files that are not wrappers, except records of the compilation;
    for files of AOTInductor's, the operators.
    """
    if a.path.is_dir() and b.path.is_dir():
        records = _records(a.path), _records(b.path)
        changes = _changes(_others(a, records[0]), _others(b, records[1]))
        return changes, (_RECORDS,) if any(records) else ()
    if a.container is not None and b.container is not None:
        return (), _beside_wrappers(a, a.container, b, b.container)
    if not a.path.is_dir() and not b.path.is_dir():
        wrappers = (*a.wrappers, *b.wrappers)
        if len(wrappers) != 2 or not all(_has_operators(one) for one in wrappers):
            return (), ()
        files = [one.only.path.with_suffix(".json") for one in (a, b)]
        names = files[0].name, files[1].name
        hash_a, hash_b = (_digest(file) for file in files)
        return ((MemberChange(*names, hash_a, hash_b),) if hash_a != hash_b else ()), ()
    folder, side, other = (a, "A", "B") if a.path.is_dir() else (b, "B", "A")
    if count := len(_others(folder, _records(folder.path))):
        files_are = "other file is" if count == 1 else "other files are"
        return (), (f"{other} is no directory: {count} {files_are} in {side} and not compared",)
    return (), ()


def _beside_wrappers(
    a: Artifact, container_a: Container, b: Artifact, container_b: Container
) -> tuple[str, ...]:
    """Notes about the rest of two files that contain wrappers."""
    if container_a.form != container_b.form:
        forms = container_a.form.description, container_b.form.description
        return (f"A is {forms[0]}, B {forms[1]}: the wrappers alone are compared",)
    if containers.remainder(a) == containers.remainder(b):
        return ()
    return (
        "the files differ beside the wrappers, in what is not compared: graphs, guards, "
        "the binaries of kernels",
    )


def _operators_file(wrapper: OpenWrapper) -> Path | None:
    """The path for the operators of an AOTInductor wrapper, if it is one."""
    if wrapper.is_module or wrapper.inside is not None:
        return None
    return wrapper.path.with_suffix(".json")


def _has_operators(wrapper: OpenWrapper) -> bool:
    path = _operators_file(wrapper)
    return path is not None and path.is_file()


def _kernels(wrapper: OpenWrapper) -> KernelFiles:
    """The C++ files in a wrapper's folder that define functions which it names.

    In a cache, the folder also has kernels of other wrappers. If two files define the same
    function, it is unknown to which wrapper it belongs.
    """
    sources: KernelFiles = {}
    owners: dict[str, list[str]] = {}
    for path in sorted(wrapper.path.parent.glob("*.cpp")):
        if path == wrapper.path or not path.is_file() or ENTRY.search(data := read(path)):
            continue
        names = [name for name in defined(data) if name.encode() in wrapper.plain.data]
        if names:
            sources[path.name] = data
        for name in names:
            owners.setdefault(name, []).append(path.name)
    unclear = {file for files in owners.values() if len(files) > 1 for file in files}
    return {name: data for name, data in sources.items() if name not in unclear}


def _records(folder: Path) -> frozenset[Path]:
    """Files and folders in a directory that record a compilation: logs, and what is made of them.

    They contain times, processes and paths of the machine, and nothing else about the model. Builds
    in a cache are left out as well: their sources are in the wrappers.
    """
    records = set()
    for file in folder.rglob("*"):
        if (name := _HASHED.match(file.name)) and file.parent.name == name[1]:
            records |= {file, *(file.parent.parent / other for other in _CACHED)}
        if page.is_page(file):
            root = page.root_of(file)
            # For several ranks there is a directory with a list of them.
            records.add(root.parent if root.name.startswith("rank_") else root)
        elif file.name == _DEBUG:
            # In the folder of a run, or in the cache, whose folder is for one wrapper.
            in_run = file.parent.parent.name == "torchinductor"
            records.add(file.parent.parent.parent if in_run else file.parent)
        elif file.suffix == log.SUFFIX and log.is_log(file):
            records.add(file)
    return frozenset(records)


def _others(artifact: Artifact, records: frozenset[Path]) -> dict[str, str]:
    """The hashes of all files in a directory that are not wrappers, by their paths in it."""
    plain = {wrapper.name: wrapper for wrapper in artifact.wrappers}
    hashes = {}
    for file in sorted(artifact.path.rglob("*")):
        name = str(file.relative_to(artifact.path))
        if name in plain or _CACHE in file.parts or not file.is_file():
            continue
        if is_scratch(Path(name)):
            continue
        if not records.isdisjoint((file, *file.parents)):
            continue
        backed_up = plain.get(name.removesuffix(BACKUP))
        if backed_up is not None and read(file) == backed_up.restored.source:
            continue  # the backup that `instrument --in-place` makes
        hashes[name] = _digest(file)
    return hashes


def _changes(a: dict[str, str], b: dict[str, str]) -> tuple[MemberChange, ...]:
    return tuple(
        MemberChange(
            name if name in a else None, name if name in b else None, a.get(name), b.get(name)
        )
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    )


def _digest(path: Path) -> str:
    try:
        return pack.sha256(path)
    except OSError as error:
        raise unreadable(path, error) from error
