"""Keeps the collector of circles away from work that makes many objects and no circle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Without the collector: it looks at all objects each time that there are more of them.

    Trees of syntax have no circles; what they hold is freed as always.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
