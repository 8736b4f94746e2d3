"""A lock without waiting: one holder, or several that share it."""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.core import locks


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    first, second, third = (os.open(tmp_path, os.O_RDONLY) for _ in range(3))
    assert locks.take(first)
    assert not locks.take(second)
    assert not locks.take(second, shared=True)
    os.close(first)
    assert locks.take(second, shared=True)
    assert locks.take(third, shared=True)
    assert not locks.take(third)
    os.close(second)
    assert locks.take(third)
    os.close(third)
