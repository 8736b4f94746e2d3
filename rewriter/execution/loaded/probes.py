"""Makes the probes of one wrapper in this process: the functions to run instead, and the recorders.
Python wrappers get code with probes, C++ wrappers a library with probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Protocol

from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import open_wrapper_file
from rewriter.core.errors import RewriterError
from rewriter.execution.loaded import code, cpp_library
from rewriter.execution.loaded.block import Block
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.types import Plan
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


@dataclass(frozen=True)
class PythonProbes:
    """Makes the probes of a Python wrapper, which was loaded from `path`. `names` are those of its
    module, and `functions` its own, by qualified name."""

    wrapper: Wrapper
    path: str
    names: dict[str, Any]
    functions: Mapping[str, FunctionType]

    def probed(self, plans: Mapping[Block, Plan], kept: Mapping[Block, Recording]) -> Probed:
        """The code with the probes of these plans. Recordings that are `kept` go on."""
        tables = {block: code.read_table(plan) for block, plan in plans.items()}
        recorders = {
            block: kept.get(block) or _recorder(table, block)
            for block, table in tables.items()
            if not table.is_empty
        }
        probes = [(plans[block], tables[block].variable, x) for block, x in recorders.items()]
        made = code.probed_functions(self.wrapper.plain, self.path, self.names, probes)
        if unknown := made.keys() - self.functions.keys():
            raise LookupError(f"there is no function {', '.join(unknown)} in what was loaded")
        return Probed(
            {self.functions[name]: code.renamed(new) for name, new in made.items()}, recorders
        )


def _recorder(table: code.ProbeTable, block: Block) -> Recording:
    here = {"directory": str(block.directory), "quiet": not block.echo}
    recording: Recording = attach(table.options | here, table.launches, table.inputs)
    return recording


@dataclass(frozen=True)
class CppProbes:
    """Makes the probes of a C++ wrapper that is loaded as a library.

    The library has one recorder at a time: with nested blocks, the innermost one gets the calls.
    """

    wrapper: Wrapper
    entry: FunctionType
    code: CodeType

    def probed(self, plans: Mapping[Block, Plan], kept: Mapping[Block, Recording]) -> Probed:
        *outer, block = plans
        for around in outer:
            around.note(
                f"{self.wrapper.name}: calls of a C++ wrapper within another block are recorded by "
                "that one alone"
            )
        entry, recording = cpp_library.build(
            self.wrapper, plans[block], self.entry, self.code, block.directory
        )
        recording.begin(quiet=not block.echo)
        return Probed({self.entry: entry}, {block: recording})


def probes_of(entry: FunctionType, entry_code: CodeType) -> PythonProbes | CppProbes:
    """Find out how to make the probes for an entry, which had `entry_code` when it was loaded.
    Raises `RewriterError` if its file does not exist, `ValueError` if the file is another one."""
    path = Path(entry_code.co_filename)
    wrapper = open_wrapper_file(path).only
    namespace = entry.__globals__
    is_same = wrapper.probes is None and code.is_of(wrapper.plain, str(path), entry_code)
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
    functions = code.functions_of(namespace) | {entry.__qualname__: entry}
    return PythonProbes(wrapper, str(path), namespace, functions)


def plan_of(wrapper: Wrapper, block: Block) -> Plan | None:
    """The plan for a block's probes in a wrapper; `None` if it selects nothing there."""
    try:
        label = f"{wrapper.graph} {wrapper.name[:6]}"
        plan = instrument_wrapper(wrapper, block.selection, label=label).plan
    except RewriterError as error:
        if error.slug not in _NOT_HERE:
            raise
        block.planned.append(error)
        return None
    block.planned.append(plan.unmatched)
    for skipped in plan.skipped:
        block.note(f"{wrapper.name} #{skipped.launch.index}: {skipped.reason}")
    return plan
