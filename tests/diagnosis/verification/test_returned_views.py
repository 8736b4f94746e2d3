"""The views that wrappers return, by their text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

import rewriter
from artifacts import ARTIFACTS
from rewriter.diagnosis.verification.returned_views import ReturnedView, returned_views
from rewriter.dump.rows import TensorRow


@pytest.mark.parametrize(
    ("python", "cpp", "number"),
    [
        ("cuda-torch2.11/gpt/python/output_code.py", "aoti/wrapper.cpp", 1),
        ("cuda-torch2.11/gpt_train/python/output_code.py", "cpp_wrapper/output_code.py", 9),
        ("cpu-torch2.13/transformer/python/output_code1.py", "cpp_wrapper/output_code1.py", 4),
    ],
)
def test_the_wrappers_of_a_model_return_the_same_views(python: str, cpp: str, number: int) -> None:
    first = ARTIFACTS / python
    found = []
    for path in (first, first.parents[1] / cpp):
        (wrapper,) = rewriter.open(path).wrappers
        views = returned_views(wrapper, wrapper.located.entries[0].name)
        found.append({place: (x.size, x.stride, x.offset) for place, x in views.items()})
        assert returned_views(wrapper, "another") == {}
    assert found[0] == found[1]
    assert len(found[0]) == number


@pytest.mark.parametrize(
    ("stride", "offset", "expected"),
    [([8, 1], 8, [8, 10]), ([1, 4], 8, [2, 18]), ([16, 1], 8, None), ([8, 1], 30, None)],
)
def test_a_view_is_taken_from_memory(
    stride: list[int], offset: int, expected: list[int] | None
) -> None:
    """Not from a part of it, and not from behind its end."""
    facts = {"arg": "buf0", "role": "out", "phase": "after", "dtype": "int64", "shape": [4, 8]}
    row = msgspec.convert({**facts, "launch": 0, "kernel": "k", "stride": stride}, TensorRow)
    tensor = torch.arange(32).reshape(4, 8)
    taken = ReturnedView("buf0", (2,), (2,), offset).taken_from(row, tensor)
    assert (None if taken is None else taken.tolist()) == expected
    assert ReturnedView("buf1", (2,), (2,), offset).taken_from(row, tensor) is None


def test_a_name_of_cpp_that_stands_for_two_things_is_not_read(tmp_path: Path) -> None:
    path = ARTIFACTS / "cuda-torch2.11/gpt/aoti/wrapper.cpp"
    text = path.read_text()
    other = tmp_path / "wrapper.cpp"
    other.write_text(f"{text}\nvoid f() {{\n    output_handles[0] = buf1.release();\n}}\n")
    (wrapper,) = rewriter.open(other).wrappers
    assert returned_views(wrapper, "run_impl") == {}
