"""What is taken out of a text before it is published, and what is not."""

from __future__ import annotations

import pytest

from rewriter.reproduction.anonymous import Anonymous

CLEAN = Anonymous.of(["jane", "ab", "root", "gpu-box-7"])
KEPT = {
    "a division": "x = a/b/c",
    "an address": "see https://example.org/jane-and-more/x/y",
    "headers of the system": '#include "/usr/include/x/y.h"',
    "headers of torch": "#include <ATen/native/cpu/Loops.h>",
    "a tag": "</td></tr>",
    "escapes": r"'\\n\\tjanes'",
    "part of a word": "janet and trojane",
    "short and common names": "ab root abc",
    "one name after a slash": "/tmp",
}


@pytest.mark.parametrize("text", [KEPT[x] for x in KEPT if x != "an address"])
def test_what_stays(text: str) -> None:
    assert CLEAN(text) == text


def test_addresses_stay_but_for_names() -> None:
    assert CLEAN(KEPT["an address"]) == "see https://example.org/user-and-more/x/y"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("File: /data/jane/src/model.py:3 in forward", "File: model.py:3 in forward"),
        ("'/scratch/jane/.venv/lib/python3.11/site-packages/torch/nn/x.py'", "'torch/nn/x.py'"),
        ('#include "/tmp/torchinductor_jane/ab/cab.h"', '#include "cab.h"'),
        ("file:///data/acme/x.py", "file://x.py"),
        ("PATH=/data/acme/bin:/data/acme/sbin", "PATH=bin:sbin"),
        ("by jane on gpu-box-7", "by user on user"),
        ("torchinductor_jane", "torchinductor_user"),
        ("-I/opt/jane/include/a", "-I/opt/user/include/a"),
    ],
)
def test_what_is_taken_out(text: str, expected: str) -> None:
    assert CLEAN(text) == expected
