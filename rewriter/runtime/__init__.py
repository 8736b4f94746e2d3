"""What runs inside an instrumented program. Nothing here knows how probes are put in.

An instrumented wrapper calls `attach` once and then three methods of what that returns: `begin`
at the start of a call, and `before` and `after` around each launch. This package imports torch
only when a wrapper runs, and nothing but the standard library and torch, so that it can also be
embedded in a wrapper (`--standalone`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import Recorder, Silent


def attach(options: dict[str, Any], launches: list[dict[str, Any]]) -> Recorder | Silent:
    """The recorder of one wrapper. `options` and `launches` are the table in its header.

    Read from the environment: `REWRITER_PROBE=off` silences every probe, `REWRITER_DUMP` names
    the directory to dump to, `RANK` tells processes of one job apart.
    """
    import os

    from .recorder import Recorder, Silent, say

    if os.environ.get("REWRITER_PROBE", "").lower() == "off":
        return Silent()
    try:
        return Recorder(options, launches)
    except Exception as error:
        say(f"[rewriter] warning: no probes: {type(error).__name__}: {error}\n")
        return Silent()
