"""Graphs that the user names with --graph, for wrappers whose dump has none, such as packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.text import some
from rewriter.diagnosis.verification.replacing.body import sizes_of, type_of
from rewriter.dump.reading import RunDump
from rewriter.model_names.graph import parse
from rewriter.model_names.known import GRAPHS

_CODE = ("output_code.py", "output_code.cpp")
_NEAR = 0.95  # of the lines of a wrapper
_NAMED = 8  # inputs in a message
_COMMANDS = "// Compile cmd"  # torch adds such lines to the source that it keeps of a package

_Given = tuple[str, str]  # the text of a graph, and its code, empty if that is missing


class GivenGraphs:
    """A file that holds a graph, or the directories in which TORCH_COMPILE_DEBUG left some."""

    def __init__(self, path: Path) -> None:
        """Raises `RewriterError` where the path holds no graph."""
        folders = sorted({x.parent for name in GRAPHS for x in path.rglob(name)})
        given = list(_of_folders(folders)) if path.is_dir() else [(_read(path), "")]
        self._given = [(text, code) for text, code in given if parse(text) is not None]
        if not self._given:
            raise RewriterError(
                "no-graph",
                f"{path} holds no graph that a wrapper was compiled from",
                hint=f"Name a {GRAPHS[0]}, or the directory that TORCH_COMPILE_DEBUG=1 left.",
            )

    def of(self, source: bytes) -> str:
        """The graph of a wrapper: the one with the same code, or else the only one with nearly the
        same lines, as the wrapper may have been edited, or the only one that there is."""
        code = source.decode("utf-8", "replace").partition(_COMMANDS)[0].rstrip()
        same = [text for text, known in self._given if code and known.startswith(code)]
        if same or len(dict(self._given)) == 1:
            return same[0] if same else self._given[0][0]
        lines = set(code.split("\n"))
        least = _NEAR * len(lines)
        near = [text for text, known in self._given if len(lines & {*known.split("\n")}) >= least]
        return near[0] if len(near) == 1 else ""


def misfit(wrapper: Wrapper, text: str) -> str:
    """Why a graph cannot be the one that a wrapper was compiled from; empty if its inputs are."""
    graph, entries = parse(text), wrapper.located.entries
    if graph is None or not entries:
        return ""
    own, given = entries[-1].inputs, tuple(graph.inputs)  # after those that fold constants
    if own != given:
        return f"its inputs are {some(given, _NAMED)}; the wrapper has {some(own, _NAMED)}"
    for spec in entries[-1].input_specs:
        kind, sizes = type_of(graph, spec.name), sizes_of(graph, spec.name)
        if spec.kind != "tensor" or kind is None or sizes is None:
            continue
        found = f"its input {spec.name} is {graph.type_of(spec.name)}; in the wrapper it has "
        if spec.dtype and f"torch.{spec.dtype}" != str(kind.dtype):
            return f"{found}the type {spec.dtype}"
        if spec.size is not None and not spec.open and not _may_be(spec.size, sizes):
            return f"{found}the sizes ({', '.join(spec.size)})"
    return ""


def _may_be(sizes: Sequence[str], others: Sequence[str]) -> bool:
    """Whether sizes may be the same: one that is no number may be any."""
    pairs = zip(sizes, others, strict=False)
    known = all(x == y for x, y in pairs if x.isdecimal() and y.isdecimal())
    return known and len(sizes) == len(others)


def graph_text(run: RunDump, wrapper: Wrapper | None, given: GivenGraphs | None) -> str:
    """The text of the graph that a recorded wrapper was compiled from: the dump's own, or else the
    one that the user names; empty if neither is known."""
    if run.graph or given is None or wrapper is None:
        return run.graph
    text = given.of(wrapper.plain.data)
    return "" if misfit(wrapper, text) else text


def _of_folders(folders: list[Path]) -> Iterator[_Given]:
    for folder in folders:
        graph = next(x for name in GRAPHS if (x := folder / name).is_file())
        codes = (folder / name for name in _CODE)
        code = next((_read(code) for code in codes if code.is_file()), "")
        yield _read(graph), code


def _read(path: Path) -> str:
    try:
        return limits.read(path, limits.ENTRY_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise RewriterError(
            "no-graph",
            f"{path} cannot be read: {error.strerror or error}",
            hint="Name a file that is there, or the directory that TORCH_COMPILE_DEBUG=1 left.",
        ) from error
