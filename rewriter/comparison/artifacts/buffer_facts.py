"""Reads from the text of a wrapper the sizes of its buffers, and which variables are views of what.

The text is read line by line, since neither is part of a launch. Launches can be aligned without
facts that are not found.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from rewriter.core.scan import spans

# Python: `buf0 = empty_strided_cpu((8, 64), (64, 1), torch.float32)`, `assert_size_stride(x, (8,`
# C++: `aoti_torch_empty_strided(2, int_array_0, …, &buf0_handle)`, `assert_size_stride(x, {8L}`
_ALLOCATED = re.compile(r"\b(\w+) = empty_strided\w*\((\([^()]*\))")
_ASSERTED = re.compile(r"assert_size_stride\((\w+), (\([^()]*\)|\{[^{}]*\})")
_SHIM = re.compile(r"\baoti_torch_empty_strided\w*\(\d+, (\w+), ")
_SHIM_HANDLE = re.compile(r"&(\w+?)(?:_handle)?\)")
_BOUND = re.compile(r"^\s*(?:auto )?(\w+) = (.*)$")
_CALLED = re.compile(r"\b(\w+)\(")
_VIEWS = ("reinterpret_tensor", "alloc_from_pool")
_ARRAY = re.compile(r"\b(int_array_\d+)\[\] = (\{[^{}]*\})")
_ARRAY_NAME = re.compile(r"\bint_array_\d+\b")
_LONG = re.compile(r"(?<=\d)L+\b")
_TRAILING = re.compile(r",\s*(?=[)}])")
# C++ also passes the number of dimensions.
_REINTERPRET = re.compile(
    r"(?:wrap_with_raii_handle_if_needed\()?\breinterpret_tensor_wrapper\((\w+), \d+, "
)
# Facts about constants, in the order in which AOTInductor writes them.
_CONSTANT = re.compile(r'constants_info_\[(\d+)\]\.(?:name = "(\w+)"|shape = (\{[^{}]*\}))')


@dataclass(frozen=True)
class BufferFacts:
    """`sizes` and `views` by variable; `arrays` are C++ constants by name, as (line, contents)."""

    sizes: dict[str, str]
    views: dict[str, str]
    arrays: dict[str, list[tuple[int, str]]]

    def expand(self, text: str, line: int) -> str:
        """The text of a line with the names of constant arrays replaced by their contents."""
        if "int_array_" not in text or not self.arrays:
            return text

        def contents(name: re.Match[str]) -> str:
            definitions = self.arrays.get(name[0], [(0, name[0])])
            above = bisect.bisect_right(definitions, line, key=lambda entry: entry[0])
            return definitions[max(above - 1, 0)][1]

        return _ARRAY_NAME.sub(contents, text)


def read_buffer_facts(lines: list[str]) -> BufferFacts:
    """Read the lines of a wrapper, which are counted from 1."""
    facts = BufferFacts({}, {}, {})
    constants: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if "int_array_" in line and (match := _ARRAY.search(line)):
            facts.arrays.setdefault(match[1], []).append((number, match[2]))
        elif "empty_strided" in line:
            if match := _ALLOCATED.search(line):
                facts.sizes.setdefault(match[1], plain(match[2]))
            elif shim := next(spans(_SHIM, _SHIM_HANDLE, line), None):
                array, handle = shim[0][1], shim[1][1]
                facts.sizes.setdefault(handle, plain(facts.expand(array, number)))
        elif "assert_size_stride(" in line and (match := _ASSERTED.search(line)):
            facts.sizes.setdefault(match[1], plain(match[2]))
        elif (
            ("reinterpret_tensor" in line or "alloc_from_pool" in line)
            and (match := _BOUND.match(line))
            and any(view in name for name in _CALLED.findall(match[2]) for view in _VIEWS)
        ):
            # The first statement of a line: Inductor adds `del buf0  # reuse` to some.
            view = re.split(r";|(?<!\s)\s+(?:#|//)", match[2], maxsplit=1)[0].strip()
            facts.views.setdefault(match[1], view)
        elif "constants_info_[" in line and (match := _CONSTANT.search(line)):
            if match[2]:
                constants[match[1]] = match[2]
            elif match[1] in constants:
                facts.sizes.setdefault(constants[match[1]], plain(match[3]))
    return facts


def plain(text: str) -> str:
    """Sizes and views in one notation for both languages: `{8L, 64L, }` becomes `(8, 64)`."""
    text = _TRAILING.sub("", _LONG.sub("", text)).replace("{", "(").replace("}", ")")
    if "reinterpret_tensor_wrapper" in text:
        match = _REINTERPRET.search(text)
        if match and text.endswith(")") and ";" not in text[match.end() :]:
            inside = text[match.end() :].rstrip(")") + ")"
            if inside.count(")") > inside.count("("):
                inside = inside[:-1]
            return f"{text[: match.start()]}reinterpret_tensor({match[1]}, {inside})"
    return text
