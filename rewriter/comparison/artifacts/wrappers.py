"""Compares two wrappers: launches first, then kernels, then all lines that these do not explain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rewriter.artifact.types import Wrapper
from rewriter.comparison.artifacts import accounting, kernels
from rewriter.comparison.artifacts.types import (
    ArtifactVerdict,
    Change,
    LaunchChange,
    Probing,
    RenamedKernel,
    SideName,
    UnmatchedLine,
    WrapperDifference,
)
from rewriter.comparison.artifacts.values import (
    Matcher,
    NameMapping,
    Operand,
    is_variable,
    learn_renames,
    variable,
)
from rewriter.comparison.artifacts.wrapper_view import Extra, WrapperView
from rewriter.core import align
from rewriter.core.align import Pair
from rewriter.core.source import check_text
from rewriter.instrumentation import emitted, probe_check
from rewriter.locate.languages import language
from rewriter.locate.types import Launch

_TOKEN = re.compile(r"\w+|[^\w\s]")
_HANDLE = "_handle"


def compare(a: Wrapper, b: Wrapper, extra_a: Extra, extra_b: Extra) -> WrapperDifference:
    """Compare two wrappers of one language; `extra` are files with kernels that belong to them."""
    if a.source == b.source and extra_a == extra_b and a.operators == b.operators:
        return _equal(a, b)
    for wrapper in (a, b):
        check_text(str(wrapper.path), wrapper.source)
    return _compare(WrapperView(a, extra_a), WrapperView(b, extra_b))


def _equal(a: Wrapper, b: Wrapper) -> WrapperDifference:
    """The result for wrappers that are equal, or equal without their probes."""
    count = len(a.located.launches)
    sides = describe_probing(a, count), describe_probing(b, count)
    states = {side.check.state for side in sides if side is not None}
    verdict: ArtifactVerdict = "instrumented"
    if a.source == b.source:
        verdict = "identical"
    elif "changed" in states:
        verdict = "different"
    elif "unverified" in states:
        verdict = "unverified"
    notes = (*_foreign("A", a), *_foreign("B", b))
    plain = a.restored.source, b.restored.source
    facts = a.name, b.name, verdict, *sides, count, count
    return WrapperDifference(*facts, (), (), (), (), (), notes, *plain)


def describe_probing(wrapper: Wrapper, count: int) -> Probing | None:
    """The probes of a wrapper, and how many of its `count` launches have them; `None` if plain."""
    header = wrapper.probes
    if header is None:
        return None
    checked = probe_check.check(wrapper)
    assert checked is not None
    probed = sum(index < count for index in emitted.probed_launches(wrapper))
    return Probing(header.probes, probed, wrapper.restored.exact, checked)


def _foreign(side: str, wrapper: Wrapper) -> Iterator[str]:
    """Yield a sentence about marked lines that belong to no probe, which are ignored as well."""
    if foreign := emitted.count_foreign(wrapper):
        lines = "a marked line" if foreign == 1 else f"{foreign} marked lines"
        yield f"{side} has {lines} that instrument did not write"


def _shown(
    numbers: Sequence[int], side: SideName, lines: Sequence[bytes], wrapper: Wrapper
) -> Iterator[UnmatchedLine]:
    """Lines by their numbers in the file."""
    kept = wrapper.restored.kept
    for number in numbers:
        text = lines[number - 1].decode("utf-8", "replace").rstrip("\r\n")
        yield UnmatchedLine(side, kept[number - 1], text)


def _compare(a: WrapperView, b: WrapperView) -> WrapperDifference:
    by_name = a.launched == b.launched
    pairs = align.align(a.keys(by_name=by_name), b.keys(by_name=by_name))
    partner = {pair.a: pair.b for pair in pairs if pair.a is not None and pair.b is not None}
    paired, *left = kernels.pair(
        a.kernels,
        b.kernels,
        [(a.launches[i].kernel, b.launches[j].kernel) for i, j in partner.items()],
    )
    equal = {(x, y) for x, y in paired if a.kernels.normal[x] == b.kernels.normal[y]}
    changed: list[tuple[str | None, str | None]] = [names for names in paired if names not in equal]
    changed += [*((x, None) for x in left[0]), *((None, y) for y in left[1])]
    kernel_changes = [kernels.describe_change(a.kernels, b.kernels, x, y) for x, y in changed]
    same_source = a.wrapper.restored.source == b.wrapper.restored.source
    if same_source and not kernel_changes and a.wrapper.operators == b.wrapper.operators:
        return _equal(a.wrapper, b.wrapper)
    launches = _Launches(a, b, partner)
    changes = [(pair, launches.change(pair)) for pair in pairs]
    names = learn_renames(launches.operands)
    kernel_names = language(a.wrapper.language).kernel_names
    for old, new in paired:
        if old != new:
            names |= zip(kernel_names(old), kernel_names(new), strict=True)
    keys_a = accounting.line_keys(a.text, a.buffers, names)
    keys_b = accounting.line_keys(b.text, b.buffers, {})
    places = [
        (a.launch_lines[pair.a], b.launch_lines[pair.b])
        for pair in pairs
        if pair.a is not None and pair.b is not None and not pair.moved
    ]
    anchors = accounting.find_anchors(places, keys_a, keys_b)
    matched = accounting.compare(a.lines, b.lines, keys_a, keys_b, anchors)
    shown = [change or launches.rewritten(pair, keys_a, keys_b) for pair, change in changes]
    moved = [pair for pair, change in zip(pairs, shown, strict=True) if change]
    lines_a = _unexplained(a, matched.removed, [x.a for x in moved], changed)
    lines_b = _unexplained(b, matched.added, [x.b for x in moved], [(y, x) for x, y in changed])
    kept_a, kept_b = a.wrapper.restored.kept, b.wrapper.restored.kept
    ends = accounting.describe_ends(a.lines, b.lines, matched)
    many = len(a.launches), len(b.launches)
    probing = describe_probing(a.wrapper, many[0]), describe_probing(b.wrapper, many[1])
    return WrapperDifference(
        a.wrapper.name, b.wrapper.name, "different", *probing, *many,
        tuple(change for change in shown if change is not None),
        tuple(launches.renamed), tuple(kernel_changes),
        (*_shown(lines_a, "a", a.lines, a.wrapper), *_shown(lines_b, "b", b.lines, b.wrapper)),
        tuple((kept_a[x - 1], kept_b[y - 1]) for x, y in matched.names),
        (*_foreign("A", a.wrapper), *_foreign("B", b.wrapper), *ends),
        a.wrapper.restored.source, b.wrapper.restored.source,
    )  # fmt: skip


def _unexplained(
    view: WrapperView,
    numbers: Sequence[int],
    launches: Sequence[int | None],
    kernels: Sequence[tuple[str | None, str | None]],
) -> list[int]:
    """The lines that belong to none of these launches and kernels, which were reported; `kernels`
    are in pairs with those of the other side."""
    known = {line for x in launches if x is not None for line in view.launch_lines[x]}
    for own, other in kernels:
        known.update(view.kernel_lines(own, whole=other is None) if own is not None else ())
    return [number for number in numbers if number not in known]


class _Launches:
    """Compares the paired launches of two wrappers.

    It also collects launches that differ only in their generated names, and equal operands, from
    which renamed variables can be learned.
    """

    def __init__(self, a: WrapperView, b: WrapperView, partner: Mapping[int, int]) -> None:
        self._a, self._b = a, b
        self._matcher = Matcher(a.operands, b.operands, partner)
        self._kernels = NameMapping()
        for i, j in partner.items():
            if a.launches[i].kernel == b.launches[j].kernel:
                self._kernels.match(a.launches[i].kernel, b.launches[j].kernel)
        self._variables = {
            name.removesuffix(_HANDLE)
            for side in (a, b)
            for launch in side.launches
            for argument in launch.args
            if argument.type == "tensor"
            for name in (argument.buffer, variable(argument))
        }.union(a.operands.inputs, b.operands.inputs)
        self.renamed: list[RenamedKernel] = []
        self.operands: list[tuple[Operand, Operand]] = []

    def change(self, pair: Pair) -> LaunchChange | None:
        """What differs in a launch; `None` if nothing does."""
        a = None if pair.a is None else self._a.wrapper.launches[pair.a]
        b = None if pair.b is None else self._b.wrapper.launches[pair.b]
        if a is None or b is None:
            return LaunchChange(a, b)
        changes: list[Change] = []
        details: list[str] = []
        if a.kind != b.kind or not self._same_kernel(a.kernel, b.kernel):
            changes.append("kernel")
            details.append(f"kernel {_named(a, b)} -> {_named(b, a)}")
        else:
            if a.kernel != b.kernel:
                self.renamed.append(RenamedKernel(a, b))
            ours, theirs = self._a.operands.of[a.index], self._b.operands.of[b.index]
            if differences := list(self._matcher.differences(ours, theirs)):
                changes.append("arguments")
                details += differences
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
        """A launch whose statement differs in something that is not an argument."""
        assert pair.a is not None
        assert pair.b is not None
        lines_a, lines_b = self._a.launch_lines[pair.a], self._b.launch_lines[pair.b]
        if accounting.same(lines_a, lines_b, keys_a, keys_b):
            return None
        a, b = self._a.wrapper.launches[pair.a], self._b.wrapper.launches[pair.b]
        text_a, text_b = (
            " ".join(keys[lines.start - 1 : lines.stop - 1])
            for keys, lines in ((keys_a, lines_a), (keys_b, lines_b))
        )
        if details := tuple(self._exchanged(text_a, text_b)):
            return LaunchChange(a, b, ("arguments",), details)
        return LaunchChange(a, b, ("text",), ("the statement is written in another way",))

    def _same_kernel(self, a: str, b: str) -> bool:
        """Whether two names are one kernel: the same name, or sources known to be equal."""
        if a == b:
            return True
        source = self._a.kernels.normal.get(a)
        equal = source is not None and source == self._b.kernels.normal.get(b)
        return equal and self._kernels.match(a, b)

    def _exchanged(self, a: str, b: str) -> list[str]:
        """The variables of two statements that differ at the same place, as `old -> new`."""
        tokens_a, tokens_b = _TOKEN.findall(a), _TOKEN.findall(b)
        if len(tokens_a) == len(tokens_b):
            pairs = list(zip(tokens_a, tokens_b, strict=True))
        else:
            ours, theirs = (
                list(dict.fromkeys(word for word in tokens if self._is_variable(word)))
                for tokens in (tokens_a, tokens_b)
            )
            # A statement in another form has other temporaries, too.
            pairs = [*zip(ours, theirs, strict=True)] if {*ours} == {*theirs} else []
        exchanged = [
            f"{x} -> {y}"
            for x, y in pairs
            if x.removeprefix("raw_") != y.removeprefix("raw_")
            and self._is_variable(x)
            and self._is_variable(y)
        ]
        return list(dict.fromkeys(exchanged))

    def _is_variable(self, word: str) -> bool:
        return is_variable(word) or word.removesuffix(_HANDLE) in self._variables


def _named(launch: Launch, other: Launch) -> str:
    """A kernel's name, with its kind if that differs from the other's."""
    return launch.kernel if launch.kind == other.kind else f"{launch.kernel} ({launch.kind})"
