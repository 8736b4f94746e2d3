"""What is said where a file cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rewriter.core.transaction import unwritable

FULL = "No space left on device"


@pytest.mark.parametrize(
    ("file", "other", "says"),
    [
        pytest.param(None, None, f"cannot write out.pt2: {FULL}", id="no file is named"),
        pytest.param("out.pt2", None, f"cannot write out.pt2: {FULL}", id="that file"),
        pytest.param("x", None, f"cannot write out.pt2: {FULL}: x", id="another file"),
        pytest.param(
            "in.pt2",
            ".rewriter-1-0123abcd/new/out.pt2",
            f"cannot write out.pt2: {FULL}",
            id="a copy: what it is made from is not the problem",
        ),
    ],
)
def test_the_file_is_named_that_cannot_be_written(
    file: str | None, other: str | None, says: str
) -> None:
    error = OSError(errno.ENOSPC, FULL, file, None, other)
    assert unwritable(Path("out.pt2"), error).message == says
