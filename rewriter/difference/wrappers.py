"""Compares two wrappers: launches first, then kernels, then every line that neither explains."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rewriter import alignment, markers
from rewriter.alignment import Keys, Pair
from rewriter.artifact import OpenWrapper
from rewriter.difference import accounting, kernels
from rewriter.difference.declared import Declared, declared
from rewriter.difference.kernels import Kernels
from rewriter.difference.types import (
    Damage,
    LaunchChange,
    Line,
    Probing,
    Side,
    WrapperDifference,
)
from rewriter.difference.values import Matcher, Operand, Operands, operands, renaming
from rewriter.errors import RewriterError
from rewriter.kernel_source import find_kernels
from rewriter.source import check_text
from rewriter.types import Launch

# A call of the runtime at a launch, in either language.
_PROBE = re.compile(rb"\b_?\w*\.(?:before|after)\((\d+)[,)]")
# So much of a sound wrapper must be in a damaged one for it to be a copy of it.
_SHARED = 0.9
# Kinds whose kernels Inductor numbers.
_GENERATED = ("triton", "triton_user", "triton_template", "combo", "multi_kernel", "cpp", "cuda")
_FORMS = ("{}", "call_{}", "{}_source", "{}_result")
_NUMBER = re.compile(r"_\d+$")

Extra = Mapping[str, bytes]


@dataclass(frozen=True)
class Read:
    """All that is compared of one sound wrapper."""

    wrapper: OpenWrapper
    extra: Extra

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of the plain source with their ends."""
        return markers.lines(self.wrapper.plain.data)

    @cached_property
    def text(self) -> list[str]:
        return [line.decode("utf-8", "replace") for line in self.lines]

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches with the lines of the plain source."""
        return self.wrapper.located.launches

    @cached_property
    def declared(self) -> Declared:
        return declared(self.text)

    @cached_property
    def operands(self) -> Operands:
        return operands(self.wrapper.located, self.declared)

    @cached_property
    def kernels(self) -> Kernels:
        return kernels.read(find_kernels(self.wrapper, self.extra))

    @cached_property
    def launch_lines(self) -> list[range]:
        """The lines of each launch in the plain source, from 1."""
        return [accounting.launch_lines(launch, self.wrapper.plain) for launch in self.launches]

    def kernel_lines(self, name: str) -> range:
        """The lines of a kernel in the plain source, from 1; none if it is elsewhere."""
        kernel = self.kernels.sources[name]
        return accounting.kernel_lines(kernel, self.wrapper.plain, self.text)

    @cached_property
    def keys(self) -> list[Keys]:
        digests = {
            name: hashlib.sha256(text.encode()).digest()
            for name, text in self.kernels.normal.items()
        }
        return [
            alignment.launch_keys(
                launch.kernel,
                launch.kind,
                shapes,
                launch.source_nodes,
                launch.origins,
                digests.get(launch.kernel),
            )
            for launch, shapes in zip(self.launches, self.operands.shapes, strict=True)
        ]


def compare(
    a: OpenWrapper,
    b: OpenWrapper,
    *,
    extra_a: Extra | None = None,
    extra_b: Extra | None = None,
    errors: tuple[RewriterError | None, RewriterError | None] = (None, None),
) -> WrapperDifference:
    """Compare two wrappers of one language; `extra` are files with kernels that belong to them.

    A wrapper that is no sound one (`errors` say what opening it said) is compared line by line with
    a sound one that it is a damaged copy of: nine in ten of whose lines it has. Raises
    `RewriterError` where it is none, or both are damaged.
    """
    same_beside = (extra_a or {}) == (extra_b or {}) and a.operators == b.operators
    if a.source == b.source and same_beside:
        return _equal(a, b)
    error_a, error_b = errors[0] or _error(a), errors[1] or _error(b)
    if error_a is None and error_b is None:
        return _compare(Read(a, extra_a or {}), Read(b, extra_b or {}))
    side: Side = "b" if error_a is None else "a"
    error = error_a or error_b
    assert error is not None
    sound, damaged = (a, b) if side == "b" else (b, a)
    if (error_a and error_b) or not _is_copy(damaged, sound):
        raise error
    return _compare_lines(a, b, Damage(side, error.slug, error.message))


def _equal(a: OpenWrapper, b: OpenWrapper) -> WrapperDifference:
    """Two wrappers that are the same, or the same without their probes."""
    count = len(a.located.launches)
    return WrapperDifference(
        a.name,
        b.name,
        "identical" if a.source == b.source else "instrumented",
        probing(a),
        probing(b),
        count,
        count,
        plain_a=a.restored.source,
        plain_b=b.restored.source,
    )


def probing(wrapper: OpenWrapper) -> Probing | None:
    """The probes of a wrapper and how many launches have them; `None` for a plain one."""
    header = wrapper.probes
    if header is None:
        return None
    mark = f"rewriter:{header.tag}".encode()
    found = {
        match[1]
        for line in markers.lines(wrapper.source)
        if line.rstrip(b"\r\n").endswith(mark) and (match := _PROBE.search(line))
    }
    return Probing(header.probes, len(found), wrapper.restored.exact)


def _error(wrapper: OpenWrapper) -> RewriterError | None:
    """Why a wrapper is no sound one."""
    try:
        check_text(str(wrapper.path), wrapper.source)
        _ = wrapper.located
    except RewriterError as error:
        return error
    return None


def _is_copy(damaged: OpenWrapper, sound: OpenWrapper) -> bool:
    there = set(markers.lines(damaged.restored.source))
    lines = markers.lines(sound.restored.source)
    return sum(line in there for line in lines) >= _SHARED * len(lines)


def _compare_lines(a: OpenWrapper, b: OpenWrapper, damage: Damage) -> WrapperDifference:
    lines_a, lines_b = markers.lines(a.restored.source), markers.lines(b.restored.source)
    found = accounting.compare(lines_a, lines_b, lines_a, lines_b)
    return WrapperDifference(
        a.name,
        b.name,
        "different",
        probing(a),
        probing(b),
        0 if damage.side == "a" else len(a.located.launches),
        0 if damage.side == "b" else len(b.located.launches),
        lines=(*_shown(found.removed, "a", lines_a, a), *_shown(found.added, "b", lines_b, b)),
        damage=damage,
        plain_a=a.restored.source,
        plain_b=b.restored.source,
    )


def _shown(
    numbers: Sequence[int], side: Side, lines: Sequence[bytes], wrapper: OpenWrapper
) -> Iterator[Line]:
    """Lines by the numbers that they have in the file."""
    kept = wrapper.restored.kept
    for number in numbers:
        text = lines[number - 1].decode("utf-8", "replace").rstrip("\r\n")
        yield Line(side, kept[number - 1], text)


def _compare(a: Read, b: Read) -> WrapperDifference:
    pairs = alignment.align(a.keys, b.keys)
    partner = {pair.a: pair.b for pair in pairs if pair.a is not None and pair.b is not None}
    paired, *left = kernels.pair(
        a.kernels,
        b.kernels,
        [(a.launches[i].kernel, b.launches[j].kernel) for i, j in partner.items()],
    )
    equal = {(x, y) for x, y in paired if a.kernels.normal[x] == b.kernels.normal[y]}
    kernel_changes = [
        *(kernels.change(a.kernels, b.kernels, x, y) for x, y in paired if (x, y) not in equal),
        *(kernels.change(a.kernels, b.kernels, x, None) for x in left[0]),
        *(kernels.change(a.kernels, b.kernels, None, y) for y in left[1]),
    ]
    same_source = a.wrapper.restored.source == b.wrapper.restored.source
    if same_source and not kernel_changes and a.wrapper.operators == b.wrapper.operators:
        return _equal(a.wrapper, b.wrapper)
    launches = _Launches(a, b, partner)
    changes = [(pair, launches.change(pair)) for pair in pairs]
    renamed = [(x, y) for x, y in launches.renamed if (x.kernel, y.kernel) not in {*paired} - equal]
    names = renaming(launches.operands)
    for old, new in {*equal, *((x.kernel, y.kernel) for x, y in renamed)}:
        # C++ calls a kernel through functions and constants that are named after it.
        names |= {form.format(old): form.format(new) for form in _FORMS if old != new}
    keys_a = accounting.keys(a.text, a.declared, names)
    keys_b = accounting.keys(b.text, b.declared, {})
    places = [
        (a.launch_lines[pair.a], b.launch_lines[pair.b])
        for pair in pairs
        if pair.a is not None and pair.b is not None and not pair.moved
    ]
    anchors = accounting.anchored(places, keys_a, keys_b)
    found = accounting.compare(a.lines, b.lines, keys_a, keys_b, anchors)
    shown = [change or launches.rewritten(pair, keys_a, keys_b) for pair, change in changes]
    explained_a = [
        a.launch_lines[pair.a]
        for pair, change in zip(pairs, shown, strict=True)
        if change and pair.a is not None
    ]
    explained_b = [
        b.launch_lines[pair.b]
        for pair, change in zip(pairs, shown, strict=True)
        if change and pair.b is not None
    ]
    explained_a += [a.kernel_lines(change.a) for change in kernel_changes if change.a]
    explained_b += [b.kernel_lines(change.b) for change in kernel_changes if change.b]
    lines_a = accounting.unexplained(found.removed, explained_a)
    lines_b = accounting.unexplained(found.added, explained_b)
    kept_a, kept_b = a.wrapper.restored.kept, b.wrapper.restored.kept
    return WrapperDifference(
        a.wrapper.name,
        b.wrapper.name,
        "different",
        probing(a.wrapper),
        probing(b.wrapper),
        len(a.launches),
        len(b.launches),
        tuple(change for change in shown if change is not None),
        tuple(renamed),
        tuple(kernel_changes),
        (*_shown(lines_a, "a", a.lines, a.wrapper), *_shown(lines_b, "b", b.lines, b.wrapper)),
        tuple((kept_a[x - 1], kept_b[y - 1]) for x, y in found.names),
        plain_a=a.wrapper.restored.source,
        plain_b=b.wrapper.restored.source,
    )


class _Launches:
    """Compares the launches that stand for each other.

    On the way it collects those that only have another generated name, and the operands that are
    the same, of which names can be learnt.
    """

    def __init__(self, a: Read, b: Read, partner: Mapping[int, int]) -> None:
        self._a, self._b = a, b
        self._matcher = Matcher(a.operands, b.operands, partner)
        self.renamed: list[tuple[Launch, Launch]] = []
        self.operands: list[tuple[Operand, Operand]] = []

    def change(self, pair: Pair) -> LaunchChange | None:
        """What differs in a launch, `None` for nothing."""
        a = None if pair.a is None else self._a.wrapper.launches[pair.a]
        b = None if pair.b is None else self._b.wrapper.launches[pair.b]
        if a is None or b is None:
            return LaunchChange(a, b)
        changes, details = [], []
        if _unnumbered(a) != _unnumbered(b) or a.kind != b.kind:
            changes.append("kernel")
            details.append(f"kernel {_named(a, b)} -> {_named(b, a)}")
        else:
            if a.kernel != b.kernel:
                self.renamed.append((a, b))
            ours, theirs = self._a.operands.of[a.index], self._b.operands.of[b.index]
            if found := list(self._matcher.differences(ours, theirs)):
                changes.append("arguments")
                details += found
            if len(ours) == len(theirs):
                self.operands += [
                    (x, y) for x, y in zip(ours, theirs, strict=True) if self._matcher.same(x, y)
                ]
        # Since torch 2.8 `call` is a method.
        if a.scope.rpartition(".")[2] != b.scope.rpartition(".")[2]:
            changes.append("scope")
            details.append(f"scope {a.scope} -> {b.scope}")
        if pair.moved:
            changes.append("order")
            details.append("it stands elsewhere")
        return LaunchChange(a, b, tuple(changes), tuple(details)) if changes else None

    def rewritten(
        self, pair: Pair, keys_a: Sequence[str], keys_b: Sequence[str]
    ) -> LaunchChange | None:
        """A launch in whose statement something differs that is no argument of it."""
        assert pair.a is not None
        assert pair.b is not None
        lines_a, lines_b = self._a.launch_lines[pair.a], self._b.launch_lines[pair.b]
        if accounting.same(lines_a, lines_b, keys_a, keys_b):
            return None
        a, b = self._a.wrapper.launches[pair.a], self._b.wrapper.launches[pair.b]
        return LaunchChange(a, b, ("text",), ("the statement is written in another way",))


def _unnumbered(launch: Launch) -> str:
    """The name of a kernel less the number that makes a generated one unique."""
    return _NUMBER.sub("", launch.kernel) if launch.kind in _GENERATED else launch.kernel


def _named(launch: Launch, other: Launch) -> str:
    """A kernel's name, with its kind where that differs from another's."""
    return launch.kernel if launch.kind == other.kind else f"{launch.kernel} ({launch.kind})"
