"""How many threads torch evaluates graphs with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rewriter.dump import dataflow
from rewriter.dump.reading import RunDump

_SMALL = 1 << 20  # elements of a tensor up to which one thread is enough


@contextmanager
def enough_for(run: RunDump) -> Iterator[None]:
    """Evaluate with one thread where all values of a call are small.

    The threads of an operation wait for each other in busy loops. Where other processes need the
    processors, too, the thousands of small operations of a call take several times as long with two
    threads as with one.
    """
    tensors = (row for step in run.steps for row in dataflow.tensors(run.rows(step)))
    before = torch.get_num_threads()
    if not any(row.size > _SMALL for row in tensors):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
