"""What the text of a wrapper shows to be wrong, without running it.

It says when a buffer is allocated, when another one takes over its memory, and when it is deleted.
A launch that reads a buffer before it is written, or after it was taken over or deleted, is wrong
whatever it computes: a launch is missing, two are in the wrong order, or memory is reused or freed
too early. Inductor generates none of these. It launches every kernel that it defines, except for
the choices of a multi-kernel; so if a kernel has no launch, that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from rewriter.artifact.given_copies import given_copy, signatures
from rewriter.artifact.kernel_sources import find_kernels, kernel_sources
from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.labels import beginning
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding, FindingKind
from rewriter.diagnosis.ruling import Examined
from rewriter.dump.launched import variable
from rewriter.dump.names import SourceLine
from rewriter.locate.operators import takes_shape
from rewriter.locate.races import find_races, is_collective
from rewriter.locate.types import Argument, Hazard, KernelSource, Launch
from rewriter.model_names.graph import parse

# `async_compile.multi_kernel('multi_kernel_0', [` and its kernels, a line each.
_CHOICES = re.compile(rb"multi_kernel\([^\]]*\]")
_BY_TEXT = "shown by the text of the wrapper"
_UNKNOWN_GRAPH = "the graph of the model is not known: one that returns torch.empty does so too"
_KINDS: Mapping[Hazard, FindingKind] = {
    "unwritten": "unwritten",
    "taken": "unwritten",
    "updated": "unwritten",
    "stale": "stale",
    "freed": "freed",
    "unbound": "unbound",
}
_RETURNED: Mapping[FindingKind, str] = {
    "unwritten": "nothing has written it: the launch that computes it is missing",
    "stale": "another buffer took its memory over",
    "freed": "it is deleted before",
    "unbound": "nothing there has this name",
}


def examine_lifetimes(
    wrapper: Wrapper,
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
    text = _Text(wrapper, run, frozenset(empty), lines, extra)
    wrong = {
        # Of several launches that read the same bad memory, the first one is the finding.
        (argument.hazard, variable(argument.name), launch.scope): (launch, argument)
        for launch in reversed(text.launches)
        if not launch.repeats
        for argument in text.wrong(launch)
    }
    findings = [text.unwritten_by_copy(*x) or text.finding(*x) for x in reversed(wrong.values())]
    known = {variable(argument.name) for _, argument in wrong.values()}
    findings += text.returned(known.union(empty), graph)
    if findings:
        return Examined(tuple(findings))
    number = len(text.launches)
    return Examined(
        ruled_out="memory read before it is written, or after it is reused or freed: in the "
        f"text of {beginning(wrapper.path.name)}, what {counted(number, 'launch')} "
        f"{'reads' if number == 1 else 'read'} was written before"
    )


@dataclass(frozen=True)
class _Text:
    """The text of a wrapper, and what else is known of it: see `examine_lifetimes`."""

    wrapper: Wrapper
    run: str
    empty: frozenset[str]
    lines: Mapping[int, tuple[SourceLine, ...]] = field(repr=False)
    extra: Mapping[str, bytes] = field(repr=False)

    @property
    def launches(self) -> Sequence[Launch]:
        """By lines of the wrapper without probes."""
        return self.wrapper.located.launches

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The sources of the kernels."""
        try:
            return kernel_sources(self.wrapper, self.extra)
        except RewriterError:
            return {}

    @cached_property
    def outdated(self) -> frozenset[str]:
        """The buffers that the wrapper returns after another one took over their memory."""
        return frozenset(
            name
            for entry in self.wrapper.located.entries
            for name, hazard in zip(entry.returned or entry.outputs, entry.hazards, strict=False)
            if hazard == "stale"
        )

    def wrong(self, launch: Launch) -> Iterator[Argument]:
        """The arguments of a launch whose memory does not hold their value."""
        seen = set()
        is_shape = takes_shape(launch.kernel)
        for position, argument in enumerate(launch.args):
            if is_shape and position == 0 and argument.hazard in ("unwritten", "taken"):
                continue
            if argument.hazard == "updated" and not self._reads_first(launch, position):
                continue
            is_empty = bool({argument.name, argument.buffer} & self.empty)
            if argument.hazard and not is_empty and argument.expr not in seen:
                seen.add(argument.expr)
                yield argument

    def finding(self, launch: Launch, argument: Argument) -> Finding:
        kind, name = _KINDS[argument.hazard], variable(argument.name)
        after = [x for x in self.launches if x.index > launch.index]
        writers = [x for x in after if self._writes(x, argument)]
        others: tuple[int, ...] = ()
        text = [f"line {launch.line}: {launch.kernel} is given {argument.expr}"]
        if kind == "freed":
            what = f"reads {name}, which is deleted before it"
        elif kind == "unbound":
            what = f"uses {name}, which {launch.scope} does not have: it is none of its inputs, "
            what += "and no line above gives it a value"
        elif kind == "stale":
            what = f"reads {name} after another buffer took its memory over"
            stale = [(x.index, y) for x in after for y in x.args if y.hazard == "stale"]
            others = tuple(dict.fromkeys(x for x, y in stale if variable(y.name) == name))
            text += self._taken(name, launch) or [f"{name} lies in the memory of {argument.buffer}"]
            text += [f"the call returns {name}"] if name in self.outdated else []
        elif writers:
            kind, others = "order", (writers[0].index,)
            what = (
                f"reads {name}, which launch #{writers[0].index} {writers[0].kernel} (line "
                f"{writers[0].line}) writes only afterwards: they have changed places"
            )
        else:
            what = f"reads {name}, which nothing has written: a launch that writes it is missing"
            if argument.hazard == "taken":
                text.append(f"its memory still holds {argument.buffer}")
        lasting = kind == "stale" and (
            name in self.outdated or self._is_written_over(launch, argument)
        )
        return self._at(launch, kind, what, text=tuple(text), others=others, lasting=lasting)

    def _taken(self, name: str, launch: Launch) -> list[str]:
        """The last line above a launch that gives the memory of a buffer to another one."""
        given = re.compile(rf"\s*(?:auto )?\w+ = (?:std::move\()?{re.escape(name)}\)?(?:;.*)?")
        lines = self.wrapper.plain.data.decode("utf-8", "replace").split("\n")[: launch.line - 1]
        taken = [f"line {at}: {x.strip()}" for at, x in enumerate(lines, 1) if given.fullmatch(x)]
        return taken[-1:]

    def unwritten_by_copy(self, launch: Launch, argument: Argument) -> Finding | None:
        """The finding about an earlier launch that wrote to a copy of what this launch reads."""
        name = variable(argument.name)
        copy = self._copy(name, _KINDS[argument.hazard])
        if copy is None or copy[0].index >= launch.index:
            return None
        read = f"{name}, which launch #{launch.index} {launch.kernel} (line {launch.line}) reads"
        return self._lost(*copy, read)

    def returned(self, known: Collection[str], graph: str) -> Iterator[Finding]:
        """Findings for returned buffers without a value, except for those in `known`, and those
        that the model itself returns without writing them."""
        parsed = parse(graph) if graph else None
        for entry in self.wrapper.located.entries:
            names = entry.returned or entry.outputs
            meant: Collection[int] = ()
            if parsed is not None and len(parsed.outputs) == len(names):
                meant = parsed.unwritten
            returned = zip(names, entry.outputs, entry.hazards, strict=False)
            for place, (name, buffer, hazard) in enumerate(returned):
                if not hazard or {name, buffer} & set(known):
                    continue
                kind = _KINDS[hazard]
                if kind == "unwritten" and place in meant:
                    continue
                if (copy := self._copy(name, kind)) is not None:
                    yield self._lost(*copy, f"{name}, which the call returns")
                    continue
                path = self.wrapper.path.name
                what = f"the wrapper {beginning(path)} returns {name}, and {_RETURNED[kind]}"
                yield Finding(
                    kind, what, _BY_TEXT, artifact=path, run=self.run, whole=True,
                    kernel="the return of the call",
                    text=() if kind != "unwritten" or parsed is not None else (_UNKNOWN_GRAPH,),
                )  # fmt: skip

    def _reads_first(self, launch: Launch, position: int) -> bool:
        return reads_first(self.sources.get(launch.kernel, ""), position)

    def _writes(self, launch: Launch, argument: Argument) -> bool:
        """Whether a launch gives the buffer of an argument its value, and does not need one."""
        return any(
            arg.hazard in ("", "updated")
            and not (arg.role == "inout" and self._reads_first(launch, position))
            for position, arg in enumerate(launch.args)
            if arg.role != "in"
            and (
                variable(arg.name) == variable(argument.name)
                or (arg.buffer == argument.buffer and argument.hazard != "taken")
            )
        )

    def _is_written_over(self, launch: Launch, argument: Argument) -> bool:
        """Whether earlier launches wrote, under another name, to the memory that this one reads."""
        name = variable(argument.name)
        before = (x for x in self.launches if x.index < launch.index and x.scope == launch.scope)
        written = [(x, y) for x in before for y in x.args if y.role != "in"]
        own = max((x.index for x, y in written if variable(y.name) == name), default=-1)
        return any(
            x.index > own and y.buffer == argument.buffer and variable(y.name) != name
            for x, y in written
        )

    def _copy(self, name: str, kind: FindingKind) -> tuple[Launch, Argument] | None:
        """The launch that wrote to a copy of an unwritten buffer, and the copy."""
        return given_copy(self.wrapper, name, self.extra) if kind == "unwritten" else None

    def _lost(self, launch: Launch, copy: Argument, what: str) -> Finding:
        """A launch that writes to a copy of a buffer, which nothing else writes."""
        lost = f"writes to a copy, {copy.expr}: nothing has written {what}"
        return self._at(launch, "unwritten", lost)

    def _at(self, launch: Launch, kind: FindingKind, what: str, **more: Any) -> Finding:
        lines = self.lines.get(launch.index, ())
        return shown_by_text(self.wrapper, self.run, kind, what, launch, lines=lines, **more)


def shown_by_text(
    wrapper: Wrapper, run: str, kind: FindingKind, what: str, launch: Launch, **more: Any
) -> Finding:
    """A finding about a launch that the text of its wrapper shows."""
    more |= {"launch": launch.index, "kernel": launch.kernel, "line": launch.line}
    return Finding(kind, what, _BY_TEXT, artifact=wrapper.path.name, run=run, **more)


def reads_first(text: str, position: int) -> bool:
    """Whether a kernel reads the memory of a parameter before it writes to it, by the order of its
    text. False if the text does not show it."""
    parameters = next(signatures(text, position), None)
    signature = re.search(r"\)\s*(?::\n|\{)", text)
    if parameters is None or signature is None:
        return False
    names, body = {parameters[position].name}, text[signature.end() :]
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


def examine_kernels(wrapper: Wrapper, *, run: str = "", reads: Sequence[Finding] = ()) -> Examined:
    """Findings for the kernels of a wrapper that no launch runs. `reads` are the findings about
    launches that read unwritten memory: the missing launch belongs before the first of them."""
    readers = [finding.launch for finding in reads if finding.launch is not None]
    try:
        kernels = find_kernels(wrapper)
    except RewriterError:  # locating launches does not need the kernels
        return Examined()
    launched = {launch.kernel for launch in wrapper.located.launches}
    # Unrecognised calls may launch any kernel, and a multi-kernel launches one of its choices.
    unknown = b"\n".join(_CHOICES.findall(wrapper.plain.data)).decode("utf-8", "replace")
    unknown += " ".join(call.text for call in wrapper.unrecognised)

    def is_chosen(kernel: KernelSource) -> bool:
        name = re.compile(rf"\b{re.escape(kernel.name)}\b")
        return any(map(name.search, [unknown, *(x.text for x in kernels if x.name != kernel.name)]))

    def missing(kernel: KernelSource) -> Finding:
        line = wrapper.plain.data.count(b"\n", 0, kernel.start) + 1 if kernel.end else 0
        before = _launched_before(kernel, kernels, wrapper.located.launches)
        at = 0 if before is None else before.index + 1
        where = f", behind launch #{before.index} {before.kernel}" if before is not None else ""
        if known := [reader for reader in readers if reader >= at]:
            at = min(known)
            where = f", before launch #{at}"
        what = (
            f"the kernel {kernel.name} is defined (line {line} of {beginning(wrapper.path.name)}), "
            f"and no launch runs it: its launch is missing{where}"
        )
        facts: dict[str, Any] = {"launch": at, "kernel": kernel.name, "line": line, "whole": True}
        return Finding("missing", what, _BY_TEXT, artifact=wrapper.path.name, run=run, **facts)

    idle = (x for x in kernels if x.name not in launched and not is_chosen(x))
    if found := tuple(map(missing, idle)):
        return Examined(found)
    number = len(kernels)
    known = (
        f"in the text of {beginning(wrapper.path.name)}, {number} of {counted(number, 'kernel')} "
        f"{'is' if number == 1 else 'are'} launched"
    )
    return Examined(ruled_out=f"a missing launch of a kernel: {known}" * bool(kernels))


def _launched_before(
    kernel: KernelSource, kernels: Sequence[KernelSource], launches: Sequence[Launch]
) -> Launch | None:
    """The last launch of a kernel that is defined earlier: kernels are defined in launch order."""
    above = {source.name for source in kernels if source.start < kernel.start}
    below = {source.name for source in kernels if source.start > kernel.start}
    first = next((launch.index for launch in launches if launch.kernel in below), len(launches))
    found = [launch for launch in launches if launch.kernel in above and launch.index < first]
    return found[-1] if found else None


def examine_races(wrapper: Wrapper, *, run: str = "") -> Examined:
    """Findings for the races of a wrapper."""
    streams = {stream_action.stream for stream_action in wrapper.located.stream_actions}
    launches = wrapper.located.launches  # by lines of the wrapper without probes
    collectives = sum(map(is_collective, launches))
    races = find_races(wrapper.located, launches)
    if races:
        shown = partial(shown_by_text, wrapper, run, "race")
        return Examined(tuple(shown(x.sentence, x.launch, others=(x.other.index,)) for x in races))
    if len(streams) < 2 and not collectives:
        return Examined()
    what = counted(len(streams), "stream") if len(streams) > 1 else ""
    beside = counted(collectives, "collective") if collectives else ""
    return Examined(
        ruled_out=f"a race: in the text of {beginning(wrapper.path.name)}, "
        f"{' and '.join(filter(None, (what, beside)))} wait for what they read"
    )
