"""The part of the tool that runs inside an instrumented program. It does not insert probes.

An instrumented wrapper calls `attach` once and then the methods of the returned recorder: `begin`
at the start of a call, `inputs` with the named inputs, `before` and `after` around each launch.
Wrappers with memory probes also call `allocated`, `reused` and `released` where a buffer is
allocated, reused or freed, and `checked` after each launch.

This package imports only the standard library and torch, and torch only when a wrapper runs, so it
can also be embedded in a wrapper (`--standalone`). `cpp/` is the counterpart for C++ wrappers; it
prints the same lines and writes the same dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dormant import Dormant
    from .process import Silent
    from .recorder import Recorder


def attach(
    options: dict[str, Any], launches: list[dict[str, Any]], inputs: Sequence[str] = ()
) -> Recorder | Dormant | Silent:
    """Make the recorder of one wrapper. Never raises: on an error it warns and records nothing.

    `options` and `launches` are the table in the wrapper's header; `inputs` are the names of the
    values that the wrapper passes to the `inputs` method.

    Environment variables: `REWRITER_PROBE=off` silences every probe, `REWRITER_DUMP` names the
    dump directory, `REWRITER_QUIET=1` suppresses standard output, and `REWRITER_CONTROL` names the
    file that switches dormant probes on. The rank of the process is from `read_rank`.
    """
    import os

    from .process import Silent, say
    from .recorder import Recorder
    from .schemas import declare

    if os.environ.get("REWRITER_PROBE", "").lower() == "off":
        return Silent()
    try:
        launches = declare(launches)
        if options.get("dormant"):
            from .dormant import Dormant

            return Dormant(options, launches, inputs)
        return Recorder(options, launches, inputs)
    except Exception as error:
        say(f"[rewriter] warning: no probes: {type(error).__name__}: {error}\n")
        return Silent()
