"""The source of one artifact: its text, its launches, and the source of their kernels.

Text is decoded as Latin-1, so that an offset is the same in bytes and in characters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import rewriter
from rewriter.locate.types import Launch

ENCODING = "latin-1"

_CPP = re.compile(r'^extern "C"  void  (\w+)\([^;{]*\)\n\{.*?^\}\n', re.M | re.S)
_PYBINDING = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(.*?^'''\)\n", re.M | re.S)
_TRITON = re.compile(r"^(\w+) = async_compile\.triton\(.*?^''', device_str=.*?\)\n", re.M | re.S)
_LOADS = re.compile(r"\bloadKernel\([^)]*\.cubin")
_TRITON_BODY = re.compile(r"^def triton_\w+\(.*?\):\n", re.M | re.S)
# Statements that allocate a buffer; the groups have its name and, as text, its layout.
_ALLOCATED = re.compile(r"^ *(buf\d+) = (empty_strided_\w+)(\(\(.*\))$", re.M)
_ALLOCATED_CPP = re.compile(
    r"aoti_torch_empty_strided\((\d+, \w+, \w+, \w+), .*?&(buf\d+)_handle\)", re.M
)
_RENAMED = re.compile(r"\b(buf\d+) = (?:std::move\((buf\d+)\)|(buf\d+); del \3\b)")


@dataclass(frozen=True)
class Edit:
    """Replaces the text between two offsets of a file (the wrapper if it is not named)."""

    start: int
    end: int
    text: str
    file: str = ""


@dataclass(frozen=True)
class Kernel:
    """The source of a kernel: the part of a file that faults may change."""

    name: str
    language: str  # cpp, triton
    file: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """The files of one wrapper: a Python file, or the C++ files of a package.

    `texts` has the text of each file by its name, the wrapper first.
    """

    name: str
    form: str  # python, cpp_wrapper, aoti
    texts: Mapping[str, str] = field(repr=False)

    @property
    def wrapper(self) -> str:
        return next(iter(self.texts))

    @property
    def text(self) -> str:
        """The text of the wrapper."""
        return self.texts[self.wrapper]

    @property
    def is_cpp(self) -> bool:
        """Whether the wrapper is C++."""
        return self.form != "python"

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / self.wrapper
            path.write_bytes(self.text.encode(ENCODING))
            return rewriter.open(path).launches

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels that are defined in the source, by name.

        Triton kernels are left out if a C++ wrapper loads them compiled: then the source is only a
        quotation, and a change to it has no effect.
        """
        found = [one for name, text in self.texts.items() for one in _kernels(name, text)]
        quoted = "triton" if _LOADS.search(self.text) else ""
        return {one.name: one for one in found if one.language != quoted}

    @cached_property
    def layouts(self) -> dict[str, str]:
        """The layouts of allocated buffers by name, as text: equal texts mean equal layouts."""
        if self.is_cpp:
            found = {match[2]: match[1] for match in _ALLOCATED_CPP.finditer(self.text)}
        else:
            found = {match[1]: match[2] + match[3] for match in _ALLOCATED.finditer(self.text)}
        for match in _RENAMED.finditer(self.text):
            if (old := match[2] or match[3]) in found:
                found[match[1]] = found[old]
        return found

    @cached_property
    def returned(self) -> frozenset[str]:
        """The names of the buffers that the wrapper returns, themselves or as views."""
        found = re.findall(r"output_handles\[\d+\] = (buf\d+)", self.text)
        views = dict(re.findall(r"\b(var_\d+) = [^;\n]*?\b(buf\d+)\b", self.text))
        handles = re.findall(r"output_handles\[\d+\] = (var_\d+)", self.text)
        found += [views[name] for name in handles if name in views]
        for line in re.findall(r"^ +return \((.*)\)$", self.text, re.M):
            found += re.findall(r"\bbuf\d+\b", line)
        return frozenset(found)

    def is_scratch(self, launch: int, arg: str) -> bool:
        """Whether an argument of a launch is scratch memory: no later launch reads what the launch
        leaves there, and the wrapper does not return it."""
        owners = {x.buffer for x in self.launches[launch].args if x.name == arg}
        if not owners or not all(one.startswith("buf") for one in owners):
            return False
        everything = [x for one in self.launches for x in one.args]
        kept = {x.buffer for x in everything if x.name in self.returned} | self.returned
        later = [x for one in self.launches[launch + 1 :] for x in one.args if "in" in x.role]
        return not owners & (kept | {x.buffer for x in later})

    def statement(self, launch: Launch) -> tuple[int, int]:
        """The offsets at which the statement of a launch begins and ends, newline included."""
        return launch.insertion_point.start, launch.insertion_point.end

    def edited(self, edits: Sequence[Edit]) -> Source:
        """Apply edits, which must not overlap. Returns the new source."""
        texts = dict(self.texts)
        for edit in sorted(edits, key=lambda one: one.start, reverse=True):
            name = edit.file or self.wrapper
            texts[name] = texts[name][: edit.start] + edit.text + texts[name][edit.end :]
        return Source(self.name, self.form, texts)

    def difference(self, other: Source) -> str:
        """A unified diff of two sources without context lines."""
        lines: list[str] = []
        for name, text in self.texts.items():
            if text != other.texts[name]:
                pair = text.splitlines(), other.texts[name].splitlines()
                lines += difflib.unified_diff(*pair, name, name, lineterm="", n=0)
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Target:
    """A launch of a source, at which a fault may be planted."""

    source: Source
    launch: Launch

    @property
    def kernel(self) -> Kernel | None:
        return self.source.kernels.get(self.launch.kernel)

    @property
    def sharing(self) -> tuple[int, ...]:
        """The indices of all launches of this kernel: a change to its source affects all."""
        name = self.launch.kernel
        return tuple(one.index for one in self.source.launches if one.kernel == name)


def read(name: str, form: str, *paths: Path) -> Source:
    """Read a source from its files, the wrapper first."""
    texts = {path.name: path.read_bytes().decode(ENCODING) for path in paths}
    return Source(name, form, texts)


def _kernels(file: str, text: str) -> Iterator[Kernel]:
    for match in _PYBINDING.finditer(text):
        yield Kernel(match[1], "cpp", file, match.start(), match.end(), match[0])
    for match in _CPP.finditer(text):
        if match[1] != "kernel":  # that of all C++ kernels inside a Python wrapper; found above
            yield Kernel(match[1], "cpp", file, match.start(), match.end(), match[0])
    for match in _TRITON.finditer(text):
        if body := _TRITON_BODY.search(text, match.start(), match.end()):
            # The text before the body has options and the name of the function.
            span = body.end(), match.end()
            yield Kernel(match[1], "triton", file, *span, text[span[0] : span[1]])
