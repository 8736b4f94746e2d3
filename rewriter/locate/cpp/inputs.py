"""Reads which inputs a C++ wrapper was compiled for.

Since torch 2.7 AOTInductor's wrappers have checks of their inputs, which run only if
`AOTI_RUNTIME_CHECK_INPUTS` is set (`generate_input_output_runtime_checks` in
torch/_inductor/codegen/cpp_wrapper_cpu.py); they cover neither symbolic sizes nor the device index.
Since 2.12 both kinds of wrapper assert sizes and strides where an input is first used. In earlier
releases there are only the types in pointer casts, and the harness of a JIT wrapper in Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rewriter.core.dtypes import IN_CPP
from rewriter.locate.cpp.lexer import members
from rewriter.locate.inputs import SYMBOL, combine
from rewriter.locate.types import InputSpec
from rewriter.locate.vocabulary import vocabulary

_ASSERTED = re.compile(
    r"\bassert_size_stride\(\s*(?P<name>\w+),\s*\{(?P<size>[^{}]*)\},\s*\{(?P<stride>[^{}]*)\}"
)
_ALIGNED = re.compile(r"\bassert_alignment\(\s*(?P<name>\w+),\s*(?P<bytes>\d{1,9})L*\s*,")
_SYMBOL = re.compile(r"\b(?P<symbol>\w+) = (?P<name>\w+?)(?:_size\[(?P<place>\d{1,3})\])?;")
_ITEM = re.compile(r"\baoti_torch_item_(?P<type>\w+)\(\s*inputs\[\d+\],\s*&(?P<name>\w+)\)")
_POINTER = re.compile(r"\((?:const )?(?P<type>[\w:<>]+)\s*\*\)\((?P<name>\w+)\.data_ptr\(\)\)")

# In `check_input_N`, which refers to the input by its name.
_EQUAL = re.compile(
    r"\bif \((?P<value>\d+)L* != (?P<name>\w+)_(?P<of>size|stride)\[(?P<place>\d{1,3})\]\)"
)
_BOUND = re.compile(
    r"\bif \((?P<name>\w+)_size\[(?P<place>\d{1,3})\] (?P<sign>[<>]) (?P<value>\d+)L*\)"
)
_DTYPE = re.compile(r"\b(?P<name>\w+)_expected_dtype = aoti_torch_dtype_(?P<dtype>\w+)\(\);")
_DEVICE = re.compile(r"\b(?P<name>\w+)_expected_device_type = (?P<number>\d+);")


def input_specs(
    checks: str, body: str, names: Sequence[str], example: Mapping[str, InputSpec]
) -> tuple[InputSpec, ...]:
    """The known facts about each input of an entry.

    `checks` is the text that defines `check_input_N`, `body` the text of the entry, `example` the
    inputs that the harness of a JIT wrapper makes.
    """
    asserted = {known.name: known for known in _checked(checks)}
    inputs = frozenset(names)
    for known in (*_asserted(body, inputs), *_numbers(body)):
        asserted[known.name] = _merged(asserted.get(known.name), known)
    for pointer in _POINTER.finditer(body):
        name, dtype = pointer["name"], IN_CPP.get(pointer["type"].rpartition("::")[2], "")
        if name not in inputs:
            continue
        known = asserted.get(name, InputSpec(name, "tensor"))
        if not known.dtype and not (name in example and example[name].dtype):
            asserted[name] = replace(known, dtype=dtype)
    symbols: dict[str, str] = {}
    for match in _SYMBOL.finditer(body):
        if match["name"] in inputs and SYMBOL.match(match["symbol"]):
            place = f"[{match['place']}]" if match["place"] else ""
            symbols.setdefault(match["name"] + place, match["symbol"])
    return tuple(
        # If sizes have names, a size without limits is missing from the checks.
        replace(known, open=known.open and bool(symbols))
        for known in combine(names, example, asserted, symbols)
    )


def _asserted(body: str, inputs: frozenset[str]) -> Iterator[InputSpec]:
    for match in _ASSERTED.finditer(body):
        if match["name"] not in inputs:
            continue
        size, stride = (tuple(map(_dimension, members(match[part]))) for part in ("size", "stride"))
        yield InputSpec(match["name"], "tensor", size=size, stride=stride)
    for match in _ALIGNED.finditer(body):
        yield InputSpec(match["name"], "tensor", alignment=int(match["bytes"]))


def _numbers(body: str) -> Iterator[InputSpec]:
    """JIT wrappers get numbers as tensors: `aoti_torch_item_int64(inputs[1], &arg1_1)`."""
    for match in _ITEM.finditer(body):
        yield InputSpec(match["name"], "float" if "float" in match["type"] else "int")


def _merged(before: InputSpec | None, known: InputSpec) -> InputSpec:
    """Combine the checks with an assertion; of several assertions the first counts, as in Python.

    Assertions have the names of sizes, checks have their limits.
    """
    if before is None or known.kind != "tensor":
        return known
    if known.size is None:
        return replace(before, alignment=before.alignment or known.alignment)
    if before.size is not None and not before.open:
        return before
    limits = ["".join(size.partition(":")[1:]) for size in before.size or ()]
    if len(limits) > len(known.size):
        limits = []  # of a tensor with more dimensions, so not the asserted one
    limits += [""] * (len(known.size) - len(limits))
    size = tuple(text + limit for text, limit in zip(known.size, limits, strict=True))
    return replace(before, size=size, stride=known.stride, open=False)


def _checked(checks: str) -> Iterator[InputSpec]:
    """The facts that `check_input_N` compare. More dimensions may follow the last compared one."""
    devices = {match["name"]: match["number"] for match in _DEVICE.finditer(checks)}
    # Programs call a custom backend by its own name, not by the one that belongs to its number.
    names = {str(n): name for name, n in vocabulary().devices.items() if name != "privateuse1"}
    sizes: dict[str, dict[int, str]] = {}
    strides: dict[str, dict[int, str]] = {}
    for match in _EQUAL.finditer(checks):
        dimensions = sizes if match["of"] == "size" else strides
        dimensions.setdefault(match["name"], {})[int(match["place"])] = match["value"]
    limits: dict[tuple[str, int], dict[str, str]] = {}
    for match in _BOUND.finditer(checks):
        place = match["name"], int(match["place"])
        limits.setdefault(place, {})[match["sign"]] = match["value"]
    for (name, position), limit in limits.items():
        text = f"?:{limit.get('<', '')}..{limit.get('>', '')}"
        sizes.setdefault(name, {}).setdefault(position, text)
    for match in _DTYPE.finditer(checks):
        name = match["name"]
        dim = max([*sizes.get(name, ()), *strides.get(name, ())], default=-1) + 1
        size, stride = (
            tuple(dimensions.get(name, {}).get(i, "?") for i in range(dim))
            for dimensions in (sizes, strides)
        )
        device = names.get(devices.get(name, ""), "")
        yield InputSpec(name, "tensor", match["dtype"], device, size, stride, open=True)


def _dimension(text: str) -> str:
    if (number := text.strip().rstrip("L")).isdecimal():
        return number
    from rewriter.locate.python.arithmetic import dimension  # takes time to import

    return dimension(text)
