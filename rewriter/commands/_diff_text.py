"""Formats a difference as lines for people, the most important ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewriter.comparison.artifacts.types import (
    Difference,
    KernelChange,
    LaunchChange,
    MemberChange,
    PackageDifference,
    WrapperDifference,
)
from rewriter.core.terminal import Line
from rewriter.core.text import counted
from rewriter.locate.types import Launch

_SHOWN = 20  # entries shown of each list, unless all are wanted
_SHOWN_LINES = 6
_WIDTH = 100


def lines(difference: Difference, *, everything: bool = False) -> Iterator[Line]:
    """The verdict, then the differences, wrapper by wrapper."""
    yield _verdict(difference)
    for name in difference.only_a:
        yield _styled(f"- wrapper {name}", "red")
    for name in difference.only_b:
        yield _styled(f"+ wrapper {name}", "green")
    several = len(difference.wrappers) > 1
    for wrapper in difference.wrappers:
        if several:
            yield _styled(f"{wrapper.name_a}: {wrapper.verdict}", "bold")
        yield from _wrapper(wrapper, everything)
    if difference.package is not None:
        yield from _cut(list(_package(difference.package)), everything, "changes of the package")
    for note in difference.notes:
        yield _styled(f"  note: {note}")


def _verdict(difference: Difference) -> Line:
    wrappers = difference.wrappers
    if difference.verdict == "identical":
        launches = counted(sum(wrapper.count_a for wrapper in wrappers), "launch")
        several = "" if len(wrappers) == 1 else f"{len(wrappers)} wrappers, "
        return _styled(f"identical: {several}{launches}", "bold green")
    if difference.verdict == "instrumented":
        return _styled("instrumented: the same without the probes", "bold green")
    if difference.verdict == "unverified":
        text = "unverified: the same without the probes, which could not be checked"
        return _styled(text, "bold yellow")
    if difference.probes_changed:
        return _styled("different: the probes are not what instrument writes", "bold yellow")
    differing = [change for wrapper in wrappers for change in _differing(wrapper)]
    changed = sum(change.a is not None and change.b is not None for change in differing)
    total = max(sum(w.count_a for w in wrappers), sum(w.count_b for w in wrappers))
    counts = [f"{changed} of {counted(total, 'launch')}"]
    if only_a := sum(change.b is None for change in differing):
        counts.append(f"{only_a} only in A")
    if only_b := sum(change.a is None for change in differing):
        counts.append(f"{only_b} only in B")
    if written := sum(len(_rewritten(wrapper)) for wrapper in wrappers):
        counts.append(f"{counted(written, 'statement')} written in another way")
    if kernels := sum(len(wrapper.kernels) for wrapper in wrappers):
        counts.append(counted(kernels, "kernel source"))
    if other := sum(len(wrapper.lines) for wrapper in wrappers):
        counts.append(counted(other, "other line"))
    if names := sum(len(wrapper.names) for wrapper in wrappers):
        counts.append(f"{counted(names, 'line')} by names alone")
    if apart := len(difference.only_a) + len(difference.only_b):
        counts.append(counted(apart, "wrapper") + " on one side")
    package = difference.package
    if package and (members := len(package.members)):
        counts.append(counted(members, "member"))
    return _styled(f"different: {', '.join(counts)}", "bold yellow")


def _wrapper(wrapper: WrapperDifference, everything: bool) -> Iterator[Line]:
    for side, probing, count in (
        ("A", wrapper.probing_a, wrapper.count_a),
        ("B", wrapper.probing_b, wrapper.count_b),
    ):
        if probing is not None:
            edited = "" if probing.exact else "; it was edited since"
            around = f"around {probing.launches} of {count} launches{edited}"
            yield _styled(f"  {side} has {', '.join(probing.probes)} {around}")
            reason = probing.check.reason
            if probing.check.state == "changed" and probing.exact:
                yield _styled(f"  {side}: not what instrument writes: {reason}", "yellow")
            elif probing.check.state == "unverified":
                yield _styled(f"  note: the probes of {side} are not checked: {reason}")
    for note in wrapper.notes:
        yield _styled(f"  note: {note}")
    yield from _cut([_launch(c) for c in _differing(wrapper)], everything, "launches")
    if rewritten := _rewritten(wrapper):
        shown = " ".join(f"#{change.launch.index}" for change in rewritten)
        yield _styled(f"  only written in another way: {shown}", "yellow")
    renamed = (
        f"#{a.index} -> #{b.index}  renamed {a.kernel} -> {b.kernel}" for a, b in wrapper.renamed
    )
    yield from _cut([_styled(f"  = {x}", "dim") for x in renamed], everything, "renamed launches")
    yield from _cut([_kernel(change) for change in wrapper.kernels], everything, "kernels")
    yield from _other(wrapper, everything)


def _differing(wrapper: WrapperDifference) -> list[LaunchChange]:
    return [change for change in wrapper.launches if change.changes != ("text",)]


def _rewritten(wrapper: WrapperDifference) -> list[LaunchChange]:
    return [change for change in wrapper.launches if change.changes == ("text",)]


def _launch(change: LaunchChange) -> Line:
    if change.a is None or change.b is None:
        sign, style = ("+", "green") if change.a is None else ("-", "red")
        return _styled(f"  {sign} {_place(change.launch)}{_nodes(change.launch)}", style)
    sign = "^" if "order" in change.changes else "~"
    b = f"#{change.b.index}" if "kernel" in change.changes else _place(change.b)
    details = "; ".join(change.details)
    text = f"  {sign} #{change.a.index} -> {b}  {details}{_nodes(change.b)}"
    return _styled(text, "yellow")


def _place(launch: Launch) -> str:
    return f"#{launch.index} {launch.kernel} (line {launch.line})"


def _nodes(launch: Launch) -> str:
    return f"  [{' '.join(launch.source_nodes)}]" if launch.source_nodes else ""


def _kernel(change: KernelChange) -> Line:
    if change.b is None:
        return _styled(f"  - source of {change.a}", "red")
    if change.a is None:
        return _styled(f"  + source of {change.b}", "green")
    name = change.a if change.a == change.b else f"{change.a} -> {change.b}"
    what = "" if change.part == "code" else ", metadata only"
    return _styled(f"  ~ source of {name}: -{change.removed} +{change.added} lines{what}", "cyan")


def _other(wrapper: WrapperDifference, everything: bool) -> Iterator[Line]:
    if wrapper.lines:
        removed = sum(line.side == "a" for line in wrapper.lines)
        yield _styled(f"  other lines: -{removed} +{len(wrapper.lines) - removed}")
        shown: list[Line] = []
        # In order of line numbers, so that related lines of both sides are close together.
        for line in sorted(wrapper.lines, key=lambda line: line.number):
            text = line.text.strip()
            short = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
            sign, style = ("-", "red") if line.side == "a" else ("+", "green")
            if everything or text:
                shown.append(_styled(f"    {sign} {line.number}: {short}", style))
        yield from _cut(shown, everything, "lines", _SHOWN_LINES)
        if blank := len(wrapper.lines) - len(shown):
            yield _styled(f"    {counted(blank, 'blank line')}", "dim")
    if wrapper.names:
        numbers = [f"{a}" if a == b else f"{a}->{b}" for a, b in wrapper.names]
        few = numbers if everything else numbers[:_SHOWN]
        more = f" and {len(numbers) - len(few)} more" if len(few) < len(numbers) else ""
        yield _styled(
            f"  lines that differ by names and hashes alone: {' '.join(few)}{more}", "dim"
        )


def _package(package: PackageDifference) -> Iterator[Line]:
    for side, built in (("A", package.built_a), ("B", package.built_b)):
        if built is not None and built.state == "changed":
            yield _styled(f"  {side}: not what instrument packs: {built.reason}", "yellow")
        elif built is not None and built.state == "unverified":
            yield _styled(f"  note: what was built for {side} is not checked: {built.reason}")
    for name in package.models_a:
        yield _styled(f"  - model {name}", "red")
    for name in package.models_b:
        yield _styled(f"  + model {name}", "green")
    for value in package.values:
        a, b = value.a, value.b
        if value.what == "constants":
            a, b = (_hash(x) for x in (a, b))
        yield _styled(f"  ~ {value.model} {value.what}: {a} -> {b}", "yellow")
    yield from map(_member, package.members)
    if package.layout:
        yield _styled("  ~ the archive: order, dates or compression of equal members", "yellow")


def _member(member: MemberChange) -> Line:
    if member.a is None:
        return _styled(f"  + {member.b}  {_hash(member.sha256_b)}", "green")
    if member.b is None:
        return _styled(f"  - {member.a}  {_hash(member.sha256_a)}", "red")
    name = member.a if member.a == member.b else f"{member.a} -> {member.b}"
    if member.state == "renamed":
        return _styled(f"  ~ {name}  same contents", "dim")
    return _styled(f"  ~ {name}  {_hash(member.sha256_a)} -> {_hash(member.sha256_b)}", "yellow")


def _hash(digest: str | None) -> str:
    return "unknown" if digest is None else digest[:12]


def _cut(shown: Sequence[Line], everything: bool, what: str, most: int = _SHOWN) -> Iterator[Line]:
    few = shown if everything or len(shown) <= most + 1 else shown[:most]
    yield from few
    if len(few) < len(shown):
        yield _styled(f"    ... {len(shown) - len(few)} more {what}; --all shows them", "dim")


def _styled(text: str, style: str = "") -> Line:
    return [(text, style)]
