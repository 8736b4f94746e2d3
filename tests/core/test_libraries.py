"""Which files are the user's own."""

from __future__ import annotations

import sysconfig

import pytest

from rewriter.core.libraries import is_of_library


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("/u/train.py", False),
        ("lib/python3.py", False),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", True),
        ("C:\\v\\Lib\\site-packages\\torch\\nn\\modules\\linear.py", True),
        (f"{sysconfig.get_path('stdlib')}/json/decoder.py", True),
        ("<frozen runpy>", True),
        ("<string>", True),
    ],
)
def test_files_of_libraries(file: str, is_one: bool) -> None:
    assert is_of_library(file) == is_one
