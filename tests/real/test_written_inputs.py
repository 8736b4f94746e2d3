"""What a program writes between two calls is shown as it is, in each kind of wrapper, also where
torch counts no write: `_version` of the tensor stays as it was, or it is another tensor's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.functional import batch_norm

from cpp_driver import MARKS, Handle, Native, handle_of, options_of, row_of
from rewriter.runtime import attach

pytestmark = MARKS

Write = Callable[[torch.Tensor, float], object]


def by_a_swap(x: torch.Tensor, value: float) -> None:
    """Which torch refuses if there is a weak reference to the tensor."""
    torch.utils.swap_tensors(x, torch.full_like(x, value))  # type: ignore[no-untyped-call]


def by_batch_norm(x: torch.Tensor, value: float) -> None:
    """To the running mean, as it is where a model that trains is not compiled."""
    batch_norm(torch.full((2, 4), value), x, torch.ones(4), training=True, momentum=1.0)


def by_hand(x: torch.Tensor, value: float) -> None:
    """As a kernel does that a program launches by itself."""
    other = torch.full_like(x, value)
    ctypes.memmove(x.data_ptr(), other.data_ptr(), x.nbytes)


WRITES: dict[str, Write] = {
    "counted": lambda x, value: x.fill_(value),
    "swapped": by_a_swap,
    "other data": lambda x, value: setattr(x, "data", torch.full_like(x, value)),
    "batch norm": by_batch_norm,
    "by hand": by_hand,
}


@pytest.fixture(params=["Python", "C++", "constant of a package"])
def show(
    request: pytest.FixtureRequest, library: ctypes.CDLL
) -> Iterator[Callable[[torch.Tensor], None]]:
    """Calls a wrapper that prints a tensor: an input of it, or a constant that a launch reads."""
    if request.param == "Python":
        recorder: Any = attach(options_of("print"), [], ["weight"])

        def of_python(tensor: torch.Tensor) -> None:
            recorder.begin()
            recorder.inputs(tensor)
            recorder.end()

        yield of_python
        return
    table = [row_of(0, before=[], after=[["in", "weight"], ["in", "view"], ["in", "again"]])]
    native = Native(library, options_of("print"), table, [["in", "weight"]])
    handles: dict[torch.Tensor, int] = {}

    def of_cpp(tensor: torch.Tensor) -> None:
        native.begin()
        if request.param == "C++":
            native.inputs(tensor)
        else:
            if tensor not in handles:  # a package has the same one in each call
                handles[tensor] = handle_of(tensor)
            call, handle = ctypes.c_void_p(native.call), ctypes.c_void_p(handles[tensor])
            library.test_constant(call, 0, handle)
        native.end()

    yield of_cpp
    for handle in handles.values():
        library.aoti_torch_delete_tensor_object(ctypes.c_void_p(Handle(handle)))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_written_is_shown(
    write: Write,
    show: Callable[[torch.Tensor], None],
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if write is by_a_swap and "constant" in request.node.name:
        pytest.skip("torch swaps no tensor that a package refers to")
    tensor = torch.ones(4)
    for value in (1.0, 5.0, 7.0, 7.0):
        if value != tensor[0]:
            write(tensor, value)
        assert tensor.tolist() == [value] * 4
        capfd.readouterr()
        show(tensor)
        shown = capfd.readouterr().out.splitlines()
        assert {line.split("cpu  ")[1] for line in shown} == {
            f"min {value:g} max {value:g} mean {value:g} std 0 nan 0 inf 0"
        }
