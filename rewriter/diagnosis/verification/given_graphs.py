"""Graphs that the user names with --graph, for wrappers whose dump has none, such as packages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.text import some
from rewriter.diagnosis.verification.replacing.body import sizes_of, type_of
from rewriter.dump.reading import RunDump
from rewriter.locate.names import canonical
from rewriter.model_names.attribution import is_fused
from rewriter.model_names.graph import parse
from rewriter.model_names.known import GRAPHS

_CODE = ("output_code.py", "output_code.cpp")
_NEAR = 0.95  # of the lines of a wrapper
_NAMED = 8  # inputs in a message
_COMMANDS = "// Compile cmd"  # torch adds such lines to the source that it keeps of a package

# The text of a graph, and its code with the name of the file, both empty if that is missing.
_Given = tuple[str, str, str]


class GivenGraphs:
    """A file that holds a graph, or the directories in which TORCH_COMPILE_DEBUG left some."""

    def __init__(self, path: Path) -> None:
        """Raises `RewriterError` where the path holds no graph."""
        folders = sorted({x.parent for name in GRAPHS for x in path.rglob(name)})
        found = [next(x for name in GRAPHS if (x := y / name).is_file()) for y in folders]
        given = [(_read(x), *_code_beside(x)) for x in (found if path.is_dir() else [path])]
        self._given: list[_Given] = [x for x in given if parse(x[0]) is not None]
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
        same = [text for text, known, _ in self._given if code and known.startswith(code)]
        if same or len({x[0] for x in self._given}) == 1:
            return same[0] if same else self._given[0][0]
        lines = set(code.split("\n"))
        least = _NEAR * len(lines)
        near = [x for x, known, _ in self._given if len(lines & {*known.split("\n")}) >= least]
        return near[0] if len(near) == 1 else ""

    def misfit(self, wrapper: Wrapper, text: str) -> str:
        """Why one of these graphs cannot be that of a wrapper; empty if nothing contradicts it."""
        if why := other_inputs(wrapper, text):
            return why
        own, others, beside = _fused(wrapper), set[str](), ""
        for _, code, name in (x for x in self._given if x[0] == text and x[1]):
            others |= _fused_in(name, code)
            beside = name
        if own and others and not own & others:
            there, here = (some(sorted(x), _NAMED) for x in (others, own))
            return f"the {beside} with it has kernels of {there}; the wrapper, of {here}"
        return ""


def _fused(wrapper: Wrapper) -> set[str]:
    """What the fused kernels of a wrapper compute, the same in all kinds of wrappers."""
    launches = wrapper.located.launches
    return {canonical(x.kernel).removeprefix("fused ") for x in launches if is_fused(x)}


@lru_cache  # each recorded call of a wrapper asks
def _fused_in(name: str, code: str) -> frozenset[str]:
    """The same of code beside a graph; empty if it cannot be read."""
    with suppress(RewriterError):
        wrapper = read_wrapper(Path(name), name, code.encode())
        return frozenset() if wrapper is None else frozenset(_fused(wrapper))
    return frozenset()


def other_inputs(wrapper: Wrapper, text: str) -> str:
    """In what the inputs of a graph differ from those of a wrapper; empty if in nothing."""
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
    return "" if given.misfit(wrapper, text) else text


def _code_beside(graph: Path) -> tuple[str, str]:
    """The code in the directory of a graph, if TORCH_COMPILE_DEBUG left both, and its name."""
    files = (graph.with_name(name) for name in _CODE) if graph.name in GRAPHS else ()
    return next(((_read(x), x.name) for x in files if x.is_file()), ("", ""))


def _read(path: Path) -> str:
    try:
        return limits.read(path, limits.ENTRY_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise RewriterError(
            "no-graph",
            f"{path} cannot be read: {error.strerror or error}",
            hint="Name a file that is there, or the directory that TORCH_COMPILE_DEBUG=1 left.",
        ) from error
