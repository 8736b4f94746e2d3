"""Runs compiled functions once more as plain Python, in the program, and compares: `diagnose
--against eager`.

Loaded by `sitecustomize.py` if `REWRITER_EAGER` names how many calls of each function to compare.
It needs torch and the standard library only. `calls.py` is where a compiled function is entered,
`state.py` finds what a call can reach, and `copies.py` has the plain call work on copies of that;
`values.py` tells rounding from other differences, `gradients.py` compares what a backward leaves,
`record.py` writes the results into the dump.
"""

from __future__ import annotations

import functools
import types
from typing import Any


def begin(module: Any, calls: int) -> None:
    """Compare the first calls of each compiled function; the module is `torch._dynamo.eval_frame`.

    `torch` is not complete yet while that is imported, so the rest waits until something is
    compiled.
    """
    context = module._TorchDynamoContext
    plain = context.__call__
    watch: Any = None

    @functools.wraps(plain)
    def watched(of: Any, function: Any) -> Any:
        nonlocal watch
        if watch is None:
            from .calls import Calls

            watch = Calls(calls)
        made = plain(of, function)
        is_compiled = callable(of.callback) and isinstance(made, types.FunctionType)
        return watch.watched(made, module) if is_compiled else made

    context.__call__ = watched
