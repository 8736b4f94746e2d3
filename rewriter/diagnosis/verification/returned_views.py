"""The views of its buffers that a wrapper returns, as its text says."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rewriter.artifact.types import Wrapper
from rewriter.diagnosis.verification import received
from rewriter.diagnosis.verification.graph_types import parsed
from rewriter.diagnosis.verification.replacing.in_python import in_python
from rewriter.diagnosis.verification.replacing.layouts import View, layouts, view_of
from rewriter.dump.rows import TensorRow

_RETURN = re.compile(r"^[ \t]+return (\(.*\))[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class ReturnedView:
    """A view of the variable `of`; sizes, strides and `offset` count elements."""

    of: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        return f"reinterpret_tensor({self.of}, {self.size}, {self.stride}, {self.offset})"

    @property
    def end(self) -> int:
        """The element of memory behind its last one."""
        pairs = zip(self.size, self.stride, strict=True)
        return self.offset + 1 + sum((x - 1) * y for x, y in pairs)

    def taken_from(self, row: TensorRow, tensor: torch.Tensor) -> torch.Tensor | None:
        """The view of what a launch wrote, by its row; `None` if that has not all of it."""
        memory = received.in_memory(tensor, row) if row.arg == self.of else None
        if memory is None or 0 in self.size or self.end > memory.numel():
            return None
        return memory.as_strided(self.size, self.stride, self.offset)


def body_of(wrapper: Wrapper | None, scope: str) -> str:
    """The text of a function of a wrapper in the notation of Python; empty if it is no entry."""
    starts = [x.start for x in wrapper.located.entries if x.name == scope] if wrapper else []
    if wrapper is None or not starts:
        return ""
    text = wrapper.plain.data[starts[0] :].decode("utf-8", "replace")
    # Other functions of C++ may have the same names.
    return in_python(text.partition("\n}")[0], ())[0] if wrapper.language == "cpp" else text


def returned_views(wrapper: Wrapper | None, scope: str) -> Mapping[int, ReturnedView]:
    """The views that a function of a wrapper returns, by their places among what it returns. Those
    whose sizes are no plain numbers are left out."""
    entry = next((x for x in wrapper.located.entries if x.name == scope), None) if wrapper else None
    if wrapper is None or entry is None:
        return {}
    text = body_of(wrapper, scope)
    if wrapper.language == "cpp":  # a view is a variable there
        known = layouts(text, ())
        views = [known[name].view if name in known else None for name in entry.returned]
    else:
        match = _RETURN.search(text)
        value = parsed(match[1]) if match else None
        views = [view_of(x) for x in value.elts] if isinstance(value, ast.Tuple) else []
        if len(views) != len(entry.returned):
            return {}
    placed = {place: _in_numbers(view) for place, view in enumerate(views) if view is not None}
    return {place: view for place, view in placed.items() if view is not None}


def _in_numbers(view: View) -> ReturnedView | None:
    if not all(x.isdecimal() for x in (*view.size, *view.stride, view.offset)):
        return None
    size, stride = (tuple(map(int, x)) for x in (view.size, view.stride))
    return ReturnedView(view.of, size, stride, int(view.offset))
