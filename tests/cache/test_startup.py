"""The module that runs in every process of a watched program."""

from __future__ import annotations

from rewriter.cache import startup
from rewriter.core import files


def test_it_knows_the_same_backup_name_as_the_rest() -> None:
    """It imports nothing of the package, so it has its own copy of the name."""
    assert startup._BACKUP == files.BACKUP
