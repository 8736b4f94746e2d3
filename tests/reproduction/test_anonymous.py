"""What is taken out of a text before it is published, and what is not."""

from __future__ import annotations

import pytest

from rewriter.reproduction.anonymous import Anonymous

CLEAN = Anonymous.of(["jane", "ab", "root", "gpu-box-7"])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = a/b/c", id="a division"),
        pytest.param('#include "/usr/include/x/y.h"', id="headers of the system"),
        pytest.param("#include <ATen/native/cpu/Loops.h>", id="headers of torch"),
        pytest.param("</td></tr>", id="a tag"),
        pytest.param(r"'\\n\\tjanes'", id="escapes"),
        pytest.param("janet and trojane", id="part of a word"),
        pytest.param("ab root abc", id="short and common names"),
        pytest.param("/tmp", id="one name after a slash"),
    ],
)
def test_what_stays(text: str) -> None:
    assert CLEAN(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "see https://example.org/jane-and-more/x/y",
            "see https://example.org/user-and-more/x/y",
        ),
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
