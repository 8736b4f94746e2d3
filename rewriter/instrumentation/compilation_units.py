"""What is compiled for a C++ wrapper with probes, in parts that change as seldom as they can.

The text of an instrumented wrapper is one file that compiles by itself. A package is built from
three: the wrapper with the lines of probes, the table of what is known of its launches, and the
bodies of the runtime. The first takes the time, and is the same for all probes that look at the
same values at the same places; the last is the same for all packages. So another patch of one
package with other probes, calls or formats compiles the table alone, as the others are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewriter.core import edit
from rewriter.instrumentation import bundle
from rewriter.instrumentation.lines import HEADER
from rewriter.instrumentation.probes import registry
from rewriter.instrumentation.types import Instrumented

# What the wrapper is compiled with.
DEFINES = ("-DINDUCTOR_REWRITER_APART",)


@dataclass(frozen=True)
class CompilationUnits:
    """Sources of one library: `wrapper` is compiled with DEFINES, the others say so themselves."""

    wrapper: bytes
    table: str
    runtime: str


def split(result: Instrumented) -> CompilationUnits:
    """The compilation units of an instrumented file of C++."""
    selection = result.selection
    interface = bundle.interface(selection.format).encode()
    lines = [
        replace(one, text=interface) if one.origin == HEADER else one
        for one in result.plan.insertions
    ]
    (header,) = (one for one in result.plan.insertions if one.origin == HEADER)
    return CompilationUnits(
        edit.apply(result.original, lines),
        bundle.table(header.text.decode()),
        bundle.apart(_all_probes(selection.probes), selection.format, is_dormant=selection.dormant),
    )


def _all_probes(names: Sequence[str]) -> list[str]:
    """These probes and all that are there beside them: with all of them one runtime is for all."""
    return sorted({*names, *filter(bundle.has, registry())})
