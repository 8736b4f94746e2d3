"""Checks, in the text of a wrapper, that each launch reads memory that holds its value.

The text says when a buffer is allocated, when another one takes over its memory, and when it is
deleted. A launch that reads a buffer before it is written, or after it was taken over or deleted,
is wrong whatever it computes: a launch is missing, two are in the wrong order, or memory is reused
or freed too early. Inductor generates none of these, and finding them runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rewriter.artifact.given_copies import given_copy, signatures
from rewriter.artifact.kernel_sources import kernel_sources
from rewriter.artifact.naming.graph import parse
from rewriter.artifact.types import OpenWrapper
from rewriter.core.errors import RewriterError
from rewriter.core.labels import beginning
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding, FindingKind
from rewriter.diagnosis.ruling import Examined
from rewriter.dump.dataflow import variable
from rewriter.dump.names import SourceLine
from rewriter.locate.operators import takes_shape
from rewriter.locate.types import Argument, Hazard, Launch

_SHOWN = "shown by the text of the wrapper"
_UNKNOWN_GRAPH = "the graph of the model is not known: one that returns torch.empty does so too"
_KINDS: Mapping[Hazard, FindingKind] = {
    "unwritten": "unwritten",
    "taken": "unwritten",
    "updated": "unwritten",
    "stale": "stale",
    "freed": "freed",
}


def examine_lifetimes(
    wrapper: OpenWrapper,
    *,
    run: str = "",
    empty: Collection[str] = (),
    graph: str = "",
    lines: Mapping[int, tuple[SourceLine, ...]] = {},
    extra: Mapping[str, bytes] = {},
) -> Examined:
    """Findings for the launches of a wrapper that read unwritten, taken over or deleted memory.

    `empty` are buffers that a dump shows to have no elements: nothing writes those. `graph` is the
    text of the graph that the wrapper was compiled from, if it is known: a model may return memory
    that it does not write. `extra` are the sources of kernels in other files, as in a package.
    """
    launches = wrapper.located.launches  # by lines of the wrapper without probes
    sources = _sources(wrapper, launches, extra)
    wrong = {
        # Of several launches that read the same bad memory, the first one is the finding.
        (argument.hazard, variable(argument.name), launch.scope): (launch, argument)
        for launch in reversed(launches)
        if not launch.repeats
        for argument in _wrong(launch, empty, sources)
    }
    outdated = _outdated(wrapper)
    findings = [
        _unwritten_by_copy(wrapper, launch, argument, run, lines, extra)
        or _finding(wrapper, launches, launch, argument, run, lines, outdated, sources)
        for launch, argument in reversed(wrong.values())
    ]
    known = {variable(argument.name) for _, argument in wrong.values()}
    findings += _returned(wrapper, run, known.union(empty), graph, lines, extra)
    if findings:
        return Examined(tuple(findings))
    return Examined(
        ruled_out="memory read before it is written, or after it is reused or freed: in the "
        f"text of {beginning(wrapper.path.name)}, what {counted(len(launches), 'launch')} "
        f"{'reads' if len(launches) == 1 else 'read'} was written before"
    )


def _outdated(wrapper: OpenWrapper) -> frozenset[str]:
    """The buffers that the wrapper returns after another one took over their memory."""
    return frozenset(
        name
        for entry in wrapper.located.entries
        for name, hazard in zip(entry.returned or entry.outputs, entry.hazards, strict=False)
        if hazard == "stale"
    )


def _sources(
    wrapper: OpenWrapper, launches: Sequence[Launch], extra: Mapping[str, bytes]
) -> Mapping[str, str]:
    """The sources of the kernels, if an argument needs them: see `reads_first`."""
    if not any(one.hazard for launch in launches for one in launch.args):
        return {}
    try:
        return kernel_sources(wrapper, extra)
    except RewriterError:
        return {}


def _wrong(
    launch: Launch, empty: Collection[str], sources: Mapping[str, str]
) -> Iterator[Argument]:
    seen = set()
    is_shape = takes_shape(launch.kernel)
    for position, argument in enumerate(launch.args):
        if is_shape and position == 0 and argument.hazard in ("unwritten", "taken"):
            continue
        if argument.hazard == "updated" and not reads_first(
            sources.get(launch.kernel, ""), position
        ):
            continue
        is_empty = bool({argument.name, argument.buffer} & set(empty))
        if argument.hazard and not is_empty and argument.expr not in seen:
            seen.add(argument.expr)
            yield argument


def reads_first(text: str, position: int) -> bool:
    """Whether a kernel reads the memory of a parameter before it writes to it, by the order of its
    text. False if the text does not show it."""
    for parameters in signatures(text, position):
        signature = re.search(r"\)\s*(?::\n|\{)", text)
        body = text[signature.end() :] if signature is not None else ""
        return _reads_first(body, parameters[position].name)
    return False


def _reads_first(body: str, name: str) -> bool:
    names = {name}
    # `auto in_ptr0 = in_out_ptr0;` of kernels that Inductor makes in place.
    for alias, of in re.findall(r"(?m)^\s*auto (\w+) = (\w+);$", body):
        if of in names:
            names.add(alias)
            body = body.replace(f"auto {alias} = {of};", "", 1)
    any_of = rf"(?:{'|'.join(map(re.escape, sorted(names)))})\b"
    first = re.search(rf"^.*\b{any_of}.*$", body, re.MULTILINE)
    if first is None:
        return False
    stores = rf"\bstore\w*\({any_of}|^\s*{any_of}\[[^=]*\] = "
    # Atomic additions read, too.
    loads = (
        rf"\bload\w*\({any_of}|= {any_of}\[|= static_cast<\w+>\({any_of}\["
        rf"|\batomic_\w+\(&?{any_of}"
    )
    return not re.search(stores, first[0]) and bool(re.search(loads, first[0]))


def _finding(
    wrapper: OpenWrapper,
    launches: Sequence[Launch],
    launch: Launch,
    argument: Argument,
    run: str,
    lines: Mapping[int, tuple[SourceLine, ...]],
    outdated: Collection[str],
    sources: Mapping[str, str],
) -> Finding:
    kind, name = _KINDS[argument.hazard], variable(argument.name)
    later = [x for x in launches if x.index > launch.index and _writes(x, argument, sources)]
    others: tuple[int, ...] = ()
    text = [f"line {launch.line}: {launch.kernel} is given {argument.expr}"]
    if kind == "freed":
        what = f"reads {name}, which is deleted before it"
    elif kind == "stale":
        what = f"reads {name} after another buffer took its memory over"
        others = tuple(
            one.index for one in launches if one.index > launch.index and _reads_stale(one, name)
        )
        text.append(f"{name} lies in the memory of {argument.buffer}")
        text += [f"the call returns {name}"] if name in outdated else []
    elif later:
        kind, others = "order", (later[0].index,)
        what = (
            f"reads {name}, which launch #{later[0].index} {later[0].kernel} (line "
            f"{later[0].line}) writes only afterwards: they have changed places"
        )
    else:
        what = f"reads {name}, which nothing has written: a launch that writes it is missing"
        if argument.hazard == "taken":
            text.append(f"its memory still holds {argument.buffer}")
    return _at(
        wrapper,
        run,
        lines,
        launch,
        kind,
        what,
        text=tuple(text),
        others=others,
        lasting=kind == "stale"
        and (name in outdated or bool(_written_over(launches, launch, argument))),
    )


def _written_over(launches: Sequence[Launch], launch: Launch, argument: Argument) -> list[Launch]:
    """The earlier launches that wrote, under another name, to the memory that this launch reads."""
    name = variable(argument.name)
    before = [one for one in launches if one.index < launch.index and one.scope == launch.scope]
    own = [x.index for x in before for y in x.args if y.role != "in" and variable(y.name) == name]
    return [
        one
        for one in before
        if one.index > max(own, default=-1)
        and any(
            x.role != "in" and x.buffer == argument.buffer and variable(x.name) != name
            for x in one.args
        )
    ]


def _reads_stale(launch: Launch, name: str) -> bool:
    return any(one.hazard == "stale" and variable(one.name) == name for one in launch.args)


def _writes(launch: Launch, argument: Argument, sources: Mapping[str, str]) -> bool:
    """Whether a launch gives the buffer of another launch's argument its value: one that updates
    it needs one, too."""
    return any(
        one.hazard in ("", "updated")
        and not (one.role == "inout" and reads_first(sources.get(launch.kernel, ""), position))
        for position, one in enumerate(launch.args)
        if one.role != "in"
        and (
            variable(one.name) == variable(argument.name)
            or (one.buffer == argument.buffer and argument.hazard != "taken")
        )
    )


def _returned(
    wrapper: OpenWrapper,
    run: str,
    known: Collection[str],
    graph: str,
    lines: Mapping[int, tuple[SourceLine, ...]],
    extra: Mapping[str, bytes],
) -> Iterator[Finding]:
    """Findings for returned buffers without a value, except for those in `known`, and those that
    the model itself returns without writing them."""
    parsed = parse(graph) if graph else None
    for entry in wrapper.located.entries:
        names = entry.returned or entry.outputs
        meant: Collection[int] = ()
        if parsed is not None and len(parsed.outputs) == len(names):
            meant = parsed.unwritten
        returned = zip(names, entry.outputs, entry.hazards, strict=False)
        for place, (name, buffer, hazard) in enumerate(returned):
            if not hazard or {name, buffer} & set(known):
                continue
            if hazard == "unwritten" and place in meant:
                continue
            kind = _KINDS[hazard]
            copy = given_copy(wrapper, name, extra) if kind == "unwritten" else None
            if copy is not None:
                yield _lost(wrapper, run, lines, *copy, f"{name}, which the call returns")
                continue
            how = {
                "unwritten": "nothing has written it: the launch that computes it is missing",
                "stale": "another buffer took its memory over",
                "freed": "it is deleted before",
            }[kind]
            yield Finding(
                kind,
                f"the wrapper {beginning(wrapper.path.name)} returns {name}, and {how}",
                _SHOWN,
                artifact=wrapper.path.name,
                run=run,
                kernel="the return of the call",
                text=() if hazard != "unwritten" or parsed is not None else (_UNKNOWN_GRAPH,),
                whole=True,
            )


def _unwritten_by_copy(
    wrapper: OpenWrapper,
    launch: Launch,
    argument: Argument,
    run: str,
    lines: Mapping[int, tuple[SourceLine, ...]],
    extra: Mapping[str, bytes],
) -> Finding | None:
    """The finding about an earlier launch that wrote to a copy of what this launch reads."""
    name = variable(argument.name)
    copy = given_copy(wrapper, name, extra) if _KINDS[argument.hazard] == "unwritten" else None
    if copy is None or copy[0].index >= launch.index:
        return None
    read = f"{name}, which launch #{launch.index} {launch.kernel} (line {launch.line}) reads"
    return _lost(wrapper, run, lines, *copy, read)


def _lost(
    wrapper: OpenWrapper,
    run: str,
    lines: Mapping[int, tuple[SourceLine, ...]],
    launch: Launch,
    copy: Argument,
    what: str,
) -> Finding:
    """A launch that writes to a copy of a buffer, which nothing else writes."""
    lost = f"writes to a copy, {copy.expr}: nothing has written {what}"
    return _at(wrapper, run, lines, launch, "unwritten", lost)


def _at(
    wrapper: OpenWrapper,
    run: str,
    lines: Mapping[int, tuple[SourceLine, ...]],
    launch: Launch,
    kind: FindingKind,
    what: str,
    **more: Any,
) -> Finding:
    """A finding about a launch, shown by the text of its wrapper."""
    return Finding(
        kind,
        what,
        _SHOWN,
        artifact=wrapper.path.name,
        run=run,
        launch=launch.index,
        kernel=launch.kernel,
        line=launch.line,
        lines=lines.get(launch.index, ()),
        **more,
    )
