"""Writes what a C++ wrapper says about its buffers as a Python wrapper says it.

So that what follows from it is derived once. Lines keep their numbers; of the others the text
stays as it is, since any variable that they name may be read there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rewriter.comparison.artifacts.buffer_facts import plain, read_buffer_facts
from rewriter.locate.types import Argument, Launch

_SIZES = r"(\([^()]*\)|\w+)"
_ALLOCATED = re.compile(
    rf"aoti_torch_empty_strided\w*\((\d+), {_SIZES}, {_SIZES}, cached_torch_dtype_(\w+), "
    r".*&(\w+?)_handle\)"
)
_MOVED = re.compile(
    r"(?:auto|decltype\(auto\)) (\w+) = std::move\((\w+?)(?:_raii)?\);(?: \w+\.reset\(\);)?"
    r"\s*// reuse"
)
_VIEWED = re.compile(
    r"\s*auto (\w+) = (.*reinterpret_tensor_wrapper\([^;]*\));"
    r"( \w+\.reset\(\);)?\s*(?://.*)?$"
)
_ASSERTED = re.compile(r"assert_size_stride\((\w+), (\([^()]*\)), (\([^()]*\)),")
_SINGLE = re.compile(r"(?<=, )(\([\w*]+)\)")  # sizes of one dimension
_QUOTE = '"'
# Facts about weights, in the order in which AOTInductor writes them.
_CONSTANT = re.compile(r"\s*constants_info_\[(\d+)\]\.(name|dtype|shape|stride) = (.*);$")
# It names a buffer and neither reads nor writes it.
_BARE = re.compile(
    r"\s*(?:static constexpr int64_t int_array_\d+\[\] = |AtenTensorHandle \w+;|\w+\.reset\(\);"
    r"|RAIIAtenTensorHandle \w+(?:\(\w+_handle\)|\(tmp_tensor_handle_\d+\))?;"
    r"|auto \w+ = std::move\(inputs\[\d+\]\);|output_handles\[\d+\] = "
    r"|AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_new_uninitialized_tensor\()"
)


def in_python(source: str, launches: Sequence[Launch]) -> tuple[str, list[Launch]]:
    """The text of a C++ wrapper and its launches, with arguments, in the notation of Python."""
    lines = source.split("\n")
    facts = read_buffer_facts(lines)

    def written(text: str, line: int) -> str:
        text = plain(facts.expand(text, line))
        return _SINGLE.sub(r"\1,)", text) if "_strid" in text or "reinterpret_" in text else text

    constants: dict[str, dict[str, str]] = {}
    shown = []
    for number, line in enumerate(lines, 1):
        if match := _CONSTANT.match(line):
            constants.setdefault(match[1], {})[match[2]] = match[3]
            shown.append(_constant(constants[match[1]]) if match[2] == "stride" else "#")
        else:
            shown.append(_line(line, partial(written, line=number)))

    def arguments(launch: Launch) -> Iterator[Argument]:
        updated = set()
        for argument in launch.args:
            # `out` of an operator is `self`, too.
            if argument.role != "inout" or argument.expr not in updated:
                is_given = argument.later == ""  # the launch takes the handle
                expr = argument.name if is_given else written(argument.expr, launch.line)
                yield replace(argument, expr=expr)
            if argument.role == "inout":
                updated.add(argument.expr)

    return "\n".join(shown), [replace(x, args=tuple(arguments(x))) for x in launches]


def _constant(facts: Mapping[str, str]) -> str:
    """The line for a weight of a package, once the last fact about it is read."""
    size, stride = (f"({facts[x].strip('{}')},)".replace("(,)", "()") for x in ("shape", "stride"))
    kind = facts["dtype"].removeprefix("cached_torch_dtype_")
    return f"{facts['name'].strip(_QUOTE)} = empty_strided({size}, {stride}, torch.{kind})"


def _line(line: str, written: Callable[[str], str]) -> str:
    if match := _VIEWED.match(line):
        return f"{match[1]} = {written(match[2])}{'; del _  # reuse' if match[3] else ''}"
    line = written(line)
    if match := _ALLOCATED.search(line):
        size, stride = match.group(2, 3) if match[1] != "0" else ("()", "()")
        return f"{match[5]} = empty_strided({size}, {stride}, torch.{match[4]})"
    if match := _MOVED.search(line):
        return f"{match[1]} = {match[2]}; del {match[2]}  # reuse"
    if match := _ASSERTED.search(line):
        return f"assert_size_stride({match[1]}, {match[2]}, {match[3]})"
    return "#" if _BARE.match(line) else line
