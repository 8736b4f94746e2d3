"""The part of the tool that runs inside an instrumented program. It does not insert probes.

An instrumented wrapper calls `attach` once and then the methods of what it returns: `begin` at the
start of a call, `inputs` with the named inputs, `before` and `after` around each launch. Wrappers
with memory probes also call `allocated`, `reused` and `released` where a buffer is allocated,
reused or freed, and `checked` after each launch.

The recorder is in C++ (`cpp/`), for wrappers in both languages; `plain.py` serves some probes where
it cannot be loaded. This package imports only the standard library and torch, and torch only when
a wrapper runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def attach(
    options: dict[str, Any], launches: list[dict[str, Any]], inputs: Sequence[str] = ()
) -> Any:
    """Make the recorder of one wrapper. Never raises: on an error it warns and records nothing.

    `options` and `launches` are the table in the wrapper's header; `inputs` are the names of the
    values that the wrapper passes to the `inputs` method.

    Environment variables: `REWRITER_PROBE=off` silences every probe, `REWRITER_DUMP` names the
    dump directory, `REWRITER_QUIET=1` suppresses standard output, and `REWRITER_CONTROL` names the
    file that switches dormant probes on. The rank of the process is
    that of `cpp/settings.h`.
    """
    import os

    from . import extension, plain
    from .build import Unavailable
    from .gpu_kinds import gpu_kinds
    from .plain import Silent, say

    if os.environ.get("REWRITER_PROBE", "").lower() == "off":
        return Silent()
    try:
        try:
            return extension.attach(options, launches, inputs)
        except Unavailable as problem:
            plain.GPU = gpu_kinds()
            made = plain.attach(options, launches, inputs)
            if type(made) is Silent:  # probes that plain Python lacks
                say(f"[rewriter] the recorder cannot be loaded: {problem}\n")
            return made
    except Exception as error:
        say(f"[rewriter] warning: no probes: {type(error).__name__}: {error}\n")
        return Silent()
