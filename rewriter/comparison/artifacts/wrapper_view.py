"""The parts of one valid wrapper that are compared, read when needed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rewriter.artifact.kernel_sources import find_kernels
from rewriter.artifact.types import Wrapper
from rewriter.comparison.artifacts import accounting, kernels
from rewriter.comparison.artifacts.buffer_facts import BufferFacts, read_buffer_facts
from rewriter.comparison.artifacts.kernels import Kernels
from rewriter.comparison.artifacts.values import Operands, follow_operands
from rewriter.core import markers
from rewriter.core.align import Keys
from rewriter.locate.names import launch_keys
from rewriter.locate.types import Launch

Extra = Mapping[str, bytes]


@dataclass(frozen=True)
class WrapperView:
    """The parts of one valid wrapper that are compared."""

    wrapper: Wrapper
    extra: Extra

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of the plain source with their ends."""
        return markers.lines(self.wrapper.plain.data)

    @cached_property
    def text(self) -> list[str]:
        """The lines without their ends."""
        return [accounting.bare(line).decode("utf-8", "replace") for line in self.lines]

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches with the lines of the plain source."""
        return self.wrapper.located.launches

    @cached_property
    def buffers(self) -> BufferFacts:
        return read_buffer_facts(self.text)

    @cached_property
    def operands(self) -> Operands:
        return follow_operands(self.wrapper.located, self.buffers)

    @cached_property
    def kernels(self) -> Kernels:
        return kernels.read(find_kernels(self.wrapper, self.extra))

    @cached_property
    def launch_lines(self) -> list[range]:
        """The lines of each launch's statement in the plain source, from 1, and of those that take
        over its results."""
        points, line_of = (x.insertion_point for x in self.launches), self.wrapper.plain.line_of
        return [range(line_of(x.start), line_of(x.end - 1) + 1) for x in points]

    def kernel_lines(self, name: str, *, whole: bool) -> list[int]:
        """The lines of a kernel and the comments above it in the plain source, from 1; none if it
        is in another file.

        Unless `whole`, without the lines of a call around the source.
        """
        kernel, line_of = self.kernels.sources[name], self.wrapper.plain.line_of
        if not kernel.end:
            return []
        above = first = line_of(kernel.start)
        while above > 1 and self.text[above - 2].startswith("# "):
            above -= 1
        is_inside = kernel.inside and not whole
        source = kernel.inside if is_inside else range(first, line_of(kernel.end - 1) + 1)
        return [*range(above, first), *source]

    @cached_property
    def launched(self) -> list[str]:
        """The names of the kernels that are launched and whose sources are known, in order."""
        known = self.kernels.sources
        return [launch.kernel for launch in self.launches if launch.kernel in known]

    def keys(self, *, by_name: bool) -> list[Keys]:
        """The keys of the launches, by the names of kernels or, if known, by their sources.

        If both sides launch the same names in one order, nothing was renumbered: a difference under
        one name is a difference of the source.
        """
        digests = {
            name: hashlib.sha256(text.encode()).digest()
            for name, text in self.kernels.normal.items()
            if not by_name
        }
        each = zip(self.launches, self.operands.shapes, strict=True)
        return [
            launch_keys(x.kernel, x.kind, shapes, x.source_nodes, x.origins, digests.get(x.kernel))
            for x, shapes in each
        ]
