"""Compares paired launches: kernel, arguments, scope, and the statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rewriter.comparison.artifacts import accounting
from rewriter.comparison.artifacts.types import Change, LaunchChange, RenamedKernel
from rewriter.comparison.artifacts.values import (
    Matcher,
    NameMapping,
    Operand,
    is_variable,
    variable,
)
from rewriter.comparison.artifacts.wrapper_view import WrapperView
from rewriter.core.align import Pair
from rewriter.locate.types import Launch

_TOKEN = re.compile(r"\w+|[^\w\s]")
_HANDLE = "_handle"


class Launches:
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
