"""A lock without waiting: one holder."""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.core import locks


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert locks.take(first)
    assert not locks.take(second)
    os.close(first)
    assert locks.take(second)
    os.close(second)
