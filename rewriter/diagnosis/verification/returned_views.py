"""The views of its buffers that a wrapper returns, as its text says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from rewriter.artifact.types import Wrapper
from rewriter.core.strides import is_dense, memory_order
from rewriter.diagnosis.verification.replacing.layouts import view_of
from rewriter.dump.rows import TensorRow

_RETURN = re.compile(r"^[ \t]+return (\(.*\))[ \t]*$", re.MULTILINE)
# In C++ a view is a variable, whose sizes and strides are two more.
_HANDLE = re.compile(r"^\s*output_handles\[(\d+)\] = (\w+)\.release\(\);", re.MULTILINE)
_VIEW = re.compile(
    r"^\s*(?:auto )?(\w+) = wrap_with_raii_handle_if_needed\("
    r"reinterpret_tensor_wrapper\((\w+), \d+, (\w+), (\w+), (\d+)L?\)\);",
    re.MULTILINE,
)
_T = TypeVar("_T")
_ARRAY = re.compile(r"\bint64_t (\w+)\[\] = \{([^{}]*)\};")


@dataclass(frozen=True)
class ReturnedView:
    """A view of the variable `of`; sizes, strides and `offset` count elements."""

    of: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        return f"reinterpret_tensor({self.of}, {self.size}, {self.stride}, {self.offset})"

    def taken_from(self, row: TensorRow, tensor: torch.Tensor) -> torch.Tensor | None:
        """The view of what a launch wrote, by its row; `None` if that is not all of its memory."""
        if row.arg != self.of or not is_dense(row.shape, tuple(row.stride or tensor.stride())):
            return None
        order = memory_order(row.shape, tuple(row.stride or tensor.stride()))
        memory = tensor.permute(order).reshape(-1).contiguous()
        last = sum((x - 1) * y for x, y in zip(self.size, self.stride, strict=True))
        if 0 in self.size or self.offset + last >= memory.numel():
            return None
        return memory.as_strided(self.size, self.stride, self.offset)


def returned_views(wrapper: Wrapper | None, scope: str) -> Mapping[int, ReturnedView]:
    """The views that a function of a wrapper returns, by their places among what it returns. Those
    whose sizes are no plain numbers are left out."""
    entry = next((x for x in wrapper.located.entries if x.name == scope), None) if wrapper else None
    if wrapper is None or entry is None:
        return {}
    text = wrapper.plain.data[entry.start :].decode("utf-8", "replace")
    returned = _RETURN.search(text) if wrapper.language == "python" else None
    found = _in_python(returned[1]) if returned else _in_cpp(text)
    return {} if len(entry.outputs) <= max(found, default=0) else found


def _in_python(returned: str) -> dict[int, ReturnedView]:
    try:
        value = ast.parse(returned, mode="eval").body
    except (SyntaxError, RecursionError):
        return {}
    members = value.elts if isinstance(value, ast.Tuple) else [value]
    found = {}
    for place, view in enumerate(map(view_of, members)):
        numbers = () if view is None else (*view.size, *view.stride, view.offset)
        if view is not None and all(x.isdecimal() for x in numbers):
            size, stride = (tuple(map(int, x)) for x in (view.size, view.stride))
            found[place] = ReturnedView(view.of, size, stride, int(view.offset))
    return found


def _in_cpp(text: str) -> dict[int, ReturnedView]:
    views = _once((match[1], match.groups()[1:]) for match in _VIEW.finditer(text))
    arrays = _once((name, _numbers(inside)) for name, inside in _ARRAY.findall(text))
    found = {}
    for place, name in _once(_HANDLE.findall(text)).items():
        base, *named, offset = views.get(name, ("", "", "", ""))
        known = [arrays[some] for some in named if some in arrays]
        if len(known) == 2 and all(x.isdecimal() for numbers in known for x in numbers):
            size, stride = (tuple(map(int, x)) for x in known)
            found[int(place)] = ReturnedView(base, size, stride, int(offset))
    return found


def _once(pairs: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """What each name stands for; none that has two meanings, as in two functions."""
    found: dict[str, set[_T]] = {}
    for name, meaning in pairs:
        found.setdefault(name, set()).add(meaning)
    return {name: meanings.pop() for name, meanings in found.items() if len(meanings) == 1}


def _numbers(inside: str) -> tuple[str, ...]:
    return tuple(x.strip().removesuffix("L") for x in inside.split(",") if x.strip())
