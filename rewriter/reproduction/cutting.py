"""The source of one launch and how to call it, for commands that run a kernel by itself."""

from __future__ import annotations

from rewriter.reproduction import cpp_cut, python_cut
from rewriter.reproduction.types import Cut, Recorded


def cut_out(recorded: Recorded) -> Cut:
    """One launch as Python that runs it and nothing else of its wrapper, in either language.

    `recorded` is what `recorded_launch(dump, index, run=..., iteration=...)` reads out of a dump.
    `Cut.source` is a module with `launch(**tensors)`: the tensors are named by `Cut.variables` (the
    dump's name of an argument to the name here), with the strides and on the devices that
    `recorded.given` has; it returns what was written, by the dump's names. Importing it compiles
    the kernel with torch's own options; `Cut.cpp` is the bare kernel in C++, for other options, and
    `Cut.handed` what its parameters are given, as expressions over the names of `launch`.

    Nothing of the dump is executed. Raises `RewriterError` (`cannot-reproduce`) where the launch
    cannot stand alone, with the reason.
    """
    if recorded.wrapper.language == "cpp":
        return cpp_cut.cut(recorded)
    return python_cut.cut(recorded)
