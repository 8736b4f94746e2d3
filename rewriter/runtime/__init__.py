"""What runs inside an instrumented program. Nothing here knows how probes are put in.

An instrumented wrapper calls `attach` once and then methods of what that returns: `begin` at the
start of a call, `inputs` where its inputs have names, and `before` and `after` around each launch;
where probes look at memory, also `allocated`, `reused` and `released` where it comes from and goes
to, and `checked` behind each launch. This package imports torch only when a wrapper runs, and
nothing but the standard library and torch, so that it can also be embedded in a wrapper
(`--standalone`). `cpp/` is its counterpart for C++ wrappers: the same lines and the same dump.
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
    """The recorder of one wrapper. `options` and `launches` are the table in its header.

    `inputs` are the names of the values that the `inputs` method is called with.

    Read from the environment: `REWRITER_PROBE=off` silences every probe, `REWRITER_DUMP` names
    the directory to dump to, `RANK`, or else `LOCAL_RANK`, tells processes of one job apart, and
    under `REWRITER_QUIET=1` nothing is printed to standard output. Dormant probes are switched on
    by the file that `REWRITER_CONTROL` names.
    """
    import os

    from .process import Silent, say
    from .recorder import Recorder

    if os.environ.get("REWRITER_PROBE", "").lower() == "off":
        return Silent()
    try:
        if options.get("dormant"):
            from .dormant import Dormant

            return Dormant(options, launches, inputs)
        return Recorder(options, launches, inputs)
    except Exception as error:
        say(f"[rewriter] warning: no probes: {type(error).__name__}: {error}\n")
        return Silent()
