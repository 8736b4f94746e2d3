"""The views that wrappers return, by their text."""

from __future__ import annotations

from dataclasses import replace

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


def test_the_names_of_another_function_of_cpp_are_not_read() -> None:
    (wrapper,) = rewriter.open(ARTIFACTS / "cuda-torch2.11/gpt/aoti/wrapper.cpp").wrappers
    found = returned_views(wrapper, "run_impl")
    body = wrapper.source[wrapper.located.entries[0].start :].replace(b"buf80", b"buf2")
    assert b"var_0 = " in body
    arrays = "".join(f"static constexpr int64_t int_array_{x}[] = {{7L, 7L}};\n" for x in range(99))
    text = b"".join(
        (wrapper.source, b"\nvoid f() {\n", arrays.encode(), body.split(b"\n}")[0], b"\n}\n")
    )
    assert returned_views(replace(wrapper, source=text), "run_impl") == found
    assert len(found) == 1


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
