"""Evaluates the calls of a dump: small values one call per core, large ones with all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch

from rewriter.core import parallel
from rewriter.dump import launched
from rewriter.dump.reading import RunDump

_SMALL = 1 << 20  # elements of a tensor up to which one thread is enough
_SIZE = 1 << 16  # the work of a call, for `parallel`

Result = TypeVar("Result")


def for_each(
    runs: Sequence[RunDump], work: Callable[[RunDump], Iterable[Result]]
) -> Iterator[Result]:
    """The results of `work` for each call, in order. They are pickled.

    Calls whose values are all small are shared by one process per core, each with one thread: the
    threads of an operation wait for each other in busy loops, so with two threads thousands of
    small operations take several times as long where other processes need the processors, too.
    The other calls are evaluated here, with all threads, as their results are asked for.
    """

    def alone(run: RunDump) -> list[Result]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return list(work(run))
        finally:
            torch.set_num_threads(before)

    rows = ((run, launched.tensors(run.rows(step))) for run in runs for step in run.steps)
    is_large = {id(run) for run, tensors in rows if any(row.size > _SMALL for row in tensors)}
    small = [run for run in runs if id(run) not in is_large]
    shared = parallel.each(alone, small, [_SIZE] * len(small))
    for run in runs:
        yield from work(run) if id(run) in is_large else next(shared)
