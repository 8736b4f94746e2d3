"""Replaces the code of a loaded wrapper's functions while blocks of `probing` run.

The functions stay the same objects. While there is a block, their code calls this module, which
runs the original code, or the same with probes, which is made at the first call of the wrapper.
After the last block, the functions get their original code objects back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from rewriter.core.errors import RewriterError
from rewriter.execution.loaded.block import Block
from rewriter.execution.loaded.code import handing_over, like
from rewriter.execution.loaded.probes import (
    CppProbes,
    Probed,
    PythonProbes,
    Recording,
    plan_of,
    probes_of,
)
from rewriter.instrumentation.types import Plan
from rewriter.locate.names import is_partition
from rewriter.runtime.plain import is_capturing

_PLAIN = Probed({}, {})
_REPLAYED = (
    "no part of the wrapper was called: what was captured into a CUDA graph before the block is "
    "replayed without a call"
)


class Exchange:
    """One loaded wrapper, by its entry."""

    def __init__(self, entry: FunctionType) -> None:
        self.path = entry.__code__.co_filename
        self._entry = entry
        self._codes: dict[FunctionType, CodeType] = {}  # their original code
        self._plain: dict[FunctionType, FunctionType] = {}
        self._lock = threading.RLock()
        self._blocks: tuple[Block, ...] = ()
        self._probes: PythonProbes | CppProbes | None = None
        self._plans: dict[Block, Plan | None] = {}
        self._current: Probed | None = None  # runs for these blocks, once it is made
        self._recordings: dict[Block, Recording] = {}
        self._inside: Counter[Block] = Counter()  # the number of threads in a call
        self._calls = threading.local()  # the call that runs in a thread

    def set_blocks(self, blocks: tuple[Block, ...]) -> None:
        """Probe for these blocks, in the order in which they began, from the next call on."""
        with self._lock:
            over = [block for block in self._blocks if block not in blocks]
            self._blocks, self._current = blocks, None
            if not blocks:
                self._give_back()
            elif not self._codes:
                self._watch(self._entry)
            for block in over:
                self._close_unused(block)

    def _watch(self, function: FunctionType) -> None:
        if function not in self._codes:
            code = self._codes[function] = function.__code__
            self._plain[function] = like(function, code)
            function.__code__ = handing_over(code, partial(self._run, function))

    def _give_back(self) -> None:
        for function, code in self._codes.items():
            function.__code__ = code
        self._codes.clear()
        self._probes = None

    def _run(self, function: FunctionType, *args: Any, **kwargs: Any) -> Any:
        """Called in place of a function of the wrapper."""
        plain = self._plain[function]
        if is_capturing():
            # Later replays would continue to measure after the block, into freed memory.
            for block in self._blocks:
                block.note("what is captured into a CUDA graph has no probes, nor have its replays")
            return plain(*args, **kwargs)
        running: Probed | None = getattr(self._calls, "running", None)
        if running is not None:  # another function of the same wrapper
            self._calls.partitions += is_partition(function.__name__)
            return running.bodies.get(function, plain)(*args, **kwargs)
        with self._call() as running:
            return running.bodies.get(function, plain)(*args, **kwargs)

    @contextmanager
    def _call(self) -> Iterator[Probed]:
        """Enter a call of the wrapper in this thread; yields what runs instead."""
        with self._lock:
            blocks = self._blocks
            if self._current is None:
                self._current = self._made() if blocks else _PLAIN
            running = self._current
            self._inside.update(blocks)
        self._calls.running, self._calls.partitions = running, 0
        try:
            yield running
            has_partitions = any(is_partition(body.__name__) for body in running.bodies)
            if has_partitions and not self._calls.partitions:
                for block in blocks:
                    block.note(_REPLAYED)
        finally:
            self._calls.running = None
            with ExitStack() as ending:  # each, also if another one raises
                ending.callback(self._leave, blocks, running)
                for recording in running.recordings.values():
                    ending.callback(recording.end)

    def _leave(self, blocks: tuple[Block, ...], running: Probed) -> None:
        """A call is over, and so is its recording."""
        with self._lock:
            self._inside.subtract(blocks)
            for block in blocks:
                if block not in self._blocks:
                    self._close_unused(block)
        for block in running.recordings:
            block.count(self.path)

    def _close_unused(self, block: Block) -> None:
        """A block is over: stop recording for it once no thread is in one of its calls."""
        if self._inside[block] <= 0:
            del self._inside[block]
            if (recording := self._recordings.pop(block, None)) is not None:
                recording.close()
            self._plans.pop(block, None)

    def _made(self) -> Probed:
        """What runs for the current blocks; without probes if these cannot be made."""
        try:
            if self._probes is None:
                self._probes = probes_of(self._entry, self._codes[self._entry])
            for block in self._blocks:
                if block not in self._plans:
                    self._plans[block] = plan_of(self._probes.wrapper, block)
            plans = {
                block: plan for block in self._blocks if (plan := self._plans[block]) is not None
            }
            probed = self._probes.probed(plans, self._recordings) if plans else _PLAIN
        except Exception as error:
            why = error.message if isinstance(error, RewriterError) else f"{self.path}: {error}"
            for block in self._blocks:
                block.note(f"no probes: {why.strip().splitlines()[0]}")
            return _PLAIN
        self._recordings |= probed.recordings
        for function in probed.bodies:
            self._watch(function)
        return probed
