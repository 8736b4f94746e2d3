"""The files beside wrappers: sources of their kernels, and descriptions of their operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.artifact.recognise import read
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.locate.cpp.kernel_sources import defined
from rewriter.locate.cpp.recognition import ENTRY

OTHERS = "files that are neither wrappers nor their kernels are not compared: `diff -rq` does that"

KernelFiles = dict[str, bytes]


@dataclass(frozen=True)
class PairWithKernels:
    """A pair of wrappers, with the kernels in files beside them.

    `notes` say what only one side has, so that it was not compared.
    """

    a: Wrapper
    b: Wrapper
    kernels_a: KernelFiles
    kernels_b: KernelFiles
    notes: tuple[str, ...] = ()


def read_beside(a: Wrapper, b: Wrapper) -> PairWithKernels:
    """Read the files beside two wrappers that belong to them."""
    if _operators_file(a) is None or _operators_file(b) is None:
        return PairWithKernels(a, b, {}, {})
    notes = []
    kernels_a, kernels_b = _kernels(a), _kernels(b)
    if bool(kernels_a) != bool(kernels_b):
        side, kernels = ("A", kernels_a) if kernels_a else ("B", kernels_b)
        notes.append(f"{', '.join(kernels)} is beside {side} alone: its kernels are not compared")
        kernels_a = kernels_b = {}
    there_a, there_b = ((path := _operators_file(x)) and path.is_file() for x in (a, b))
    if there_a != there_b:
        # A copy of a wrapper may lack the file; its operators are the same.
        side, wrapper = ("A", a) if there_a else ("B", b)
        a, b = (replace(each, operators=wrapper.operators) for each in (a, b))
        notes.append(
            f"{wrapper.path.with_suffix('.json').name} is beside {side} alone: "
            "its operators are taken for those of both"
        )
    if a.operators != b.operators:
        notes.append(f"the operators differ in {b.path.with_suffix('.json').name}")
    return PairWithKernels(a, b, kernels_a, kernels_b, tuple(notes))


def notes(a: Artifact, b: Artifact) -> tuple[str, ...]:
    """What else the two hold, and is not compared."""
    if a.path.is_dir() or b.path.is_dir():
        return (OTHERS,)
    if a.is_text or b.is_text:
        return ()
    if a.form != b.form:
        forms = a.form.description, b.form.description
        return (f"A is {forms[0]}, B {forms[1]}: the wrappers alone are compared",)
    if a.remainder() == b.remainder():
        return ()
    return (
        "the files differ beside the wrappers, in what is not compared: graphs, guards, "
        "the binaries of kernels",
    )


def _operators_file(wrapper: Wrapper) -> Path | None:
    """The path for the operators of an AOTInductor wrapper, if it is one."""
    if wrapper.is_module or not wrapper.has_file:
        return None
    return wrapper.path.with_suffix(".json")


def _kernels(wrapper: Wrapper) -> KernelFiles:
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
