"""Makes the probes of one wrapper in this process: the functions to run instead, and the recorders.
Python wrappers get code with probes, C++ wrappers a library with probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Protocol

from rewriter.artifact.types import OpenWrapper
from rewriter.artifact.wrapper_files import open_wrapper_file
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.types import Plan
from rewriter.loaded import code, cpp_library
from rewriter.loaded.block import Block
from rewriter.loaded.functions import functions_of, like
from rewriter.locate.cpp import embedded
from rewriter.runtime import attach

_NOT_HERE = ("no-launch-matches", "no-tensor-matches")


class Recording(Protocol):
    """Records the calls of one wrapper for one block."""

    def end(self) -> None:
        """End the call in this thread."""

    def close(self) -> None:
        """End recording. No call may be running in the wrapper."""


@dataclass(frozen=True)
class Probed:
    """The functions to run instead of a wrapper's, and what records their calls."""

    bodies: Mapping[FunctionType, Callable[..., Any]]
    recordings: Mapping[Block, Recording]


class PythonProbes:
    """Makes the probes of a Python wrapper. `functions` are its own, by qualified name, and `codes`
    their code."""

    def __init__(
        self,
        wrapper: OpenWrapper,
        functions: Mapping[str, FunctionType],
        codes: Mapping[str, CodeType],
    ) -> None:
        self._wrapper = wrapper
        self._functions = functions
        self._codes = codes
        self._made: dict[Block, tuple[Plan, str, Recording] | None] = {}

    def probed(self, blocks: Sequence[Block]) -> Probed:
        """The code with the probes of all these blocks."""
        made = {block: one for block in blocks if (one := self._of(block)) is not None}
        if not made:
            return Probed({}, {})
        path = next(iter(self._codes.values())).co_filename
        codes = code.probed_codes(self._wrapper.plain, path, list(made.values()))
        changed = [
            name
            for name, one in codes.items()
            if "<locals>" not in name and not code.is_same(self._codes.get(name), one)
        ]
        for name in changed:
            if name not in self._functions:
                raise LookupError(f"there is no function {name} in what was loaded")
        bodies = {
            self._functions[name]: like(self._functions[name], codes[name]) for name in changed
        }
        return Probed(bodies, {block: recording for block, (_, _, recording) in made.items()})

    def forget(self, block: Block) -> None:
        """A block is over."""
        self._made.pop(block, None)

    def _of(self, block: Block) -> tuple[Plan, str, Recording] | None:
        """The plan of a block, its recorder's name, and the recorder; `None` if it selects
        nothing."""
        if block not in self._made:
            plan = plan_of(self._wrapper, block)
            table = None if plan is None else code.read_table(plan)
            if plan is None or table is None or table.is_empty:
                self._made[block] = None
            else:
                here = {"directory": str(block.directory), "quiet": not block.echo}
                recorder = attach(table.options | here, table.launches, table.inputs)
                self._made[block] = plan, table.variable, recorder
        return self._made[block]


class CppProbes:
    """Makes the probes of a C++ wrapper that is loaded as a library.

    The library has one recorder at a time: with nested blocks, the innermost one gets the calls.
    """

    def __init__(self, wrapper: OpenWrapper, entry: FunctionType, entry_code: CodeType) -> None:
        self._wrapper = wrapper
        self._entry = entry
        self._code = entry_code
        self._built: dict[Block, cpp_library.Library | None] = {}

    def probed(self, blocks: Sequence[Block]) -> Probed:
        for block in blocks[:-1]:
            block.note(
                f"{self._wrapper.name}: calls of a C++ wrapper within another block are recorded "
                "by that one alone"
            )
        block = blocks[-1]
        if block not in self._built:
            plan = plan_of(self._wrapper, block)
            self._built[block] = (
                None
                if plan is None
                else cpp_library.build(self._wrapper, plan, self._entry, self._code)
            )
        library = self._built[block]
        if library is None:
            return Probed({}, {})
        recording = library.record(block.directory, quiet=not block.echo)
        return Probed({self._entry: library.entry}, {block: recording})

    def forget(self, block: Block) -> None:
        self._built.pop(block, None)


def probes_of(entry: FunctionType, entry_code: CodeType) -> PythonProbes | CppProbes:
    """Find out how to make the probes for an entry, which had `entry_code` when it was loaded.
    Raises `RewriterError` if its file does not exist, `ValueError` if the file is another one."""
    path = Path(entry_code.co_filename)
    wrapper = open_wrapper_file(path).only
    codes = code.plain_codes(wrapper.plain, str(path))
    namespace = entry.__globals__
    is_same = code.is_same(codes.get(entry.__qualname__), entry_code) and wrapper.probes is None
    if wrapper.language == "cpp":
        text = embedded.extract(wrapper.plain).data.decode()
        is_same = is_same and namespace.get("cpp_wrapper_src") == text
    if not is_same:
        raise ValueError(
            "it is not the text of the wrapper that was loaded"
            if wrapper.probes is None
            else "it has probes already, or was given some since it was loaded"
        )
    if wrapper.language == "cpp":
        return CppProbes(wrapper, entry, entry_code)
    functions = functions_of(namespace) | {entry.__qualname__: entry}
    return PythonProbes(wrapper, functions, codes)


def plan_of(wrapper: OpenWrapper, block: Block) -> Plan | None:
    """The plan for a block's probes in a wrapper; `None` if it selects nothing there."""
    try:
        label = f"{wrapper.graph} {wrapper.name[:6]}"
        plan = instrument_wrapper(wrapper, block.selection, label=label).plan
    except RewriterError as error:
        if error.slug not in _NOT_HERE:
            raise
        block.refused(error)
        return None
    block.planned(plan.unmatched)
    for skipped in plan.skipped:
        block.note(f"{wrapper.name} #{skipped.launch.index}: {skipped.reason}")
    return plan
