"""Faults in arithmetic: operators, operands, constants, conversions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from benchmarks.faults.kinds.base import Change, KernelKind, Kind, line_of, replaced, simply
from benchmarks.faults.source import Edit, Kernel, Target

_BINARY = {"+": "-", "-": "+", "*": "+", "/": "*"}
_CPP_UNARY = {
    "exp": "expm1", "log": "log1p", "log1p": "log", "erf": "tanh", "tanh": "erf", "sin": "cos",
    "cos": "sin", "rsqrt": "sqrt", "sqrt": "rsqrt", "abs": "neg", "neg": "abs", "reciprocal": "neg",
}  # fmt: skip
_TRITON_UNARY = {
    "exp": "expm1", "log": "log1p", "log1p": "log", "erf": "tanh", "tanh": "erf", "sin": "cos",
    "cos": "sin", "rsqrt": "sqrt", "sqrt": "rsqrt", "abs": "tanh",
}  # fmt: skip

# A statement of two operands: `auto tmp3 = tmp0 - tmp2;` and `tmp3 = tmp0 - tmp2`.
_CPP_TWO = r"auto tmp\d+ = (?:float\()?(tmp\d+) ([-+*/]) (tmp\d+)\)?;"
_TRITON_TWO = r"^ +tmp\d+ = \(?(tmp\d+) ([-+*/]) (tmp\d+)\)?$"


_OTHER_EXTREME = {"maximum": "minimum", "minimum": "maximum", "max2": "min2", "min2": "max2"}


class WrongOperator(KernelKind):
    """An operator is replaced by another: `*` by `+`, `erf` by `tanh`, a maximum by a minimum."""

    name = "wrong operator"
    cpp = (
        (re.compile(_CPP_TWO), simply(lambda m: _BINARY[m[2]], 2)),
        (re.compile(r"auto tmp\d+ = tmp\d+\.(\w+)\(\);"), simply(lambda m: _CPP_UNARY.get(m[1]))),
        (re.compile(r"= at::vec::(maximum|minimum)\("), simply(lambda m: _OTHER_EXTREME[m[1]])),
        (re.compile(r"tmp_acc\d+_vec = tmp_acc\d+_vec (\+) tmp\d+;"), simply(lambda m: "-")),
    )
    triton = (
        (re.compile(_TRITON_TWO, re.M), simply(lambda m: _BINARY[m[2]], 2)),
        (re.compile(r"= libdevice\.(\w+)\("), simply(lambda m: _TRITON_UNARY.get(m[1]))),
        (
            re.compile(r"= triton_helpers\.(maximum|minimum|max2|min2)\("),
            simply(lambda m: _OTHER_EXTREME[m[1]]),
        ),
    )


class SwappedOperands(KernelKind):
    """Two operands are exchanged: of `-` or `/`, of a selection, or two inputs of a launch."""

    name = "swapped operands"
    _two = simply(lambda m: f"{m[4]}{m[3]}{m[2]}")
    cpp = (
        (re.compile(r"auto tmp\d+ = ((tmp\d+)( [-/] )(?!\2\b)(tmp\d+));"), _two),
        (re.compile(r"blendv\(((tmp\d+)(, )(?!\2\b)(tmp\d+)),"), _two),
        (re.compile(r"auto tmp\d+ = tmp\d+ \? ((tmp\d+)( : )(?!\2\b)(tmp\d+));"), _two),
    )
    triton = (
        (re.compile(r"^ +tmp\d+ = \(?((tmp\d+)( [-/] )(?!\2\b)(tmp\d+))\)?$", re.M), _two),
        (re.compile(r"tl\.where\(tmp\d+, ((tmp\d+)(, )(?!\2\b)(tmp\d+))\)"), _two),
    )

    def changes(self, target: Target) -> Iterator[Change]:
        yield from super().changes(target)
        yield from self._arguments(target)

    def _arguments(self, target: Target) -> Iterator[Change]:
        """Exchange two inputs of the launch that have the same layout."""
        source = target.source
        start, text = line_of(source, target.launch)
        read = [
            one.expr
            for one in target.launch.args
            if one.role == "in" and one.expr == one.name and one.name in source.layouts
        ]
        for i, first in enumerate(read):
            for second in read[i + 1 :]:
                if first == second or source.layouts[first] != source.layouts[second]:
                    continue
                names = {first: second, second: first}
                exchanged = re.sub(
                    rf"\b({first}|{second})\b", lambda m, names=names: names[m[0]], text
                )
                edit = Edit(start, start + len(text), exchanged)
                what = (
                    f"{target.launch.kernel} is given {second} for {first} and {first} for {second}"
                )
                yield Change(what, (edit,), (target.launch.index,))


class AnotherInput(Kind):
    """A launch is given another input of the call, of the same layout: the weight of another layer.

    In Python wrappers alone, which say how each input lies in memory.
    """

    name = "another input"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        layouts = dict(re.findall(r"assert_size_stride\((arg\w+|primals\w+), (\(.*)", source.text))
        start, text = line_of(source, launch)
        read = {one.buffer for one in launch.args if one.role == "in"} & layouts.keys()
        released = set(re.findall(r"\bdel (\w+)", source.text[:start]))
        for first in sorted(read):
            for second in sorted(layouts.keys() - released):
                if layouts[first] != layouts[second] or re.search(rf"\b{second}\b", text):
                    continue
                edit = Edit(start, start + len(text), re.sub(rf"\b{first}\b", second, text))
                yield Change(
                    f"{launch.kernel} is given {second}, not {first}", (edit,), (launch.index,)
                )


class CommutedOperands(KernelKind):
    """Harmless: `a + b` becomes `b + a`, so no launch may be named."""

    name = "commuted operands"
    harmless = True
    _two = simply(lambda m: f"{m[4]}{m[3]}{m[2]}")
    cpp = ((re.compile(r"auto tmp\d+ = ((tmp\d+)( [+*] )(?!\2\b)(tmp\d+));"), _two),)
    triton = ((re.compile(r"^ +tmp\d+ = ((tmp\d+)( [+*] )(?!\2\b)(tmp\d+))$", re.M), _two),)


def _scaled(digits: str, by: float) -> str | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return repr(value * (1 + by)) if value and math.isfinite(value) else None


class WrongConstant(KernelKind):
    """A constant is multiplied by 1 + `by`, in a kernel or in a call (`alpha`)."""

    def __init__(self, by: float) -> None:
        self.by = by
        self.name = f"wrong constant by {by:g}"
        new = simply(lambda m: _scaled(m[1], by))
        self.cpp = ((re.compile(r"static_cast<(?:float|double)>\(([-\d.e]+)\)"), new),)
        self.triton = (
            (re.compile(r"tl\.full\(\[[\d, ]*\], ([-\d.e]+), tl\.float\d+\)"), new),
            (re.compile(r"^ +tmp\d+ = (-?\d+\.[\de-]+)$", re.M), new),
        )

    def changes(self, target: Target) -> Iterator[Change]:
        yield from super().changes(target)
        start, text = line_of(target.source, target.launch)
        pattern = r"addmm_out\(.*?, (1)L\)\);" if target.source.is_cpp else r"\balpha=(1)\b"
        for match in re.finditer(pattern, text):
            new = replaced(repr(1 + self.by), match)
            if target.source.is_cpp:
                new = replaced(f"{1 + self.by!r}", match).replace("L));", "));")
            edit = Edit(start + match.start(), start + match.end(), new)
            what = f"{target.launch.kernel}: alpha is {1 + self.by!r}"
            yield Change(what, (edit,), (target.launch.index,))


class LostConversion(KernelKind):
    """A value loses precision: it is converted to bfloat16 and back, or stays in bfloat16."""

    name = "lost conversion"
    cpp = (
        (
            re.compile(r"auto tmp\d+ = (at::vec::Vectorized<float>::loadu\(.*\));"),
            simply(lambda m: f"at::vec::convert<float>(at::vec::convert<at::BFloat16>({m[1]}))"),
        ),
        (
            re.compile(r"auto tmp\d+ = ((?:in|in_out)_ptr\d+\[.*\]);"),
            simply(lambda m: f"static_cast<float>(static_cast<at::BFloat16>({m[1]}))"),
        ),
    )
    triton = (
        (re.compile(r"^ +tmp\d+ = tmp\d+(\.to\(tl\.float32\))$", re.M), simply(lambda m: "")),
        (
            re.compile(r"^ +tmp\d+ = (libdevice\.\w+\(tmp\d+\))$", re.M),
            simply(lambda m: f"{m[1]}.to(tl.bfloat16).to(tl.float32)"),
        ),
    )

    def edits(self, kernel: Kernel) -> Iterator[tuple[Edit, str]]:
        for edit, what in super().edits(kernel):
            if (
                kernel.language == "cpp"
                and "static_cast" in edit.text
                and not _is_float(kernel, edit)
            ):
                continue
            yield edit, what


def _is_float(kernel: Kernel, edit: Edit) -> bool:
    """Whether the pointer that the edit reads points to floats."""
    pointer = re.search(r"\b(?:in|in_out)_ptr\d+\b", edit.text)
    return pointer is not None and bool(re.search(rf"\bfloat\* {pointer[0]}\b", kernel.text))


class HalfOverflow(KernelKind):
    """A value times 65,504 is converted to half precision, where it overflows, and scaled back."""

    name = "half overflow"
    triton = (
        (
            re.compile(r"^ +tmp\d+ = (tmp\d+ [-+*] tmp\d+|libdevice\.\w+\(tmp\d+\))$", re.M),
            simply(lambda m: f"(({m[1]}) * 65504.0).to(tl.float16).to(tl.float32) / 65504.0"),
        ),
    )

    def edits(self, kernel: Kernel) -> Iterator[tuple[Edit, str]]:
        yield from super().edits(kernel)
        if kernel.language != "cpp":
            return
        vectors = vector_values(kernel.text)
        for match in re.finditer(r"auto (tmp\d+) = (tmp\d+ [-+*] tmp\d+);", kernel.text):
            if match[1] not in vectors:
                continue
            scale = "at::vec::Vectorized<float>(65504.0f)"
            half = f"at::vec::convert<at::Half>(({match[2]}) * {scale})"
            text = replaced(f"at::vec::convert<float>({half}) / {scale}", match, 2)
            start = kernel.start + match.start()
            what = f"`{match[2]}` is computed as a half times 65504"
            yield Edit(start, start + len(match[0]), text, kernel.file), what


class LowPrecisionSum(KernelKind):
    """A sum is rounded to bfloat16 after each of its terms."""

    name = "low-precision sum"
    cpp = (
        (
            re.compile(r"(tmp_acc\d+_vec) = (\1 \+ tmp\d+);"),
            simply(lambda m: _through_bfloat16(m[2], m.string, m[1]), 2),
        ),
        (
            re.compile(r"tmp_acc\d+ = (tmp_acc\d+ \+ (?:static_cast<float>\()?tmp\d+\)?);"),
            simply(lambda m: f"static_cast<float>(static_cast<at::BFloat16>({m[1]}))"),
        ),
    )
    triton = (
        (
            re.compile(r"tl\.sum\((tmp\d+, 1\))"),
            simply(lambda m: m[1].replace(", 1)", ".to(tl.bfloat16), 1).to(tl.float32)")),
        ),
    )


def _through_bfloat16(value: str, kernel: str, name: str) -> str | None:
    """A value of the type of a vector of a C++ kernel, rounded; `None` if it has no floats."""
    if f"at::vec::Vectorized<float> {name} = " in kernel:
        return f"at::vec::convert<float>(at::vec::convert<at::BFloat16>({value}))"
    if f"at::vec::VectorizedN<float,2> {name} = " in kernel:
        there = f"at::vec::convert<at::BFloat16,1,float,2>({value})"
        return f"at::vec::convert<float,2,at::BFloat16,1>({there})"
    return None


class WrongEpilogue(Kind):
    """A kernel stores an operand of its last operation instead of the result; or the addition
    after a matrix product is dropped (`beta` is 0)."""

    name = "wrong epilogue"

    def changes(self, target: Target) -> Iterator[Change]:
        kernel = target.kernel
        if kernel is not None:
            for edit, what in self._stores(kernel):
                yield Change(f"{kernel.name}: {what}", (edit,), target.sharing)
        start, text = line_of(target.source, target.launch)
        pattern = r"addmm_out\(.*?, (1)L, 1L\)\);" if target.source.is_cpp else r"\bbeta=(1)\b"
        for match in re.finditer(pattern, text):
            edit = Edit(start + match.start(), start + match.end(), replaced("0", match))
            what = f"{target.launch.kernel}: beta is 0, so nothing is added"
            yield Change(what, (edit,), (target.launch.index,))

    def _stores(self, kernel: Kernel) -> Iterator[tuple[Edit, str]]:
        if kernel.language == "cpp":
            stored = re.compile(r"\b(tmp\d+)\.store\(")
            vectors = vector_values(kernel.text)
        else:
            stored = re.compile(r"tl\.store\(.*, (tmp\d+), \w+\)")
            vectors = frozenset()
        for match in stored.finditer(kernel.text):
            defined = _definition(kernel.text, match[1], match.start())
            operands = re.findall(r"\btmp\d+\b", defined)
            for operand in dict.fromkeys(operands):
                if kernel.language == "cpp" and operand not in vectors:
                    continue
                start = kernel.start + match.start(1)
                edit = Edit(start, start + len(match[1]), operand, kernel.file)
                yield edit, f"{operand} is stored, not {match[1]} = {defined}"


def _definition(text: str, name: str, before: int) -> str:
    """The right side of the last assignment to a name before an offset; empty if it is a load or
    has no operation."""
    found = re.findall(rf"(?:auto |^ +){name} = (.*?);?$", text[:before], re.M)
    last: str = found[-1] if found else ""
    return last if re.search(r" [-+*/] |\w\(", last) and "load" not in last else ""


def vector_values(text: str) -> frozenset[str]:
    """The names in a C++ kernel that hold vectors of floats in all of their definitions."""
    vectors: set[str] = set()
    others: set[str] = set()
    for name, value in re.findall(r"auto (tmp\d+) = (.*);", text):
        operands = re.findall(r"\btmp\d+\b", value)
        made = value.startswith("at::vec::Vectorized<float>")
        kept = re.fullmatch(r"tmp\d+(?: [-+*/] tmp\d+|\.\w+\(\))", value)
        if made or (kept and operands and all(one in vectors for one in operands)):
            vectors.add(name)
        else:
            others.add(name)
    return frozenset(vectors - others)
